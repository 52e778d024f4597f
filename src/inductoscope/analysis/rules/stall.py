"""A program that stopped making progress.

What it finds: each time nothing happened for longer than the stage should take, with the kind of
stall, what was stuck and, for autotuning choices, what separates the stuck ones from the others.

Why it matters: by default torch waits forever and prints nothing.

Example: ptxas that never finishes on one configuration of a matrix product.

What to do: the advice depends on the kind; 'inductoscope doctor' proves it and tries workarounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from inductoscope.analysis.rules.compile_error import was_interrupted
from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Recording
from inductoscope.recording import values
from inductoscope.torch_facts import stages
from inductoscope.verdicts import Confidence


def check(recording: Recording) -> Iterator[Finding]:
    """One finding for each stall; one that resolved by itself is a note."""
    folder = Path(recording.path)
    if not any(folder.glob("stall-*.json")):
        return
    # Most runs do not stall, and importing what watches them takes longer than all other rules.
    from inductoscope.hangs.watch.live import kept_stalls

    interrupted = {c.id for c in recording.compiles if was_interrupted(c)}
    for stall in kept_stalls(folder):
        # Ctrl-C makes a program move, but resolves nothing.
        if stall.get("compile") in interrupted:
            stall = {**stall, "moved": None}
        yield _finding(stall, folder)


def _finding(stall: dict[str, Any], folder: Path) -> Finding:
    from inductoscope.hangs.choices.analysis import analyse
    from inductoscope.hangs.choices.stuck_choices import stuck_choices

    judgement = values.members(stall.get("judgement"))
    moved, ended = values.members(stall.get("moved")), values.members(stall.get("ended"))
    stage = str(stall.get("stage") or stages.NO_STAGE)
    is_problem = not moved and not judgement.get("moves")
    # Choices are compiled and awaited inside of several stages.
    choices = stuck_choices(folder) if not judgement.get("moves") else None
    return Finding(
        rule="stall",
        title=_title(stall, judgement, moved),
        is_problem=is_problem,
        confidence=_confidence(judgement),
        evidence=(
            *values.texts(judgement.get("evidence")),
            *(analyse(choices).lines if choices is not None else []),
            *([f"--kill-stuck ended pid {ended['pids']}"] if ended.get("pids") else []),
        ),
        advice=str(judgement.get("advice") or ""),
        stage=stage,
        source=str(stall.get("source") or stall.get("function") or ""),
        compile=str(stall.get("compile") or ""),
    )


def _confidence(judgement: dict[str, Any]) -> Confidence:
    said = judgement.get("confidence")
    return "proven" if said == "proven" else "likely" if said == "likely" else "unknown"


def _title(stall: dict[str, Any], judgement: dict[str, Any], moved: dict[str, Any]) -> str:
    title = str(judgement.get("title"))
    if moved:
        return f"No progress for {values.real(moved.get('after')):.0f} s: {title}"
    return f"No progress for {values.real(stall.get('seconds')):.0f} s or more: {title}"
