"""Stalls that were written down during a run, as findings at its end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inductoscope.recording import values
from inductoscope.watch.live import kept_stalls


@dataclass(frozen=True)
class StallFinding:
    """The fields of `diagnose.finding.Finding`, which stands later in the order of imports."""

    title: str
    is_problem: bool
    confidence: str
    evidence: tuple[str, ...]
    advice: str
    stage: str
    source: str
    compile: str


def stall_findings(folder: Path) -> list[StallFinding]:
    """One finding for each stall of a recording; one that moved on by itself is a note."""
    return [_finding(stall) for stall in kept_stalls(folder)]


def _finding(stall: dict[str, Any]) -> StallFinding:
    judgement = values.members(stall.get("judgement"))
    moved, ended = values.members(stall.get("moved")), values.members(stall.get("ended"))
    confidence = str(judgement.get("confidence"))
    return StallFinding(
        title=_title(stall, judgement, moved),
        is_problem=not moved and not judgement.get("moves"),
        confidence=confidence if confidence in ("proven", "likely") else "unknown",
        evidence=(
            *values.texts(judgement.get("evidence")),
            *([f"--kill-stuck ended pid {ended['pids']}"] if ended.get("pids") else []),
        ),
        advice=str(judgement.get("advice") or ""),
        stage=str(stall.get("stage") or "none"),
        source=str(stall.get("source") or stall.get("function") or ""),
        compile=str(stall.get("compile") or ""),
    )


def _title(stall: dict[str, Any], judgement: dict[str, Any], moved: dict[str, Any]) -> str:
    title = str(judgement.get("title"))
    if moved:
        return f"Nothing moved for {values.real(moved.get('after')):.0f} s: {title}"
    return f"Nothing moved for {values.real(stall.get('seconds')):.0f} s or more: {title}"
