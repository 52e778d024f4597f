"""Conclusions from the runs of the doctor and of torch's tools on the same scripts."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.measurement import Measurement, Runs, add_up
from bench.torch_tools import Measured

# torch's tools with a process for each run, as they are when nothing else is asked of them, and
# without, as fast as they can be.
WAYS = {
    "by default": {"bisector": "bisector by command", "minifier": "minifier by default"},
    "in one process": {"bisector": "bisector", "minifier": "minifier"},
}
BEST = "in one process"


@dataclass(frozen=True)
class Comparison:
    """Steps of the doctor, each with the tool of torch that it is compared with."""

    what: str
    beside: tuple[str, ...]
    goal: float | None = None


BOTH = ("bisector", "minifier")
PROOF, PROCESSOR = "culprit and reproducer", "processor seconds"
COMPARISONS = (
    Comparison("culprit", BOTH, 1 / 25),
    Comparison("culprit", ("bisector",)),
    Comparison(PROOF, BOTH, 1 / 12),
    # Of everything, also of what comes after the proof.
    Comparison(PROCESSOR, BOTH),
)


@dataclass(frozen=True)
class ToolRun:
    """One tool on one script; its place tells apart the doctor's runs of a turn."""

    script: str
    turn: int
    place: int
    tool: str
    measured: Measured

    @property
    def key(self) -> tuple[str, int, int]:
        return self.script, self.turn, self.place


def run_from(data: dict[str, Any]) -> ToolRun:
    return ToolRun(**{**data, "measured": Measured(**data["measured"])})


def summarize(runs: Sequence[ToolRun], scripts: int) -> list[Measurement]:
    """All `scripts` together, then each, beside torch's tools run in both ways."""
    names = [*dict.fromkeys(run.script for run in runs)]
    found = []
    for way in WAYS if names else ():
        for comparison in COMPARISONS:
            each = [_compare(name, runs, comparison, way) for name in names]
            if len(each) == scripts or comparison.goal is not None:
                whole = _add_up(comparison, each, scripts)
                found.append(replace(whole, counts=way == BEST))
            found += each
    return found


def _add_up(comparison: Comparison, each: Sequence[Measurement], scripts: int) -> Measurement:
    """Those for which torch's tools have a result. A few scripts say nothing of all."""
    if len(each) < scripts:
        name = f"{comparison.what}: all of {scripts} scripts"
        why = f"{len(each)} of {scripts} scripts were run"
        return replace(each[0], name=name, ours=(), peer=(), why_no_peer=why, note="")
    compared = [m for m in each if any(seconds is not None for seconds in m.peer)] or each
    return add_up(f"{comparison.what}: all of {len(compared)} scripts", compared)


def _compare(script: str, runs: Sequence[ToolRun], comparison: Comparison, way: str) -> Measurement:
    """One value for each turn: the doctor's runs in it share what they are compared with."""
    mine = [run for run in runs if run.script == script]
    turns = sorted({run.turn for run in mine if run.tool == "doctor"})
    tools = tuple(WAYS[way][name] for name in comparison.beside)
    theirs = [_theirs(comparison.what, mine, turn, tools) for turn in turns]
    ours = tuple(_ours(comparison.what, mine, turn) for turn in turns)
    failed = [turn for turn, seconds in zip(turns, ours, strict=True) if seconds is None]
    said = [r.measured.said for r in mine if r.tool == "doctor" and r.turn in failed]
    return Measurement(
        name=f"{comparison.what}: {script}",
        unit="CPU s" if comparison.what == PROCESSOR else "s",
        ours=ours,
        goal=comparison.goal,
        compared_with=f"{' and '.join(comparison.beside)}, {way}",
        peer=tuple(seconds for seconds, _ in theirs),
        why_no_peer="; ".join(dict.fromkeys(why for _, why in theirs if why)),
        why_failed="; ".join(dict.fromkeys(said)),
        note=_describe(mine, tools) if comparison.what == PROOF else "",
        counts=False,
    )


def _ours(what: str, runs: Sequence[ToolRun], turn: int) -> float | None:
    """The middle of the doctor's runs in a turn; None if one of them did not get there."""
    doctors = [run.measured for run in runs if run.tool == "doctor" and run.turn == turn]
    found: Runs = tuple(_seconds_until(what, measured) for measured in doctors)
    known = [seconds for seconds in found if seconds is not None]
    return statistics.median(known) if len(known) == len(found) else None


def _seconds_until(what: str, measured: Measured) -> float | None:
    if what == PROCESSOR:
        return measured.cpu_seconds
    return measured.culprit_seconds if what == "culprit" else measured.proof_seconds


def _theirs(
    what: str, runs: Sequence[ToolRun], turn: int, tools: tuple[str, ...]
) -> tuple[float | None, str]:
    """Time of both together; None if one of them has no result, and which."""
    found = [run for run in runs if run.turn == turn and run.tool in tools]
    if len(found) < len(tools):
        return None, "not run"
    without = [run for run in found if run.measured.ended and not _has_result(run.measured)]
    if without:
        return None, "; ".join(f"{run.tool}: {run.measured.said[-100:]}" for run in without)
    if what == PROCESSOR:
        return sum(run.measured.cpu_seconds or 0.0 for run in found), ""
    return sum(run.measured.seconds for run in found), ""


def _has_result(measured: Measured) -> bool:
    """A bisector's answer, right or wrong, or a reproducer that fails."""
    return measured.verified is True or measured.said.startswith("BisectionResult")


def _describe(runs: Sequence[ToolRun], tools: tuple[str, ...]) -> str:
    """Limits of the figures."""
    ways = ("plain", "doctor", *tools)
    told = {tool: [run.measured for run in runs if run.tool == tool] for tool in ways}
    return "; ".join(
        f"{_NAMES.get(tool, tool)} {_tell(all_)}" for tool, all_ in told.items() if all_
    )


_NAMES = {"plain": "the script alone", "doctor": "the whole examination"}


def _tell(runs: Sequence[Measured]) -> str:
    """How long it took in all, and how it ended."""
    seconds = " and ".join(f"{m.seconds:.0f} s" for m in runs)
    nodes = sorted({m.nodes for m in runs if m.nodes is not None})
    return "".join(
        (
            seconds,
            "" if all(m.ended for m in runs) else " (ended by the limit)",
            " (names another culprit)" if any(m.named is False for m in runs) else "",
            f" (nodes left: {', '.join(map(str, nodes))})" if nodes else "",
        )
    )
