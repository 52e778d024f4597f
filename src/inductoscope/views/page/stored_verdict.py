"""The doctor's verdict, read back from a recording."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from inductoscope.model.entities import Recording
from inductoscope.recording.values import members
from inductoscope.recording.verdict_file import stored_verdict
from inductoscope.views.page.contract import (
    PageEvidence,
    PageTrail,
    PageTrailBuffer,
    PageTrailStep,
    PageVerdict,
    PageWorkaround,
    PageWrongValue,
    Reproducer,
)
from inductoscope.vocabulary.verdicts import Confidence


def verdict_view(recording: Recording) -> PageVerdict | None:
    """What the doctor concluded; None if it did not run or the file is damaged."""
    found = stored_verdict(Path(recording.path))
    return _view(found, recording) if found else None


def _view(found: Mapping[str, Any], recording: Recording) -> PageVerdict:
    culprit = members(found.get("culprit"))
    return PageVerdict(
        verdict=_text(found, "verdict"),
        stage=_text(found, "stage"),
        summary=_text(found, "summary"),
        confidence=_confidence(found.get("confidence")),
        culprit={str(name): str(value) for name, value in culprit.items() if value},
        evidence=tuple(
            PageEvidence(_text(item, "what"), _text(item, "where"))
            for item in map(members, _items(found, "evidence"))
        ),
        values=tuple(map(_value, map(members, _items(found, "values")))),
        notes=tuple(
            PageEvidence(_text(item, "text"), f"compile {_text(item, 'compile')}")
            for item in map(members, _items(found, "notes"))
        ),
        not_checked=tuple(str(item) for item in _items(found, "not_checked")),
        partial=found.get("partial") is True,
        repro=_reproducer(members(found.get("repro")), _text(found, "repro_text")),
        workaround=_workaround(members(found.get("workaround"))),
        issue=_text(found, "issue_text"),
        trail=_trail(members(found.get("trail")), recording),
    )


def _trail(found: Mapping[str, Any], recording: Recording) -> PageTrail | None:
    steps = tuple(map(_step, map(members, _items(found, "steps"))))
    if not steps:
        return None
    graphs = [(c.id, graph.key) for c in recording.compiles for graph in c.inductor]
    place = (_text(found, "compile"), _text(found, "graph"))
    return PageTrail(
        graph=graphs.index(place) if place in graphs else None,
        calls=_whole(found, "calls") or 0,
        steps=steps,
        reaches_fault=found.get("reaches_fault") is True,
        fault=_text(found, "fault"),
        wrong=_text(found, "wrong"),
        how=_text(found, "how"),
    )


def _step(found: Mapping[str, Any]) -> PageTrailStep:
    return PageTrailStep(
        kernel=_text(found, "kernel"),
        call=_whole(found, "call") or 0,
        buffers=tuple(map(_buffer, map(members, _items(found, "buffers")))),
        reads=tuple(map(_buffer, map(members, _items(found, "reads")))),
    )


def _buffer(found: Mapping[str, Any]) -> PageTrailBuffer:
    return PageTrailBuffer(
        name=_text(found, "name"),
        node=_text(found, "node"),
        operation=_text(found, "operation"),
        source=_text(found, "source"),
        made_by=_text(found, "made_by"),
    )


def _value(found: Mapping[str, Any]) -> PageWrongValue:
    return PageWrongValue(
        where=_text(found, "where"),
        index=tuple(place for place in _items(found, "index") if isinstance(place, int)),
        actual=_text(found, "actual"),
        expected=_text(found, "expected"),
        float64=_text(found, "float64"),
        wrong=_whole(found, "wrong") or 0,
        elements=_whole(found, "elements") or 0,
    )


def _confidence(value: Any) -> Confidence:
    known: tuple[Confidence, ...] = get_args(Confidence)
    return next((word for word in known if word == value), "unknown")


def _reproducer(repro: Mapping[str, Any], text: str) -> Reproducer | None:
    if not repro:
        return None
    return Reproducer(
        path=_text(repro, "path"),
        verified=repro.get("verified") is True,
        failed=_whole(repro, "failed"),
        of=_whole(repro, "of"),
        nodes=_whole(repro, "nodes"),
        text=text,
    )


def _workaround(found: Mapping[str, Any]) -> PageWorkaround | None:
    if not found:
        return None
    slowdown = found.get("slowdown")
    return PageWorkaround(
        text=_text(found, "text"),
        code=_text(found, "code"),
        verified=found.get("verified") is True,
        slowdown=float(slowdown) if isinstance(slowdown, (int, float)) else None,
    )


def _items(found: Mapping[str, Any], name: str) -> list[Any]:
    value = found.get(name)
    return value if isinstance(value, list) else []


def _text(found: Mapping[str, Any], name: str) -> str:
    return str(found.get(name) or "")


def _whole(found: Mapping[str, Any], name: str) -> int | None:
    value = found.get(name)
    return value if isinstance(value, int) else None
