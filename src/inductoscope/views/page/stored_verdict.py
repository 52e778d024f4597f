"""The doctor's verdict, read back from a recording."""

from __future__ import annotations

from pathlib import Path

from inductoscope.doctor.verdict import read_verdict
from inductoscope.model.entities import Recording
from inductoscope.model.fault_trail import FaultTrail
from inductoscope.recording.values import text
from inductoscope.recording.verdict_file import stored_verdict
from inductoscope.views.page.contract import (
    PageEvidence,
    PageTrail,
    PageVerdict,
    PageWorkaround,
    Reproducer,
)


def verdict_view(recording: Recording) -> PageVerdict | None:
    """Return the verdict for the page; None if the doctor did not run or the file is damaged."""
    folder = Path(recording.path)
    found, texts = read_verdict(folder), stored_verdict(folder)
    if found is None:
        return None
    culprit = found.as_data()["culprit"]
    return PageVerdict.showing(
        found,
        culprit={name: value for name, value in culprit.items() if value},
        values=tuple(found.values),
        evidence=tuple(
            PageEvidence(item.get("what", ""), item.get("where", "")) for item in found.evidence
        ),
        notes=tuple(
            PageEvidence(note.text, note.compile and f"compile {note.compile}")
            for note in found.notes
        ),
        not_checked=tuple(found.not_checked),
        repro=found.repro and Reproducer.showing(found.repro, text=text(texts.get("repro_text"))),
        workaround=found.workaround and PageWorkaround.showing(found.workaround),
        issue=text(texts.get("issue_text")),
        trail=_trail(found.trail, recording),
    )


def _trail(found: FaultTrail | None, recording: Recording) -> PageTrail | None:
    if found is None or not found.steps:
        return None
    graphs = [(c.id, graph.key) for c in recording.compiles for graph in c.inductor]
    place = found.compile, found.graph
    return PageTrail.showing(found, graph=graphs.index(place) if place in graphs else None)
