"""The doctor's verdict, read back from a recording."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from inductoscope.model.entities import Recording
from inductoscope.recording.values import (
    maybe_real,
    maybe_whole,
    members,
    objects,
    text,
    texts,
    whole,
    wholes,
)
from inductoscope.recording.verdict_file import stored_verdict
from inductoscope.verdicts import Confidence
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


def verdict_view(recording: Recording) -> PageVerdict | None:
    """What the doctor concluded; None if it did not run or the file is damaged."""
    found = stored_verdict(Path(recording.path))
    return _view(found, recording) if found else None


def _view(found: Mapping[str, Any], recording: Recording) -> PageVerdict:
    culprit = members(found.get("culprit"))
    return PageVerdict(
        verdict=text(found.get("verdict")),
        stage=text(found.get("stage")),
        summary=text(found.get("summary")),
        confidence=_confidence(found.get("confidence")),
        culprit={str(name): str(value) for name, value in culprit.items() if value},
        evidence=tuple(
            PageEvidence(text(item.get("what")), text(item.get("where")))
            for item in objects(found.get("evidence"))
        ),
        values=tuple(map(_value, objects(found.get("values")))),
        notes=tuple(
            PageEvidence(text(item.get("text")), f"compile {text(item.get('compile'))}")
            for item in objects(found.get("notes"))
        ),
        not_checked=texts(found.get("not_checked")),
        partial=found.get("partial") is True,
        repro=_reproducer(members(found.get("repro")), text(found.get("repro_text"))),
        workaround=_workaround(members(found.get("workaround"))),
        issue=text(found.get("issue_text")),
        trail=_trail(members(found.get("trail")), recording),
    )


def _trail(found: Mapping[str, Any], recording: Recording) -> PageTrail | None:
    steps = tuple(map(_step, objects(found.get("steps"))))
    if not steps:
        return None
    graphs = [(c.id, graph.key) for c in recording.compiles for graph in c.inductor]
    place = (text(found.get("compile")), text(found.get("graph")))
    return PageTrail(
        graph=graphs.index(place) if place in graphs else None,
        calls=whole(found.get("calls")),
        steps=steps,
        reaches_fault=found.get("reaches_fault") is True,
        fault=text(found.get("fault")),
        wrong=text(found.get("wrong")),
        how=text(found.get("how")),
    )


def _step(found: Mapping[str, Any]) -> PageTrailStep:
    return PageTrailStep(
        kernel=text(found.get("kernel")),
        call=whole(found.get("call")),
        buffers=tuple(map(_buffer, objects(found.get("buffers")))),
        reads=tuple(map(_buffer, objects(found.get("reads")))),
    )


def _buffer(found: Mapping[str, Any]) -> PageTrailBuffer:
    return PageTrailBuffer(
        name=text(found.get("name")),
        node=text(found.get("node")),
        operation=text(found.get("operation")),
        source=text(found.get("source")),
        made_by=text(found.get("made_by")),
    )


def _value(found: Mapping[str, Any]) -> PageWrongValue:
    return PageWrongValue(
        where=text(found.get("where")),
        index=wholes(found.get("index")),
        actual=text(found.get("actual")),
        expected=text(found.get("expected")),
        float64=text(found.get("float64")),
        wrong=whole(found.get("wrong")),
        elements=whole(found.get("elements")),
    )


def _confidence(value: Any) -> Confidence:
    known: tuple[Confidence, ...] = get_args(Confidence)
    return next((word for word in known if word == value), "unknown")


def _reproducer(repro: Mapping[str, Any], script: str) -> Reproducer | None:
    if not repro:
        return None
    return Reproducer(
        path=text(repro.get("path")),
        verified=repro.get("verified") is True,
        failed=maybe_whole(repro.get("failed")),
        of=maybe_whole(repro.get("of")),
        nodes=maybe_whole(repro.get("nodes")),
        text=script,
    )


def _workaround(found: Mapping[str, Any]) -> PageWorkaround | None:
    if not found:
        return None
    return PageWorkaround(
        text=text(found.get("text")),
        code=text(found.get("code")),
        verified=found.get("verified") is True,
        slowdown=maybe_real(found.get("slowdown")),
    )
