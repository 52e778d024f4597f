"""Reads what a shared library needs and offers, without loading it.

Only what the dynamic loader itself goes by: the header, the dynamic section, its symbols and the
versions that it asks for. Any offset may lie, so every read is checked.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from inductoscope.errors import UnreadablePackage

MACHINES = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64", 21: "ppc64le"}

_MAGIC = b"\x7fELF"
_LOAD, _DYNAMIC = 1, 2  # kinds of segments
_NEEDED, _HASH, _STRINGS, _SYMBOLS, _GNU_HASH = 1, 4, 5, 6, 0x6FFFFEF5
_VERSIONS_NEEDED, _VERSIONS_NEEDED_COUNT, _VERSION_OF = 0x6FFFFFFE, 0x6FFFFFFF, 0x6FFFFFF0
_MOST_SYMBOLS = 5_000_000
_MOST_NAME = 10_000


@dataclass(frozen=True)
class SharedLibrary:
    """The parts of a library that the dynamic loader goes by."""

    machine: str
    needed: tuple[str, ...]  # other libraries
    undefined: tuple[str, ...]  # symbols without a version that another library has to offer
    defined: tuple[str, ...]
    versions: tuple[str, ...]  # such as GLIBC_2.34


class ElfFile:
    """A view on the bytes of a library."""

    def __init__(self, data: memoryview | mmap.mmap) -> None:
        """`data` is never copied as a whole: libtorch has hundreds of megabytes."""
        self._data = data
        if bytes(data[:4]) != _MAGIC or len(data) < 64:
            raise ValueError("it is not an ELF file")
        if data[4] != 2 or data[5] != 1:
            raise ValueError("it is not a 64-bit little-endian ELF file")
        self.machine_number = self._number("<H", 18)
        self._segments = tuple(self._read_segments())
        self._dynamic = tuple(self._read_dynamic())

    @property
    def machine(self) -> str:
        """The kind of processor, as `platform.machine()` calls it."""
        return MACHINES.get(self.machine_number, f"machine {self.machine_number}")

    def needed(self) -> Iterator[str]:
        """Libraries that the loader has to find first."""
        for tag, value in self._dynamic:
            if tag == _NEEDED:
                yield self._string(value)

    def symbols(self) -> Iterator[tuple[str, bool, bool, int]]:
        """Name, whether it is defined, whether it may be missing, and its number."""
        for number in range(1, self._count_of_symbols()):
            name, defined, optional = self._symbol(number)
            if name:
                yield name, defined, optional, number

    def has_symbol(self, name: str) -> bool:
        """Whether the library offers this symbol, by its hash table."""
        table = self._place(_GNU_HASH)
        if table is None:
            return any(found == name for found, defined, _, _ in self.symbols() if defined)
        buckets, first, bloom, _ = struct.unpack_from("<4L", self._data, table)
        start = table + 16 + 8 * bloom
        wanted = _gnu_hash(name)
        number = self._number("<L", start + 4 * (wanted % buckets)) if buckets else 0
        chains = start + 4 * buckets
        while number >= first:
            value = self._number("<L", chains + 4 * (number - first))
            if value | 1 == wanted | 1:
                found, defined, _ = self._symbol(number)
                if defined and found == name:
                    return True
            if value & 1:
                return False
            number += 1
        return False

    def versions_needed(self) -> Iterator[str]:
        """Versions of other libraries that it asks for."""
        place, count = self._place(_VERSIONS_NEEDED), self._value(_VERSIONS_NEEDED_COUNT) or 0
        while place is not None and count > 0:
            _, entries, _, first, following = struct.unpack_from("<2H3L", self._data, place)
            entry = place + first
            for _ in range(entries):
                _, _, _, name, step = struct.unpack_from("<L2H2L", self._data, entry)
                yield self._string(name)
                if step == 0:  # The last one says so, whatever the count says.
                    break
                entry += step
            if following == 0:
                return
            place, count = place + following, count - 1

    def has_version(self, number: int) -> bool:
        """Whether a symbol names the version that it wants, as those of the C library do."""
        table = self._place(_VERSION_OF)
        return table is not None and (self._number("<H", table + 2 * number) & 0x7FFF) > 1

    # --- how the parts are found ------------------------------------------------------------------

    def _read_segments(self) -> Iterator[tuple[int, int, int, int]]:
        start, size = self._number("<Q", 32), self._number("<H", 54)
        for number in range(self._number("<H", 56)):
            at = start + number * size
            kind, _, offset, address, _, length = struct.unpack_from("<2L4Q", self._data, at)
            yield kind, offset, address, length

    def _read_dynamic(self) -> Iterator[tuple[int, int]]:
        for kind, offset, _, length in self._segments:
            for at in range(offset, offset + length, 16) if kind == _DYNAMIC else ():
                tag, value = struct.unpack_from("<2Q", self._data, at)
                if tag == 0:
                    return
                yield tag, value

    def _value(self, wanted: int) -> int | None:
        return next((value for tag, value in self._dynamic if tag == wanted), None)

    def _place(self, tag: int) -> int | None:
        """Where in the file the part is whose address the dynamic section gives."""
        address = self._value(tag)
        if address is None:
            return None
        for kind, offset, start, length in self._segments:
            if kind == _LOAD and start <= address < start + length:
                return offset + address - start
        raise ValueError("an address in it leads nowhere")

    def _number(self, form: str, at: int) -> int:
        return int(struct.unpack_from(form, self._data, at)[0])

    def _string(self, offset: int) -> str:
        start = self._place(_STRINGS)
        if start is None:
            raise ValueError("it has no names")
        piece = bytes(self._data[start + offset : start + offset + _MOST_NAME])
        return piece.partition(b"\0")[0].decode("utf-8", "replace")

    def _symbol(self, number: int) -> tuple[str, bool, bool]:
        table = self._place(_SYMBOLS)
        if table is None:
            raise ValueError("it has no symbols")
        name, info, _, section = struct.unpack_from("<L2BH", self._data, table + 24 * number)
        return self._string(name), section != 0, info >> 4 == 2

    def _count_of_symbols(self) -> int:
        table = self._place(_HASH)
        if table is not None:
            return min(self._number("<L", table + 4), _MOST_SYMBOLS)
        table = self._place(_GNU_HASH)
        return 0 if table is None else min(self._last_hashed(table) + 1, _MOST_SYMBOLS)

    def _last_hashed(self, table: int) -> int:
        """The GNU table does not say how many symbols there are: the last chain ends with it."""
        buckets, first, bloom, _ = struct.unpack_from("<4L", self._data, table)
        start = table + 16 + 8 * bloom
        last = max((self._number("<L", start + 4 * n) for n in range(buckets)), default=0)
        if last < first:
            return int(first) - 1
        while not self._number("<L", start + 4 * buckets + 4 * (last - first)) & 1:
            last += 1
        return int(last)


def _gnu_hash(name: str) -> int:
    value = 5381
    for byte in name.encode():
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def is_elf(path: Path) -> bool:
    """Whether a file begins like a shared library."""
    with open(path, "rb") as file:
        return file.read(4) == _MAGIC


def mapped(path: Path) -> ElfFile:
    """A library of this machine, opened for reading."""
    with open(path, "rb") as file:
        return ElfFile(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def read_library(data: memoryview | mmap.mmap, name: str) -> SharedLibrary:
    """Read the library of a package."""
    try:
        file = ElfFile(data)
        symbols = tuple(file.symbols())
        return SharedLibrary(
            machine=file.machine,
            needed=tuple(file.needed()),
            undefined=tuple(
                symbol
                for symbol, defined, optional, number in symbols
                if not defined and not optional and symbol and not file.has_version(number)
            ),
            defined=tuple(symbol for symbol, defined, _, _ in symbols if defined),
            versions=tuple(sorted(set(file.versions_needed()))),
        )
    except (ValueError, IndexError, struct.error) as error:
        raise UnreadablePackage(
            f"{name} is not a shared library that can be read ({error}): it is damaged, or built "
            "for another kind of system. Build it again."
        ) from None
