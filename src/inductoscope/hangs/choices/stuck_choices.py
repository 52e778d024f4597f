"""The autotuning choices that a program waits for, from its recording."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from inductoscope.hangs.choices.suspects import StuckChoices, choices_of
from inductoscope.hangs.logs.lines import Origin, Program
from inductoscope.hangs.logs.program import AutotuneFold, Group
from inductoscope.recording.events import (
    AutotuneStart,
    BenchmarkEnd,
    BenchmarkStart,
    Entry,
    Event,
    TorchLogged,
)
from inductoscope.recording.reader import open_recording
from inductoscope.torch_facts.log_choices import Choice, parse_choice

_ABOUT_CHOICES = (AutotuneStart, BenchmarkStart, BenchmarkEnd, TorchLogged)


def stuck_choices(folder: Path) -> StuckChoices | None:
    """Return the choices a recorded program was waiting for; None if it waited for none."""
    streams: dict[str, list[Entry[Event]]] = {}
    for entry in open_recording(folder).entries():
        if isinstance(entry.event, _ABOUT_CHOICES):
            streams.setdefault(entry.stream, []).append(entry)
    for entries in streams.values():
        # Choices are precompiled, or else compiled by the benchmark.
        groups = [group for group in _groups(entries) if group.stuck]
        found = choices_of(groups[-1]) if groups else _timed(entries)
        if found is not None:
            return found
    return None


def compiled_choices(folder: Path) -> list[Choice]:
    groups = _groups(open_recording(folder).entries())
    return [state.choice for group in groups for state in group.finished]


def _groups(entries: Iterable[Entry[Event]]) -> list[Group]:
    fold = AutotuneFold()
    for number, entry in enumerate(entries):
        event = entry.event
        if isinstance(event, TorchLogged):
            fold.take(event.text, Origin(Program(entry.stream), "", number, "", event.compile))
    return fold.groups


def _timed(entries: list[Entry[Event]]) -> StuckChoices | None:
    """Return the choice being benchmarked: Python up to 3.11.8 compiles and times one by one."""
    begun: BenchmarkStart | None = None
    since = 0.0
    finished: dict[str, float] = {}
    for entry in entries:
        event = entry.event
        if isinstance(event, AutotuneStart):
            finished.clear()
        elif isinstance(event, BenchmarkStart):
            begun, since = event, entry.time
        elif isinstance(event, BenchmarkEnd) and begun is not None:
            if not event.error:
                finished[event.text] = entry.time - since
            begun = None
    if begun is None:
        return None
    choice = parse_choice(begun.text)
    return StuckChoices(
        begun.compile,
        "",
        (choice,),
        tuple(parse_choice(text) for text in finished if parse_choice(text).kind == choice.kind),
        longest=max(finished.values(), default=0.0),
        while_timed=True,
    )
