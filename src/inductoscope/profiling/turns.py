"""Runs variants of a program in turns, each run in its own process.

Other load of the machine changes over minutes, so the runs of variants are interleaved, and each
turn begins with a different variant. Each variant has a private cache, which its first run fills,
so that later runs cost little more than their calls.
"""

from __future__ import annotations

import ast
import contextlib
import math
import os
import subprocess
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from inductoscope.errors import ToolFailure, UsageError
from inductoscope.launch.environment import PartName, private_cache
from inductoscope.launch.program import environment_for
from inductoscope.processes.children import ChildCall, ChildLimits, run_child, start_group
from inductoscope.processes.ending import end_child
from inductoscope.profiling.orders import Orders
from inductoscope.profiling.statistics import Sample, TimeComparison, compare
from inductoscope.profiling.timings import FOLDER, CallTimes, ProcessTimes, all_calls, read_measured
from inductoscope.recording.location import create_recording
from inductoscope.wording import did_you_mean

Say = Callable[[str], None]
# The kind and the name of a function, graph or package.
Thing = tuple[str, str]

_OUTPUT = "output.txt"
_LAST_WORDS = 300


@dataclass(frozen=True)
class Variant:
    name: str
    # Settings of torch._inductor.config, and statements to execute once torch is imported.
    settings: Mapping[str, Any] = field(default_factory=dict)
    code: str = ""


@dataclass(frozen=True)
class TimedRun:
    exit_code: int | None  # None: killed by the time limit
    seconds: float
    processes: tuple[ProcessTimes, ...]
    # The end of the output, if the run failed.
    output: str = ""
    # The folder of what the processes measured.
    measured: Path = Path()
    # The recording of what was compiled, if there is one.
    recording: Path | None = None

    @property
    def not_applied(self) -> str:
        return next((each.not_applied for each in self.processes if each.not_applied), "")

    @property
    def failure(self) -> str:
        if self.exit_code == 0:
            return ""
        if self.exit_code is None:
            return "did not end in time"
        code = self.exit_code
        how = f"ended with signal {-code}" if code < 0 else f"ended with exit code {code}"
        words = self.output.strip().splitlines()
        return f"{how}: {words[-1][:200]}" if words else how

    @property
    def calls(self) -> tuple[CallTimes, ...]:
        return all_calls(self.processes)

    def seconds_in_calls(self, counts: Mapping[Thing, int]) -> float | None:
        """Return the seconds of `counts` calls of each thing, at the median time in this run.

        None if a thing was never called, or only while it was being compiled.
        """
        medians = {(c.kind, c.name): c.seconds.median for c in self.calls if c.sample}
        if not counts or not counts.keys() <= medians.keys():
            return None
        return sum(medians[key] * count for key, count in counts.items())


@dataclass(frozen=True)
class VariantRuns:
    variant: Variant
    runs: tuple[TimedRun, ...]

    @property
    def failed(self) -> tuple[TimedRun, ...]:
        return tuple(run for run in self.runs if run.exit_code != 0)

    def sample(self, counts: Mapping[Thing, int]) -> Sample:
        found = [run.seconds_in_calls(counts) for run in self.runs if run.exit_code == 0]
        return Sample(tuple(value for value in found if value is not None))


def calls_to_compare(variants: Sequence[VariantRuns]) -> dict[Thing, int]:
    """Return the things that every variant calls when warm, and their counts in the first."""
    ran = [[run for run in v.runs if run.exit_code == 0] for v in variants]
    ran = [runs for runs in ran if runs]
    if not ran:
        return {}
    counts = Counter[Thing]()
    for calls in ran[0][0].calls:
        counts[calls.kind, calls.name] += calls.count
    called = [{(c.kind, c.name) for run in runs for c in run.calls if c.count} for runs in ran]
    return {thing: count for thing, count in (+counts).items() if all(thing in c for c in called)}


def _succeeded(runs: Mapping[str, Sequence[TimedRun]], variant: Variant) -> bool:
    return runs[variant.name][-1].exit_code == 0


@dataclass
class ProgramRuns:
    """Measured runs of variants of one program, none of which is recorded."""

    command: Sequence[str]
    # Holds the private cache of each variant, and a folder for each run.
    folder: Path
    say: Say
    turns: int = 5
    # The most seconds of one run; no run is begun after `total` seconds.
    seconds: float = 600.0
    total: float = math.inf
    # The exit code of runs that are measured, beside 0: a program may fail because it is slow.
    usual_code: int = 0
    # Standard input of the program: a file, or nothing.
    stdin: Path = Path(os.devnull)
    made: int = field(default=0, init=False)
    began: float = field(default_factory=time.monotonic, init=False)

    def in_turns(
        self,
        variants: Sequence[Variant],
        turns: int,
        goes_on: Callable[[Mapping[str, Sequence[TimedRun]], Variant], bool] = _succeeded,
        profiler: PartName = "call-times",
        *,
        fills_caches: bool = False,
        is_cold: bool = False,
    ) -> tuple[VariantRuns, ...]:
        """Run every variant `turns` times.

        After each run `goes_on` decides, by the runs so far, whether its variant is run again. If
        it is the first variant that does not go on, all runs stop, because the others are compared
        with it. With `fills_caches`, each variant gets an additional first run that fills its
        cache, unless that exists already; with `is_cold`, every run has an empty cache.
        """
        runs: dict[str, list[TimedRun]] = {variant.name: [] for variant in variants}
        going = list(variants)
        first_turn = 0 if fills_caches else 1
        for turn in range(first_turn, turns + 1):
            # The first turn begins with the first variant, each with a different one.
            shift = (turn - first_turn) % max(1, len(going))
            for variant in (*going[shift:], *going[:shift]):
                is_filled = not turn and self._cache_of(variant).exists()
                if variant not in going or is_filled or self._is_time_up:
                    continue
                self.say(f"{variant.name}: {f'run {turn} of {turns}' if turn else 'compiling'}")
                run = self.run_once(variant, profiler, is_cold=is_cold)
                if turn or run.exit_code != 0:
                    runs[variant.name].append(run)
                    if not goes_on(runs, variant):
                        is_first = variant is variants[0]
                        going = [] if is_first else [each for each in going if each is not variant]
        return tuple(VariantRuns(variant, tuple(runs[variant.name])) for variant in variants)

    @property
    def _is_time_up(self) -> bool:
        return time.monotonic() > self.began + self.total

    def _cache_of(self, variant: Variant) -> Path:
        return self.folder / f"cache-{zlib.crc32(variant.name.encode()):08x}"

    def run_once(
        self, variant: Variant, profiler: PartName = "call-times", *, is_cold: bool = False
    ) -> TimedRun:
        """Run the program once and measure it, with the variant's cache or an empty one."""
        self.made += 1
        folder = self.folder / f"run-{self.made}"
        folder.mkdir(parents=True)
        cache = folder / "cache" if is_cold else self._cache_of(variant)
        # Later runs take what they need from the cache, and compile nothing.
        records = profiler == "alternate" and not cache.exists()
        orders = Orders(records, settings=variant.settings, code=variant.code)
        environment = {
            **environment_for(folder, os.environ, fresh=False),
            **private_cache(cache),
            **orders.environment(profiler),
        }
        if records:
            create_recording(self.command, output=folder)
        started = time.monotonic()
        with (folder / _OUTPUT).open("wb") as output, self.stdin.open("rb") as read:
            child = start_group(self.command, environment=environment, stdin=read, stdout=output)
            try:
                code: int | None = child.wait(self.seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                end_child(child)
        took, measured = time.monotonic() - started, folder / FOLDER
        processes = read_measured(ProcessTimes, measured)
        words, recording = _last_words(folder, code), folder if records else None
        code = 0 if code == self.usual_code else code
        return TimedRun(code, took, processes, words, measured, recording)


def _last_words(folder: Path, code: int | None) -> str:
    if code == 0:
        return ""
    with contextlib.suppress(OSError):
        return (folder / _OUTPUT).read_bytes()[-_LAST_WORDS:].decode("utf-8", "replace").strip()
    return ""


# --- trials of settings ---------------------------------------------------------------------------

BASE = Variant("as it is")


@dataclass(frozen=True)
class SettingTrial:
    """One setting: the time of the program's compiled calls with and without it."""

    variant: Variant
    # Seconds of one compiled call, one value per run: the medians of all things, weighted by how
    # often the program calls each.
    seconds: Sample
    comparison: TimeComparison | None
    runs: int
    # Why there is no result, or a note on the result.
    note: str = ""


@dataclass(frozen=True)
class SettingTrials:
    base: SettingTrial
    trials: tuple[SettingTrial, ...]
    # The timed things (kind and name), and how often the program calls each.
    calls: tuple[tuple[str, str, int], ...]
    # The failed run of the unchanged program, without which nothing is compared.
    failed: TimedRun | None = None


def try_settings(runs: ProgramRuns, variants: Sequence[Variant]) -> SettingTrials:
    """Run the program unchanged and with each setting, in turns, and compare."""
    done = runs.in_turns([BASE, *variants], runs.turns, fills_caches=True)
    base, *others = done
    failed = base.failed[0] if base.failed else None
    if failed is not None and failed.exit_code is None:
        seconds = f"{runs.seconds:g} s"
        raise ToolFailure(
            f"the program {failed.failure}. Give it more than {seconds}: --time-limit."
        )
    counts = {} if failed else calls_to_compare(done)
    first = _trial(base, counts, None)
    trials = [_trial(other, counts, first.seconds) for other in others]
    if failed is not None:
        why = "it is not compared, because the program fails as it is"
        trials = [replace(trial, note=why) for trial in trials]
    return SettingTrials(
        first,
        tuple(trials),
        tuple((kind, name, count) for (kind, name), count in counts.items()),
        failed,
    )


def _trial(runs: VariantRuns, counts: Mapping[Thing, int], base: Sample | None) -> SettingTrial:
    number = sum(counts.values())
    sample = Sample(tuple(value / number for value in runs.sample(counts).values))
    refused = next((run.not_applied for run in runs.runs if run.not_applied), "")
    is_compared = base is not None and sample.count and not refused
    comparison = compare(base, sample) if base is not None and is_compared else None
    note = _note(runs, sample, refused)
    return SettingTrial(runs.variant, sample, comparison, len(runs.runs), note)


def _note(runs: VariantRuns, sample: Sample, refused: str) -> str:
    if runs.failed:
        return f"{'the program' if runs.variant is BASE else 'it'} {runs.failed[0].failure}"
    if refused:
        return f"it could not be applied: {refused}"
    if not sample.count:
        return "no compiled call was made that neither compiled nor warmed up"
    for process in runs.runs[0].processes:
        for name, now in process.settings.items():
            if now != repr(runs.variant.settings.get(name)):
                return f"{name} was {now} when the program ended: the program sets it itself"
    return "its runs vary too much to say much" if sample.is_noisy else ""


# --- settings as a user types them ----------------------------------------------------------------

_SECONDS = 120.0
_WHERE = "torch._inductor.config"


def known_settings() -> Mapping[str, Mapping[str, Any]]:
    call = ChildCall("inductoscope.inside.profiling.installation:name_settings")
    ended = run_child(call, ChildLimits(_SECONDS, _SECONDS))
    answer = ended.find("settings")
    if answer is None:
        raise ToolFailure(f"torch does not say what its settings are: {ended.problem[:2000]}")
    names: Mapping[str, Mapping[str, Any]] = answer["names"]
    return names


def variants_of(texts: Sequence[str], known: Mapping[str, Mapping[str, Any]]) -> list[Variant]:
    """Parse one variant from each text; several settings are separated by commas."""
    found: list[Variant] = []
    for text in dict.fromkeys(texts):
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if not parts:
            raise UsageError("--try needs a setting, as in --try max_autotune or cpp.simdlen=1.")
        found.append(Variant(text, dict(read_setting(part, known) for part in parts)))
    return found


def read_setting(text: str, known: Mapping[str, Mapping[str, Any]]) -> tuple[str, Any]:
    name, equals, written = (part.strip() for part in text.partition("="))
    name = name.removeprefix(f"{_WHERE}.")
    if name not in known:
        raise UsageError(f"{_WHERE} has no setting {name!r}.{did_you_mean(name, known)}")
    if "type" in known[name]:
        raise UsageError(
            f"--try {name}: its value is a {known[name]['type']}, which cannot be typed here."
        )
    default = known[name].get("default")
    if not equals:
        if not isinstance(default, bool):
            raise UsageError(f"--try {name} needs a value, as in --try {name}=1.")
        return name, True
    value = _value(written)
    if isinstance(default, bool) and not isinstance(value, bool):
        raise UsageError(f"--try {name}={written}: the value has to be True or False.")
    if isinstance(default, (int, float)) and isinstance(value, str):
        raise UsageError(f"--try {name}={written}: the value has to be a number.")
    return name, value


def _value(written: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if written.lower() in words:
        return words[written.lower()]
    try:
        value = ast.literal_eval(written)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return written
    return value if isinstance(value, (bool, int, float, str, type(None))) else written
