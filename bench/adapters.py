"""Reads what a benchmark has written with --json as measurements.

A benchmark either writes measurements itself, or has an adapter in ADAPTERS here.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from bench import capture, logs, report
from bench.measurement import Measurement, Runs, read_measurements

Found = dict[str, Any]

NOT_INSTALLED = "not installed"
# Exit codes of inductoscope: nothing is wrong, or something was found.
ANSWERED = (0, 1)


def measurements_of(bench: str, found: Found) -> list[Measurement]:
    """What a benchmark has found."""
    if "measurements" in found:
        return read_measurements(found)
    return ADAPTERS[bench](found)


def of_logs(found: Found) -> list[Measurement]:
    """Reading with one core and with all; the trace beside tlparse."""
    peers = {way: runs for way, runs in found.items() if way.startswith(logs.TLPARSE)}
    ours = {way: runs for way, runs in found.items() if way not in peers}
    measurements: list[Measurement] = []
    for way, runs in ours.items():
        theirs = (peers or {logs.TLPARSE: []}) if way.startswith("trace") else {"": []}
        for peer, peer_runs in theirs.items():
            measurements += _read_log(way, runs, peer, peer_runs)
    return measurements


_READ = (
    ("seconds", "s", "time"),
    ("cpu_seconds", "CPU s", "processor time"),
    ("megabytes", "MB", "memory"),
)


def _read_log(
    way: str, runs: Sequence[Found], peer: str, theirs: Sequence[Found]
) -> Iterator[Measurement]:
    """Time, processor time and memory. The goal for time is about all cores."""
    goals: dict[str, float] = dict(logs.GOALS) if peer else {}
    if way.endswith("1 core"):
        goals.pop("seconds", None)
    for key, unit, what in _READ:
        yield Measurement(
            name=f"{way}: {what}",
            unit=unit,
            ours=_column(runs, key, ANSWERED),
            goal=goals.get(key),
            compared_with=peer.removeprefix("trace, "),
            peer=_column(theirs, key, (0,)),
            why_no_peer=_why_failed(theirs, (0,)) if theirs else NOT_INSTALLED,
            why_failed=_why_failed(runs, ANSWERED),
        )


def _column(runs: Iterable[Found], key: str, fine: Sequence[int]) -> Runs:
    return tuple(run[key] if run["exit_code"] in fine else None for run in runs)


def _why_failed(runs: Iterable[Found], fine: Sequence[int]) -> str:
    codes = sorted({run["exit_code"] for run in runs if run["exit_code"] not in fine})
    return f"exit code {', '.join(map(str, codes))}" if codes else ""


def of_report(found: Found) -> list[Measurement]:
    """Building the page beside tlparse, opening it, and going to the view that takes longest."""
    goals = found.get("goals", report.GOALS)
    name = f"building the page of {found['kernels']:,} kernels"
    built = _built(name, "s", found["build seconds"], goals["build"])
    computed = _built(name, "CPU s", found.get("build CPU seconds") or {}, None)
    switches = found.get("switch seconds") or {}
    slowest = max(switches, key=lambda view: statistics.median(switches[view]), default="")
    why = found.get("browser missing") or "no browser"
    views = [("its first view", found["first view seconds"], "first view")]
    views += [(f"the slowest switch, to {slowest}", switches[slowest], "switch")] if slowest else []
    sizes = [("page bytes", "the page"), ("tlparse bytes", "tlparse's pages")]
    return [
        *built,
        *computed,
        *(Measurement(n, "s", (*(s or ()),), goals[g], why_failed=why) for n, s, g in views),
        *(Measurement(n, "MB", (found[key] / 1e6,)) for key, n in sizes if found[key]),
    ]


def _built(
    name: str, unit: str, seconds: dict[str, list[float | None]], goal: float | None
) -> list[Measurement]:
    """Ours beside each way of running tlparse."""
    peers = {way: runs for way, runs in seconds.items() if way != "inductoscope"}
    return [
        Measurement(
            name=name,
            unit=unit,
            ours=(*seconds["inductoscope"],),
            goal=goal,
            compared_with=peer,
            peer=(*runs,),
            why_no_peer="failed" if runs else "not installed, or failed",
        )
        for peer, runs in peers.items()
    ]


def of_capture(found: Found) -> list[Measurement]:
    """Recorded runs beside plain ones, and beside torch's own tracing for comparison."""
    compared = [
        Measurement(
            name=f"{model}: {name}, {mode}",
            unit="CPU s",
            ours=(*ours,),
            goal=capture.GOALS[what] if mode == "recorded" else None,
            compared_with="the plain run",
            peer=(*runs["plain"][: len(ours)],),
        )
        for what, name in (("compile", "compile"), ("calls", "a later call"))
        for model, runs in found.get(what, {}).items()
        for mode, ours in runs.items()
        if mode != "plain" and ours
    ]
    sizes = [
        Measurement(f"{model}: recording, for each node", "bytes", (size["bytes"] / size["nodes"],))
        for model, size in found.get("recordings", {}).items()
    ]
    return compared + sizes


def of_hang(found: Found) -> list[Measurement]:
    """Programs that hang: until that is believed, and from then to a proven verdict."""
    measurements = []
    for name, runs in found["runs"].items():
        unproven = [run["said"] for run in runs if not _is_proven(run)]
        verdicts = tuple(run["verdict"] if _is_proven(run) else None for run in runs)
        beliefs = tuple(run["belief"] for run in runs)
        why = "; ".join(dict.fromkeys(unproven))
        measurements += [
            Measurement(
                f"{name}: from the belief to the proof", "s", verdicts, found["goal_seconds"],
                why_failed=why,
            ),
            Measurement(f"{name}: until a hang is believed", "s", beliefs, why_failed="never"),
            Measurement(f"{name}: all processes", "CPU s", tuple(run["cpu"] for run in runs)),
        ]  # fmt: skip
    return measurements


def of_cli(found: Found) -> list[Measurement]:
    """Commands by the clock, and in processor seconds beside a Python that does nothing."""
    runs, goals = dict(found["runs"]), found["goals"]
    bare = "python -c pass"
    nothing = _column(runs.pop(bare), "cpu_seconds", (0,))
    measurements = []
    for what, each in runs.items():
        name = f"{what} of {found['kernels']:,} kernels" if what == "show" else what
        why = _why_failed(each, ANSWERED)
        seconds = _column(each, "seconds", ANSWERED)
        computed = _column(each, "cpu_seconds", ANSWERED)
        measurements += [
            Measurement(name, "s", seconds, goals.get(what), why_failed=why),
            Measurement(name, "CPU s", computed, compared_with=bare, peer=nothing, why_failed=why),
        ]
    return measurements


def _is_proven(run: Found) -> bool:
    return bool(run["named"] and run["verified"])


ADAPTERS: dict[str, Callable[[Found], list[Measurement]]] = {
    "hang": of_hang,
    "report": of_report,
    "capture": of_capture,
    "logs": of_logs,
    "cli": of_cli,
}
