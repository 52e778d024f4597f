"""Reads the dependencies and symbols of a shared library, without loading it.

It reads the header, the dynamic section, symbols and version requirements. Offsets are untrusted,
so every read is checked.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from inductoscope.errors import UnreadablePackage

MACHINES = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64", 21: "ppc64le"}

_MAGIC = b"\x7fELF"
# Section types.
_DYNAMIC, _SYMBOLS, _VERSIONS_NEEDED, _VERSION_OF = 6, 11, 0x6FFFFFFE, 0x6FFFFFFF
_NEEDED = 1  # an entry of the dynamic section
_WEAK = 2  # a symbol that may stay undefined
_MOST_NAME = 10_000


@dataclass(frozen=True)
class SharedLibrary:
    """The parts of a library that the dynamic loader uses."""

    machine: str  # as platform.machine() calls it
    needed: tuple[str, ...]  # other libraries
    undefined: tuple[str, ...]  # unversioned symbols that another library has to define
    defined: frozenset[str]
    versions: tuple[str, ...]  # such as GLIBC_2.34


class _Section(NamedTuple):
    data: memoryview
    names: bytes  # the strings that its entries refer to

    def entries(self, form: str) -> Iterator[tuple[Any, ...]]:
        size = struct.calcsize(form)
        return struct.iter_unpack(form, self.data[: len(self.data) // size * size])

    def name(self, offset: int) -> str:
        end = self.names.find(b"\0", offset, offset + _MOST_NAME)
        end = end if end >= 0 else offset + _MOST_NAME
        return self.names[offset:end].decode("utf-8", "replace")


def _parsed(data: memoryview) -> SharedLibrary:
    """Parse a library. It is not copied as a whole: libtorch has hundreds of megabytes."""
    if bytes(data[:4]) != _MAGIC or len(data) < 64:
        raise ValueError("it is not an ELF file")
    if data[4] != 2 or data[5] != 1:
        raise ValueError("it is not a 64-bit little-endian ELF file")
    (machine,) = struct.unpack_from("<H", data, 18)
    dynamic, symbols, version_of, needed = _sections(data)
    versions = [version & 0x7FFF for (version,) in version_of.entries("<H")]
    defined, undefined = [], []
    for number, (name, info, _, section, _, _) in enumerate(symbols.entries("<L2BH2Q")):
        # Symbols of the C library have a version.
        has_version = number < len(versions) and versions[number] > 1
        if name and section != 0:
            defined.append(symbols.name(name))
        elif name and info >> 4 != _WEAK and not has_version:
            undefined.append(symbols.name(name))
    return SharedLibrary(
        machine=MACHINES.get(machine, f"machine {machine}"),
        needed=tuple(dynamic.name(at) for tag, at in dynamic.entries("<2Q") if tag == _NEEDED),
        undefined=tuple(undefined),
        defined=frozenset(defined),
        versions=tuple(sorted(set(_versions_needed(needed)))),
    )


def _sections(data: memoryview) -> Iterator[_Section]:
    """Yield the dynamic section, symbols, their versions, and the versions that are needed."""
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<2H", data, 58)
    if not count or start > len(data):
        raise ValueError("it has no sections")
    headers = [struct.unpack_from("<2L4Q2L", data, start + at * size) for at in range(count)]

    def part(header: tuple[int, ...]) -> memoryview:
        return data[header[4] : header[4] + header[5]]

    for kind in (_DYNAMIC, _SYMBOLS, _VERSION_OF, _VERSIONS_NEEDED):
        header = next((header for header in headers if header[1] == kind), None)
        if header is None:
            yield _Section(data[:0], b"")
        else:
            yield _Section(part(header), bytes(part(headers[header[6]])))


def _versions_needed(section: _Section) -> Iterator[str]:
    place = 0
    while section.data:
        _, entries, _, first, following = struct.unpack_from("<2H3L", section.data, place)
        entry = place + first
        for _ in range(entries):
            _, _, _, name, step = struct.unpack_from("<L2H2L", section.data, entry)
            yield section.name(name)
            if step == 0:  # A zero offset marks the last entry, whatever the count says.
                break
            entry += step
        if following == 0:
            return
        place += following


def is_elf(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == _MAGIC


def mapped(path: Path) -> SharedLibrary:
    """Read a library of this machine."""
    with open(path, "rb") as file:
        return _parsed(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))


def read_library(data: memoryview | mmap.mmap, name: str) -> SharedLibrary:
    """Read the library of a package."""
    try:
        return _parsed(memoryview(data))
    except (ValueError, IndexError, struct.error) as error:
        raise UnreadablePackage(
            f"{name} is not a shared library that can be read ({error}): it is damaged, or built "
            "for another kind of system. Build it again."
        ) from None
