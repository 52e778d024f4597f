"""Tries to make a pair fuse: recompiles the recorded graph with other settings.

The original settings come first: only a refusal that can be reproduced can be seen to go away.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inductoscope.analysis.fusion.decisions import fusion_settings, settings_text
from inductoscope.analysis.fusion.ledger import FUSED, LedgerRow, graph_ledger
from inductoscope.errors import ToolFailure
from inductoscope.model.entities import Recording
from inductoscope.model.fold import load
from inductoscope.model.target import recording_target
from inductoscope.targets.recompile import recompile
from inductoscope.torch_facts.fusion_reasons import FUSION_SETTINGS
from inductoscope.torch_facts.gpu_targets import parse_target

Say = Callable[[str], None]

# Settings of the recorded program that the trials keep; a recording from elsewhere must not set
# anything else. Trials do not time anything.
_KEPT = tuple(name for name in FUSION_SETTINGS if name != "benchmark_fusion")


@dataclass(frozen=True)
class Trial:
    """A compile with changed settings, and the pair's outcome."""

    settings: Mapping[str, Any]
    # fused, refused, never tried, or empty if the pair was not found again.
    outcome: str
    reason: str
    kernels: int | None = None
    error: str = ""

    @property
    def fused(self) -> bool:
        return self.outcome == FUSED


def try_settings(
    recording: Recording,
    row: LedgerRow,
    *,
    seconds: float = 1800.0,
    say: Say = lambda text: None,
) -> Iterator[Trial]:
    """Compile with the original settings, then with each that might help; stop when one does.

    The first trial changes nothing. If its outcome differs from the recorded one, it is the last.
    """
    only = _only_compile(recording, row.graph)
    for settings in ({}, *row.tries):
        say(f"compiling with {settings_text(settings)}")
        trial = _trial(only, row, settings, seconds, say)
        yield trial
        if trial.fused or (not settings and trial.outcome != row.outcome):
            return


def _only_compile(recording: Recording, key: str) -> Recording:
    chosen = [c for c in recording.compiles if any(graph.key == key for graph in c.inductor)]
    return replace(recording, compiles=tuple(chosen[:1]))


def _trial(
    recording: Recording,
    row: LedgerRow,
    settings: Mapping[str, Any],
    seconds: float,
    say: Say,
) -> Trial:
    # A graph compiled for a missing device is compiled for that device again.
    target = recording_target(recording)
    with tempfile.TemporaryDirectory(prefix="inductoscope-fusion-") as folder:
        try:
            path = recompile(
                recording,
                target=parse_target(target) if target else None,
                settings={**_kept(recording, row.graph), **settings},
                into=Path(folder, "recording"),
                seconds=seconds,
                say=say,
            )
        except ToolFailure as error:
            return Trial(settings, "", "", error=str(error))
        return _judge(load(path), row, settings)


def _kept(recording: Recording, key: str) -> dict[str, Any]:
    """Return the recorded run's settings that affect fusion."""
    found = next((fusion_settings(g) for g in recording.graphs if g.key == key), {})
    return {name: found[name] for name in _KEPT if isinstance(found.get(name), (bool, int, float))}


def _judge(again: Recording, row: LedgerRow, settings: Mapping[str, Any]) -> Trial:
    """Return the pair's outcome in the new recording; nodes are matched by what they compute."""
    for compile_ in again.compiles:
        for graph in compile_.inductor:
            if graph.phase != row.graph.partition(" ")[2] and graph.key != row.graph:
                continue
            for other in graph_ledger(again, compile_, graph):
                if _computes(row) == _computes(other):
                    kernels = len(graph.kernels) or None
                    return Trial(settings, other.outcome, other.reason, kernels)
    error = "the new compile has different nodes, and this pair is not among them"
    if not again.graphs:
        error = next((e.message for c in again.compiles for e in c.errors), "nothing was compiled")
    return Trial(settings, "", "", error=error)


def _computes(row: LedgerRow) -> tuple[tuple[str, ...], ...]:
    return row.first_operations, row.second_operations
