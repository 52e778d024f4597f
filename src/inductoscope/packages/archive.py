"""Reads an untrusted zip without unpacking it.

torch stores members uncompressed, under one folder. Everything else that a zip can hold is
rejected: paths that leave the folder, links, duplicate names, and zip bombs.
"""

from __future__ import annotations

import mmap
import stat
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from inductoscope.errors import UnreadablePackage
from inductoscope.wording import count_of

_MOST_MEMBERS = 100_000
# torch compresses nothing; a package may have been zipped again, but not with a ratio like this.
_MOST_RATIO = 50
_SMALL = 64 << 20  # bytes up to which any ratio is accepted
_MOST_TEXT = 256 << 20
_LOCAL_HEADER = 30  # bytes, which the name and an extra field follow
# zipfile raises NotImplementedError for strong encryption, patches and unknown compression.
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError)
_AGAIN = "Copy or build it again."


@dataclass(frozen=True)
class Archive:
    """The members of a zip. Nothing is unpacked to disk, and stored members are not copied."""

    path: Path
    # Keyed by path inside the package, without the top-level folder.
    members: Mapping[str, zipfile.ZipInfo]
    _zip: zipfile.ZipFile = field(repr=False, compare=False)
    _bytes: mmap.mmap = field(repr=False, compare=False)

    def data(self, name: str) -> memoryview:
        member = self.members[name]
        try:
            with self._zip.open(member) as file:  # Checks the local header, too.
                if member.compress_type != zipfile.ZIP_STORED:
                    # Read no more bytes than the central directory announces.
                    return memoryview(file.read(member.file_size))
        except _BROKEN as error:
            raise damaged(self.path, f"{name} cannot be read ({error})") from None
        start = member.header_offset + _LOCAL_HEADER
        start += sum(struct.unpack_from("<2H", self._bytes, start - 4))  # name and extra field
        return memoryview(self._bytes)[start : start + member.file_size]

    def text(self, name: str, most: int = _MOST_TEXT) -> str | None:
        """Return a member as text; None if there is none of this name. `most` is in bytes."""
        member = self.members.get(name)
        if member is None:
            return None
        if member.file_size > most:
            raise damaged(self.path, f"{name} has {member.file_size:,} bytes, too many for a text")
        return bytes(self.data(name)).decode("utf-8", "replace")

    def check(self) -> None:
        """Verify the checksum of every member."""
        try:
            bad = self._zip.testzip()
        except _BROKEN as error:
            raise damaged(self.path, f"a member cannot be read ({error})") from None
        if bad is not None:
            raise damaged(self.path, f"the checksum of {bad} does not match its bytes")


def damaged(path: Path, what: str) -> UnreadablePackage:
    return UnreadablePackage(f"{path} is damaged: {what}. {_AGAIN}")


def open_archive(path: Path) -> Archive:
    """Open a zip and check its list of members; nothing is unpacked."""
    try:
        with open(path, "rb") as file:
            whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        opened = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError, struct.error) as error:
        raise _not_a_zip(path, error) from None
    listed = opened.infolist()
    _refuse_hostile(path, listed, len(whole))
    root = _root(path, listed)
    files = {item.filename.removeprefix(root): item for item in listed if not item.is_dir()}
    return Archive(path, files, opened, whole)


def _not_a_zip(path: Path, error: Exception) -> UnreadablePackage:
    with open(path, "rb") as file:
        start = file.read(4)
    if not start:
        return UnreadablePackage(f"{path} is empty. {_AGAIN}")
    if start == b"PK\x03\x04":
        return UnreadablePackage(
            f"{path} is cut off: it begins like a package, and the list of its members, which "
            f"stands at the end, is missing or broken ({error}). {_AGAIN}"
        )
    return UnreadablePackage(
        f"{path} is not a package: neither a zip (.pt2) nor a shared library (.so). "
        "torch._inductor.aoti_compile_and_package(exported_program) writes one."
    )


def _root(path: Path, listed: list[zipfile.ZipInfo]) -> str:
    """Return the single top-level folder of a zip."""
    tops = {item.filename.partition("/")[0] for item in listed}
    if len(tops) != 1 or not all("/" in item.filename for item in listed):
        raise UnreadablePackage(
            f"{path} is a zip, but not a package: torch puts everything into one folder, and this "
            f"has {count_of(len(tops), 'name')} at the top. "
            "torch._inductor.aoti_compile_and_package writes packages."
        )
    return f"{tops.pop()}/"


# --- what torch does not write --------------------------------------------------------------------


def _refuse_hostile(path: Path, listed: list[zipfile.ZipInfo], size: int) -> None:
    if len(listed) > _MOST_MEMBERS:
        raise _hostile(path, f"it lists {len(listed):,} members")
    for item in listed:
        _refuse_member(path, item)
    names = Counter(item.filename for item in listed)
    twice = next((name for name, count in names.items() if count > 1), None)
    if twice is not None:
        raise _hostile(path, f"two of its members are called {twice!r}")
    packed = sum(item.compress_size for item in listed)
    if packed > size:
        raise _hostile(path, "its members overlap, as in a zip bomb")
    unpacked = sum(item.file_size for item in listed)
    if unpacked > max(_SMALL, _MOST_RATIO * size):
        raise _hostile(path, f"{size:,} bytes would become {unpacked:,}, as in a zip bomb")


def _refuse_member(path: Path, item: zipfile.ZipInfo) -> None:
    name = item.orig_filename
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if not parts or name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0]:
        raise _hostile(path, f"the name {name!r} of a member leads out of its folder")
    if "\0" in name or "\\" in name:
        raise _hostile(path, f"the name {name!r} of a member is not one that torch writes")
    mode = item.external_attr >> 16
    if mode and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_IFMT(mode) == 0):
        raise _hostile(path, f"{name} is a link or a device, not a file")
    if item.flag_bits & 0x1:
        raise _hostile(path, f"{name} is encrypted")
    if item.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _hostile(path, f"{name} is compressed in a way that torch cannot read")
    if item.compress_type == zipfile.ZIP_STORED and item.compress_size != item.file_size:
        raise _hostile(path, f"{name} has two sizes")


def _hostile(path: Path, why: str) -> UnreadablePackage:
    return UnreadablePackage(
        f"{path} is refused: {why}. torch writes no such package, so do not load it; ask whoever "
        "gave it to you."
    )
