"""Runs variants of a program in turns, each run in a process of its own.

What else the machine does changes over minutes, so variants are never run one after the other but
in turns, and each turn begins with another one. Each variant has a private cache: its first run
compiles, and later ones take what it compiled, so that a run costs little more than its calls.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inductoscope.capture import private_cache
from inductoscope.capture.launch import environment_for
from inductoscope.processes.ending import end_child
from inductoscope.processes.limited import start_group
from inductoscope.profiling.orders import AGENT, Orders
from inductoscope.profiling.statistics import Sample
from inductoscope.profiling.timings import FOLDER, CallTimes, ProcessTimes, all_calls, read_times

Say = Callable[[str], None]

_OUTPUT = "output.txt"
_LAST_WORDS = 300


@dataclass(frozen=True)
class Variant:
    """One way to run the program: a name, and what is different."""

    name: str
    # Settings of torch._inductor.config, statements to execute once torch is imported, variables.
    settings: Mapping[str, Any] = field(default_factory=dict)
    code: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TimedRun:
    """One run of one variant."""

    exit_code: int | None  # None: it was ended because its time was up
    seconds: float
    processes: tuple[ProcessTimes, ...]
    # The end of what a run that failed printed.
    output: str = ""

    @property
    def not_applied(self) -> str:
        """Why the change of this variant could not be made; empty if it was made."""
        return next((each.not_applied for each in self.processes if each.not_applied), "")

    @property
    def calls(self) -> tuple[CallTimes, ...]:
        """The compiled calls of all its processes."""
        return all_calls(self.processes)

    def seconds_in_calls(self, counts: Mapping[tuple[str, str], int]) -> float | None:
        """Seconds of so many calls of each thing, each as long as the median of this run.

        None if one of them was never called, or only while it was compiled.
        """
        medians = {(c.kind, c.name): c.seconds.median for c in self.calls if c.sample}
        if not counts or not counts.keys() <= medians.keys():
            return None
        return sum(medians[key] * count for key, count in counts.items())


@dataclass(frozen=True)
class VariantRuns:
    """All runs of one variant, in their order."""

    variant: Variant
    runs: tuple[TimedRun, ...]

    @property
    def failed(self) -> tuple[TimedRun, ...]:
        """Runs that did not end well."""
        return tuple(run for run in self.runs if run.exit_code != 0)

    def sample(self, counts: Mapping[tuple[str, str], int]) -> Sample:
        """One number per run: seconds of so many calls of each thing."""
        found = [run.seconds_in_calls(counts) for run in self.runs if run.exit_code == 0]
        return Sample(tuple(value for value in found if value is not None))


def calls_to_compare(variants: Sequence[VariantRuns]) -> dict[tuple[str, str], int]:
    """What every variant calls after its warm-up, and how often the first one does."""
    ran = [v for v in variants if any(run.exit_code == 0 for run in v.runs)]
    if not ran:
        return {}
    counts: dict[tuple[str, str], int] = {}
    for calls in next(run for run in ran[0].runs if run.exit_code == 0).calls:
        if calls.count:
            counts[calls.kind, calls.name] = counts.get((calls.kind, calls.name), 0) + calls.count
    for variant in ran[1:]:
        called = {(c.kind, c.name) for run in variant.runs for c in run.calls if c.count}
        counts = {key: count for key, count in counts.items() if key in called}
    return counts


def run_in_turns(
    command: Sequence[str],
    variants: Sequence[Variant],
    folder: Path,
    *,
    turns: int,
    seconds: float,
    say: Say,
    caches: Mapping[str, Path] | None = None,
) -> tuple[VariantRuns, ...]:
    """Run every variant `turns` times; a run may take so many seconds.

    A variant that fails is not run again. Nothing is if the first one fails: all are compared with
    it. The first run of each is one more, which compiles.
    `caches` has those of variants that were compiled before, by their names.
    """
    runs: dict[str, list[TimedRun]] = {variant.name: [] for variant in variants}
    going = list(variants)
    for turn in range(turns + 1):
        shift = turn % max(1, len(going))
        for variant in (*going[shift:], *going[:shift]):
            if not turn and variant.name in (caches or {}):
                continue
            say(f"{variant.name}: {'compiling' if not turn else f'run {turn} of {turns}'}")
            place = folder / f"{_number(variants, variant)}-{turn}"
            cache = (caches or {}).get(variant.name) or _cache(folder, variants, variant)
            run = run_once(command, variant, place, cache=cache, seconds=seconds)
            if turn or run.exit_code != 0:
                runs[variant.name].append(run)
            if run.exit_code != 0:
                is_first = variant is variants[0]
                going = [] if is_first else [other for other in going if other is not variant]
            if not going:
                break
    return tuple(VariantRuns(variant, tuple(runs[variant.name])) for variant in variants)


def _number(variants: Sequence[Variant], variant: Variant) -> int:
    return next(n for n, other in enumerate(variants) if other is variant)


def _cache(folder: Path, variants: Sequence[Variant], variant: Variant) -> Path:
    return folder / f"cache-{_number(variants, variant)}"


def run_once(
    command: Sequence[str],
    variant: Variant,
    folder: Path,
    *,
    cache: Path,
    seconds: float,
    agent: str = AGENT,
    stdin: Path | None = None,
    keeps_inputs: bool = False,
) -> TimedRun:
    """Run the program once, with its compiled calls timed by `agent`. Nothing is recorded.

    It reads what `stdin` holds, and nothing without it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    orders = Orders(settings=variant.settings, code=variant.code, keeps_inputs=keeps_inputs)
    environment = {
        **environment_for(folder, os.environ, fresh=False),
        **private_cache.environment(cache),
        **orders.environment(agent),
        **variant.variables,
    }
    started = time.monotonic()
    with (folder / _OUTPUT).open("wb") as output, (stdin or Path(os.devnull)).open("rb") as read:
        child = start_group(command, environment=environment, stdin=read, stdout=output)
        try:
            code: int | None = child.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end_child(child)
    took = time.monotonic() - started
    return TimedRun(code, took, read_times(folder / FOLDER), _last_words(folder, code))


def _last_words(folder: Path, code: int | None) -> str:
    if code == 0:
        return ""
    with contextlib.suppress(OSError):
        return (folder / _OUTPUT).read_bytes()[-_LAST_WORDS:].decode("utf-8", "replace").strip()
    return ""
