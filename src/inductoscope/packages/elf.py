"""Reads the dependencies and symbols of a shared library, without loading it.

It reads the header, the dynamic section, symbols and version requirements. Offsets are untrusted,
so every read is checked.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from inductoscope.errors import UnreadablePackage

MACHINES = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64", 21: "ppc64le"}

_MAGIC = b"\x7fELF"
# Section types.
_DYNAMIC, _SYMBOLS, _VERSIONS_NEEDED, _VERSION_OF = 6, 11, 0x6FFFFFFE, 0x6FFFFFFF
_NEEDED = 1  # an entry of the dynamic section
_MOST_NAME = 10_000


@dataclass(frozen=True)
class SharedLibrary:
    """The parts of a library that the dynamic loader uses."""

    machine: str
    needed: tuple[str, ...]  # other libraries
    undefined: tuple[str, ...]  # unversioned symbols that another library has to define
    defined: tuple[str, ...]
    versions: tuple[str, ...]  # such as GLIBC_2.34


class LibrarySymbol(NamedTuple):
    """One entry of the table of dynamic symbols."""

    name: str
    is_defined: bool
    is_optional: bool
    has_version: bool  # whether it requires a version, as symbols of the C library do


class ElfFile:
    """A view of the bytes of an ELF file."""

    def __init__(self, data: memoryview | mmap.mmap) -> None:
        """`data` is not copied as a whole: libtorch has hundreds of megabytes."""
        self._data = memoryview(data)
        if bytes(data[:4]) != _MAGIC or len(data) < 64:
            raise ValueError("it is not an ELF file")
        if data[4] != 2 or data[5] != 1:
            raise ValueError("it is not a 64-bit little-endian ELF file")
        (number,) = struct.unpack_from("<H", data, 18)
        # The machine, with the name of `platform.machine()`.
        self.machine = MACHINES.get(number, f"machine {number}")
        (start,), (size, count) = (
            struct.unpack_from("<Q", data, 40),
            struct.unpack_from("<2H", data, 58),
        )
        if not count or start > len(data):
            raise ValueError("it has no sections")
        self._sections = [
            struct.unpack_from("<2L4Q2L", data, start + at * size) for at in range(count)
        ]

    def needed(self) -> Iterator[str]:
        """Yield the names of required libraries (DT_NEEDED)."""
        for tag, value in self._entries(_DYNAMIC, "<2Q"):
            if tag == _NEEDED:
                yield self._name(_DYNAMIC, value)

    def symbols(self) -> Iterator[LibrarySymbol]:
        """Yield every dynamic symbol that has a name."""
        versions = [version & 0x7FFF for (version,) in self._entries(_VERSION_OF, "<H")]
        for number, entry in enumerate(self._entries(_SYMBOLS, "<L2BH2Q")):
            name, info, _, section, _, _ = entry
            if name:
                has_version = number < len(versions) and versions[number] > 1
                text = self._name(_SYMBOLS, name)
                yield LibrarySymbol(text, section != 0, info >> 4 == 2, has_version)

    @cached_property
    def offered(self) -> frozenset[str]:
        """The defined dynamic symbols."""
        return frozenset(symbol.name for symbol in self.symbols() if symbol.is_defined)

    def versions_needed(self) -> Iterator[str]:
        """Yield the symbol versions that are required of other libraries."""
        part, place = self._part(_VERSIONS_NEEDED), 0
        while part:
            _, entries, _, first, following = struct.unpack_from("<2H3L", part, place)
            entry = place + first
            for _ in range(entries):
                _, _, _, name, step = struct.unpack_from("<L2H2L", part, entry)
                yield self._name(_VERSIONS_NEEDED, name)
                if step == 0:  # A zero offset marks the last entry, whatever the count says.
                    break
                entry += step
            if following == 0:
                return
            place += following

    def _section(self, kind: int) -> tuple[Any, ...] | None:
        return next((section for section in self._sections if section[1] == kind), None)

    def _part(self, kind: int) -> memoryview:
        """Return the bytes of a section; empty if there is none."""
        section = self._section(kind)
        return self._data[section[4] : section[4] + section[5]] if section else self._data[:0]

    def _entries(self, kind: int, form: str) -> Iterator[tuple[Any, ...]]:
        part, size = self._part(kind), struct.calcsize(form)
        return struct.iter_unpack(form, part[: len(part) // size * size])

    def _name(self, kind: int, offset: int) -> str:
        return _text(self._names[kind], offset)

    @cached_property
    def _names(self) -> dict[int, bytes]:
        """The string tables of sections, by section type."""
        found = {}
        for kind in (_DYNAMIC, _SYMBOLS, _VERSIONS_NEEDED):
            section = self._section(kind)
            if section is not None:
                names = self._sections[section[6]]
                found[kind] = bytes(self._data[names[4] : names[4] + names[5]])
        return found


def _text(names: bytes, offset: int) -> str:
    end = names.find(b"\0", offset, offset + _MOST_NAME)
    return names[offset : end if end >= 0 else offset + _MOST_NAME].decode("utf-8", "replace")


def is_elf(path: Path) -> bool:
    """Check whether a file begins with the magic number of ELF."""
    with open(path, "rb") as file:
        return file.read(4) == _MAGIC


def mapped(path: Path) -> ElfFile:
    """Map a library of this machine into memory for reading."""
    with open(path, "rb") as file:
        return ElfFile(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def read_library(data: memoryview | mmap.mmap, name: str) -> SharedLibrary:
    """Read the library of a package."""
    try:
        file = ElfFile(data)
        wanted = (one for one in file.symbols() if not one.is_defined and not one.is_optional)
        return SharedLibrary(
            machine=file.machine,
            needed=tuple(file.needed()),
            undefined=tuple(one.name for one in wanted if not one.has_version),
            defined=tuple(one.name for one in file.symbols() if one.is_defined),
            versions=tuple(sorted(set(file.versions_needed()))),
        )
    except (ValueError, IndexError, KeyError, struct.error) as error:
        raise UnreadablePackage(
            f"{name} is not a shared library that can be read ({error}): it is damaged, or built "
            "for another kind of system. Build it again."
        ) from None
