"""The whole recording as one JSON file: the model, the findings, the timeline and all texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from inductoscope.analysis.rules import diagnose
from inductoscope.model.entities import Recording
from inductoscope.model.timeline import timeline
from inductoscope.version import __version__
from inductoscope.views.export.item import Item

SCHEMA = 1
_DIGEST = re.compile(r"[0-9a-f]{32}")


def everything(recording: Recording) -> Iterator[Item]:
    """One self-contained file."""
    yield Item("recording.json", "everything", lambda: json.dumps(as_data(recording), indent=1))


def as_data(recording: Recording) -> dict[str, Any]:
    """The recording as plain data. `payloads` holds the texts behind its digests."""
    data = {
        "schema": SCHEMA,
        "tool": f"inductoscope {__version__}",
        "recording": plain(recording),
        "findings": plain(diagnose(recording)),
        "timeline": plain(timeline(recording)),
    }
    return {**data, "payloads": _payloads(recording, data["recording"])}


def plain(value: Any) -> Any:
    """Dataclasses as objects and tuples as lists, without readers of payloads."""
    if is_dataclass(value) and not isinstance(value, type):
        names = (field.name for field in fields(value) if field.name != "payloads")
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _payloads(recording: Recording, data: Any) -> dict[str, str]:
    """All referenced texts, also those that other texts reference, except missing ones."""
    found: dict[str, str] = {}
    waiting = _digests(data)
    while waiting:
        digest = waiting.pop()
        text = recording.payloads.payload(digest) if digest not in found else None
        if text is not None:
            found[digest] = text
            # A list of scheduler nodes references loop bodies.
            waiting += _DIGEST.findall(text) if text.startswith("[") else []
    return found


def _digests(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [digest for item in value.values() for digest in _digests(item)]
    if isinstance(value, list):
        return [digest for item in value for digest in _digests(item)]
    return [value] if isinstance(value, str) and _DIGEST.fullmatch(value) else []
