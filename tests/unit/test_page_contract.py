"""The page's contract: what Python writes, what TypeScript declares and what it reads agree."""

from __future__ import annotations

import json
import re
import shutil
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Union

import pytest
from typescript import classes, contract_text, hints_of

from inductoscope.model.entities import Recompile
from inductoscope.model.fold import load
from inductoscope.recording.events import GraphBreak
from inductoscope.recording.profile_file import ADVICE, profile_path
from inductoscope.views.page.contents import Contents
from inductoscope.views.page.contract import (
    CHUNKS,
    Index,
    LineNumber,
    PageCompile,
    PageGraph,
    PageTable,
    SharedTable,
)
from inductoscope.views.page.document import compact
from support import pages
from support.examples import NAMES, stored

PROFILES = Path(__file__).resolve().parents[1] / "data" / "profiles"

# Keys that nothing on the page reads, and why they exist.
UNREAD: dict[tuple[type, str], str] = {
    (GraphBreak, "stack"): "the finding on the break has it",
    (Recompile, "callers"): "the finding on recompiles has the stack",
    (Index, "schema"): "the version of the format, for programs that read `report --json`",
    (PageCompile, "stages"): "for programs that read `report --json`",
    (PageGraph, "seconds"): "for programs that read `report --json`",
    (PageGraph, "fusions"): "for programs that read `report --json`",
}

WEB = Path(__file__).parents[2] / "web"
checkout = pytest.mark.skipif(not WEB.is_dir(), reason="the sources of the page are not here")


def every_class() -> list[type]:
    kinds = [kind for hint in (Index, *CHUNKS.values()) for kind in classes(hint)]
    return [kind for kind in dict.fromkeys(kinds) if kind not in (PageTable, SharedTable)]


def complaints(value: Any, hint: Any, place: str) -> Iterator[str]:
    """Where data is not what the contract says: a key too many or too few, another type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, Union):
        (inner,) = (one for one in arguments if one is not type(None))
        yield from () if value is None else complaints(value, inner, place)
    elif origin is Literal:
        yield from () if value in arguments else (f"{place}: {value!r} is none of {arguments}",)
    elif origin is Mapping:
        yield from of_type(value, dict, place)
        for name, item in value.items() if isinstance(value, dict) else ():
            yield from complaints(item, arguments[1], f"{place}[{name}]")
    elif origin is tuple:
        yield from of_type(value, list, place)
        for item in value if isinstance(value, list) else ():
            yield from complaints(item, arguments[0], f"{place}[]")
    elif origin is PageTable:
        for row in value["rows"]:
            keyed = dict(zip(value["columns"], row, strict=True))
            yield from complaints(keyed, arguments[0], f"{place}[]")
    elif origin is SharedTable:
        for row in zip(*value["places"], strict=True):
            found = (shared[place] for shared, place in zip(value["values"], row, strict=True))
            keyed = dict(zip(value["columns"], found, strict=True))
            yield from complaints(keyed, arguments[0], f"{place}[]")
    elif hint in (str, bool, int, float, LineNumber):
        wanted = {float: (int, float), LineNumber: int}.get(hint, hint)
        yield from of_type(value, wanted, place)
    else:
        yield from of_class(value, hint, place)


def of_type(value: Any, wanted: Any, place: str) -> Iterator[str]:
    is_number = isinstance(value, bool) and wanted is not bool
    if is_number or not isinstance(value, wanted):
        yield f"{place}: {value!r} is not of type {wanted}"


def of_class(value: Any, kind: type, place: str) -> Iterator[str]:
    hints = hints_of(kind)
    if not isinstance(value, dict):
        yield f"{place}: {value!r} is not an object"
        return
    yield from (f"{place}.{name} is missing" for name in hints.keys() - value.keys())
    yield from (f"{place}.{name} is too many" for name in value.keys() - hints.keys())
    for name in hints.keys() & value.keys():
        yield from complaints(value[name], hints[name], f"{place}.{name}")


def chunk_type(name: str) -> Any:
    return CHUNKS[name.partition("-")[0]]


@checkout
def test_typescript_is_generated_from_the_contract() -> None:
    written = (WEB / "src" / "contract.ts").read_text("utf-8")
    assert written == contract_text(), "run: .venv/bin/python web/typescript.py, then 'make web'"


@checkout
def test_the_page_reads_every_key_or_says_why_not() -> None:
    sources = [
        re.sub(r'//.*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', "", path.read_text("utf-8"), flags=re.S)
        if path.suffix == ".ts"
        else path.read_text("utf-8")
        for path in (WEB / "src").rglob("*.ts*")
        if path.name not in ("contract.ts", "values.ts")
    ]
    # As a property, or taken out of an object: `const { fused, refused } = index.ledger`.
    taken = re.findall(r"\{([\w\s,]+)\}(?:: \w+)?\)? =|\(\{([\w\s,]+)\}\)", "\n".join(sources))
    read = set(re.findall(r"\.(\w+)\b", "\n".join(sources)))
    read |= {name for groups in taken for text in groups for name in re.findall(r"\w+", text)}
    unread = {
        (kind, key)
        for kind in every_class()
        for key in hints_of(kind)
        if key not in read and (kind, key) not in UNREAD
    }
    assert unread == set()
    assert all(key in hints_of(kind) for kind, key in UNREAD)
    assert all(UNREAD.values())


@checkout
def test_nothing_on_the_page_reads_data_past_the_contract() -> None:
    for path in (WEB / "src").rglob("*.ts*"):
        text = path.read_text("utf-8")
        # Graphs of torch.fx are on the page as they were recorded: fx.ts reads what capture writes.
        if path.name not in ("contract.ts", "values.ts", "fx.ts"):
            assert 'from "./values"' not in text, path
            assert "as any" not in text, path


ADVISED = "training_step with advice"


def contents_of(name: str, tmp_path: Path) -> Contents:
    """A stored recording, or one to which the advice on another program was added."""
    if name != ADVISED:
        return Contents(load(stored(name)))
    folder = tmp_path / "recording"
    shutil.copytree(stored("training_step"), folder)
    shutil.copy(PROFILES / "advice.json", profile_path(folder, ADVICE))
    return Contents(load(folder))


def is_recorded(chunk: str) -> bool:
    """Whether a chunk is what was recorded, which no contract of the page describes."""
    return chunk.startswith("fx-")


@pytest.mark.parametrize("name", [*NAMES, ADVISED])
def test_the_page_of_every_recording_is_as_the_contract_says(name: str, tmp_path: Path) -> None:
    contents = contents_of(name, tmp_path)
    found = list(complaints(json.loads(compact(contents.index)), Index, "index"))
    for chunk, make in contents.chunks.items():
        if not is_recorded(chunk):
            found += complaints(json.loads(compact(make())), chunk_type(chunk), chunk)
    assert found == []


def test_every_kind_of_chunk_is_in_some_recording(tmp_path: Path) -> None:
    every = [*NAMES, ADVISED]
    chunks = {chunk for name in every for chunk in contents_of(name, tmp_path / name).chunks}
    kinds = {chunk.partition("-")[0] for chunk in chunks if not is_recorded(chunk)}
    # The made-up page is linked already.
    assert kinds | {"graph"} == CHUNKS.keys()


def test_the_made_up_page_is_as_the_contract_says() -> None:
    index, chunks = pages.realistic()
    found = list(complaints(index, Index, "index"))
    for name, chunk in chunks.items():
        found += complaints(chunk, chunk_type(name), name)
    assert found == []
