"""Recordings as resources: a list of them, and what each of them says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from inductoscope.errors import UsageError
from inductoscope.views.report.plain_text import visible
from inductoscope.vocabulary.spelling import did_you_mean

SCHEME = "inductoscope://"
SKILL = f"{SCHEME}skill"
_RECORDINGS = f"{SCHEME}recordings/"
PAGE = 50

# Parts of a recording that can be read alone, and what they are.
PARTS = {
    "findings": "What is wrong or worth knowing in a recording, with evidence and advice",
    "verdict": "The doctor's verdict on a recording; null if it was not examined",
}
WHOLE = (
    "What `inductoscope show --json` says about a recording: compiles, stages, findings, verdict"
)


@dataclass(frozen=True)
class RecordingResource:
    """One recording, as a list shows it."""

    uri: str
    name: str
    description: str
    path: str


def template(part: str = "") -> str:
    """The address of all recordings, or of a part of each."""
    return f"{_RECORDINGS}{{name}}" + (f"/{part}" if part else "")


def listed(view: Mapping[str, Any]) -> list[RecordingResource]:
    """The recordings that `recordings list --json` names, newest first."""
    return [_resource(one) for one in view.get("recordings", ())]


def _resource(one: Mapping[str, Any]) -> RecordingResource:
    path = str(one["path"])
    name = path.rpartition("/")[2]
    told = f"{one.get('outcome') or 'recorded'}: {' '.join(map(str, one.get('command') or ()))}"
    uri = f"{_RECORDINGS}{quote(name, safe='', errors='surrogateescape')}"
    return RecordingResource(uri, visible(name), visible(told)[:300], path)


def page_of(found: list[RecordingResource], cursor: str | None) -> tuple[Any, str | None]:
    """Some of the resources, and the cursor of the next ones."""
    try:
        start = int(cursor or "0")
    except ValueError:
        start = -1
    if not 0 <= start <= len(found):
        raise UsageError(f"{cursor!r} is not a cursor that this server gave out.")
    end = start + PAGE
    return found[start:end], str(end) if end < len(found) else None


def read_address(uri: str) -> tuple[str, str]:
    """The name of a recording, and the part of it that is wanted."""
    if not uri.startswith(_RECORDINGS):
        raise UsageError(f"There is no resource {uri}. Recordings are at {template()}.")
    name, _, part = uri.removeprefix(_RECORDINGS).partition("/")
    if part and part not in PARTS:
        raise UsageError(f"A recording has no part {part!r}.{did_you_mean(part, PARTS)}")
    return unquote(name, errors="surrogateescape"), part


def find(found: list[RecordingResource], name: str) -> RecordingResource:
    """The recording of that name: only what is in the list is read."""
    for one in found:
        if one.path.rpartition("/")[2] == name:
            return one
    names = [one.name for one in found]
    raise UsageError(f"There is no recording {name!r}.{did_you_mean(name, names)}")
