"""What the first view says of the run: the program, findings, what is missing, seconds by stage."""

from __future__ import annotations

import time

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Recording
from inductoscope.model.target import left_out, target_notes
from inductoscope.recording.values import texts
from inductoscope.views.explain import STAGES, stage_summary
from inductoscope.views.page.contract import PageFinding, PageProgram, Severity, StageTime
from inductoscope.views.report.summary import torch_version
from inductoscope.vocabulary.frames import arrows


def program(recording: Recording, *, live: bool) -> PageProgram:
    """What ran, and how it ended."""
    return PageProgram(
        command=" ".join(texts(recording.manifest.get("command"))),
        torch=torch_version(recording),
        python=next((p.python for p in recording.processes if p.python), ""),
        started=_started(recording),
        seconds=recording.ending.seconds if recording.ending else None,
        ending=_ending(recording, live=live),
    )


def title(recording: Recording) -> str:
    """What the page is called."""
    words = texts(recording.manifest.get("command"))
    scripts = [word for word in words if word.endswith(".py")]
    return (scripts or list(words[-1:]) or ["recording"])[0].rpartition("/")[2]


def _started(recording: Recording) -> str:
    created = recording.manifest.get("created")
    if not isinstance(created, (int, float)):
        return ""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(created))
    except (OverflowError, ValueError, OSError):
        return ""


def _ending(recording: Recording, *, live: bool) -> str:
    ending = recording.ending
    if recording.manifest.get("recompiled_from"):
        return "recompiled from recorded graphs"
    if ending is None:
        return "none so far" if live else "the recording has no end"
    return f"killed by signal {ending.signal}" if ending.signal else f"exit code {ending.exit_code}"


def _told(finding: Finding) -> tuple[str, ...]:
    """The line and how the program got there, then how it is known."""
    stack = arrows(finding.stack) if len(finding.stack) > 1 else ""
    return (*filter(None, (finding.code, stack)), *finding.evidence)


def finding_view(finding: Finding) -> PageFinding:
    """A finding as the page has it."""
    return PageFinding(
        rule=finding.rule,
        title=finding.title,
        severity=_severity(finding),
        confidence=finding.confidence,
        text="\n".join(_told(finding)),
        place=finding.source,
        what_to_do=finding.advice,
    )


# Problems that cost time but keep the result correct.
_SLOW = ("graph_breaks", "recompiles")


def _severity(finding: Finding) -> Severity:
    if not finding.is_problem:
        return "note"
    return "warning" if finding.rule in _SLOW else "error"


_MOST_DAMAGE = 20


def notes(recording: Recording) -> tuple[str, ...]:
    """What is missing, and why."""
    notes = [f"{where}: {what}" for where, what in recording.damage[:_MOST_DAMAGE]]
    if len(recording.damage) > _MOST_DAMAGE:
        notes.append(f"{len(recording.damage) - _MOST_DAMAGE} more places are damaged.")
    for process in recording.processes:
        notes += [f"View off: {view}" for view in process.views_off]
        notes += [f"A hook failed: {error}" for error in process.hook_errors]
        if process.stopped:
            notes.append(f"Process {process.pid} stopped recording: {process.stopped}")
    notes += [f"Compile {name} was skipped: {why}" for name, why in left_out(recording)]
    notes += [f"Compile {name}: {text}" for name, text in target_notes(recording)]
    cached = [graph.key for graph in recording.graphs if graph.cached]
    if cached:
        notes.append(
            f"{', '.join(cached[:8])} came from a cache: the stages before the kernels did not "
            "run. 'inductoscope run --fresh' recompiles everything, in a private cache."
        )
    cut_off = [graph.key for graph in recording.graphs if not graph.finished]
    if cut_off and recording.ending is not None:
        notes.append(
            f"{', '.join(cut_off[:8])}: the compile did not get to its end, so there is nothing of "
            "the stages that would have come next."
        )
    if recording.unknown_events:
        kinds = ", ".join(recording.unknown_events)
        notes.append(f"Skipped events of a newer version: {kinds}.")
    return tuple(dict.fromkeys(notes))


def stages(recording: Recording) -> tuple[StageTime, ...]:
    """How long each stage took, in the order of the stages."""
    seconds: dict[str, float] = {}
    for compile_ in recording.compiles:
        for stage, spent in compile_.stage_seconds.items():
            seconds[stage] = seconds.get(stage, 0.0) + spent
    known = [stage.name for stage in STAGES if stage.name in seconds]
    return tuple(
        StageTime(name, round(seconds[name], 4), stage_summary(name))
        for name in dict.fromkeys([*known, *seconds])
    )
