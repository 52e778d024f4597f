"""Models of the size that people run, on a CPU: make bench-large.

Six architectures of 1 billion parameters in bfloat16, inference and a training step with AdamW:
`bench/programs/large_model.py`. Each runs plainly and under the doctor, and the decoder under
`run`, `profile` and the sentinel too, each with an empty cache. Time is processor seconds of all
processes, memory the largest sum of what they hold. Then a fault is planted in each of six stages
below the decoder; what counts is the time until the doctor's JSON file names its stage rightly and
for good, and until a reproducer is verified, beside the clock of the plain run. At last the decoder
has 1, 2, 4 and 8 times as many layers, with up to 10,000 nodes, and the figure is what the doctor
takes for twice as many.
"""

from __future__ import annotations

import argparse
import itertools
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from battery.fault import Recipe, Truth
from battery.generate import write_plant
from battery.models.trial import Conditions, Cost, read_verdict, run_measured
from battery.plants import RECIPES
from battery.trial import DOCTOR, side_by_side
from battery.workplace import workplace
from bench.figures import finish
from bench.measurement import Measurement
from bench.peers import ROOT
from bench.verdict_clock import VerdictClock, first_for_good, is_proven

PROGRAM = ROOT / "bench" / "programs" / "large_model.py"
_OURS = (sys.executable, "-m", "inductoscope")
_DOCTOR = (*DOCTOR, "--no-workaround", "--json", "verdict.json", "--output", "recording")
COMMANDS = {
    "plain": (sys.executable,),
    "doctor": _DOCTOR,
    "run": (*_OURS, "run", "--quiet", "--output", "recording"),
    "profile": (*_OURS, "profile", "--output", "recording"),
    "sentinel": (*_DOCTOR, "--sentinel", "--overhead", "1000000"),
}
GOALS = {"time": 2.5, "named": 2.0, "proven": 4.0, "twice the layers": 2.5}
# The largest has 10,000 nodes.
LAYERS = (38, 75, 150, 300)
# Bytes that any command may take beside the plain run, and the part of that run if that is more.
_LEAST, _PART = 1 << 30, 0.1


@dataclass(frozen=True)
class Program:
    """A model of a size, and what is done with it."""

    model: str
    layers: int
    dim: int
    # The parameters, if they are not as many as usual.
    size: str = ""
    length: int = 64
    batch: int = 1
    calls: int = 2
    is_training: bool = False
    device: str = "cpu"
    # The part of the GPU's memory that it may take; all of it if 0.
    fraction: float = 0.0

    @property
    def name(self) -> str:
        what = "training" if self.is_training else "inference"
        limited = ", memory limited" if self.fraction else ""
        return f"{self.model}{self.size and ' of '}{self.size}, {what}{limited}"

    @property
    def arguments(self) -> list[str]:
        found = [str(PROGRAM), self.model, "--device", self.device]
        for name in ("layers", "dim", "length", "batch", "calls"):
            found += [f"--{name}", str(getattr(self, name))]
        found += ["--train"] if self.is_training else []
        return found + (["--fraction", f"{self.fraction:.4f}"] if self.fraction else [])


# Each has 1.0 to 1.2 billion parameters.
ON_CPU = (
    Program("decoder", 12, 2560),
    Program("encoder-decoder", 12, 2560),
    Program("vision", 12, 2560, length=128),
    # A CPU without instructions for bfloat16 takes minutes for more of these products.
    Program("experts", 12, 2048, length=8),
    Program("unet", 12, 2048, length=32),
    Program("state-space", 18, 2560),
)
# A step takes ten times as long as a call in inference.
_TRAINED = tuple(
    replace(each, length=each.length // 4, calls=1, is_training=True) for each in ON_CPU
)


# --- faults ---------------------------------------------------------------------------------------

_PASS = """
original = m.{function}

def {function}(where, *arguments, **more):
    result = original(where, *arguments, **more)
    for node in getattr(where, "graph", where).nodes:
        if node.op == "call_function" and node.target in (torch.tanh, aten.tanh.default):
            node.target = torch.sigmoid if node.target is torch.tanh else aten.sigmoid.default
    return result

m.{function} = {function}
"""
_RSQRT = """
for kind in ({overrides}):
    def rsqrt(x, original=kind.rsqrt):
        return f"({{original(x)}} * {factor})"

    kind.rsqrt = staticmethod(rsqrt)
"""


def faults(device: str) -> tuple[Recipe, ...]:
    """A fault in each of six stages."""
    kind, overrides, factor = "triton", "m.TritonKernelOverrides,", "1.25"
    if device == "cpu":
        kind, overrides = "cpp", "m.CppOverrides, m.CppVecOverrides"
        factor = "decltype({x})(1.25f)"
    rsqrt = _RSQRT.format(overrides=overrides, factor=factor)
    return (
        _in_pass("pre-grad-pass", "pre_grad", "group_batch_fusion_passes"),
        _known("decomposition-gelu-wrong-result"),
        _in_pass("joint-pass", "joint_graph", "canonicalize_aten_ir_passes"),
        _in_pass("post-grad-pass", "post_grad", "remove_assert_ops"),
        _known("lowering-tanh-wrong-result"),
        _planted("rsqrt", "codegen", f"torch._inductor.codegen.{kind}", rsqrt, "rsqrt"),
    )


def _in_pass(stage: str, module: str, function: str) -> Recipe:
    body = _PASS.format(function=function)
    return _planted("tanh", stage, f"torch._inductor.fx_passes.{module}", body, function)


def _planted(operation: str, stage: str, module: str, body: str, culprit: str) -> Recipe:
    # Some passes of torch have no name where they run; the operation that they spoil has one.
    named = (culprit, f"aten.{operation}")
    return Recipe(operation, stage, "wrong-result", module, body, named)


def _known(name: str) -> Recipe:
    return next(recipe for recipe in RECIPES if recipe.name == name)


def names_fault(verdict: dict[str, Any], truth: Truth) -> bool:
    said = str(verdict.get("culprit")).lower()
    is_stage = verdict.get("stage") in truth.stages
    return is_stage and any(name.lower() in said for name in truth.culprit_names)


# --- runs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ran:
    """What a command cost, and how it ended; a fault's clock is in seconds."""

    cost: Cost
    is_right: bool
    said: str
    named: float | None = None
    proven: float | None = None


def run(
    program: Program, command: str, folder: Path, limit: float, fault: Recipe | None = None
) -> Ran:
    words = (program.name, str(program.layers), command, fault.name if fault else "")
    # Inductor's command for the C++ compiler does not quote paths.
    place = folder / "-".join(re.findall(r"\w+", " ".join(words)))
    # The sentinel does not look at the first calls.
    program = replace(program, calls=5) if command == "sentinel" else program
    line = [*COMMANDS[command], *program.arguments]
    plant = write_plant(fault) if fault else ""
    with VerdictClock(place / "verdict.json") as clock:
        outcome, cost = run_measured(line, place, Conditions(limit), plant)
    verdict = read_verdict(place)
    last = (outcome.output.strip() or "nothing was printed").rpartition("\n")[2]
    said = str(verdict.get("summary") or f"exit code {outcome.exit_code}: {last}")
    # The sentinel says "not-checked" of so short a run.
    is_right = verdict.get("verdict", "clean") in ("clean", "not-checked")
    found = Ran(cost, is_right and outcome.exit_code in (0, 4), said)
    if fault is not None:
        truth = fault.truth
        named = first_for_good(clock.versions, lambda known: names_fault(known, truth))
        proven = first_for_good(
            clock.versions, lambda known: names_fault(known, truth) and is_proven(known)
        )
        found = replace(found, is_right=proven is not None, named=named, proven=proven)
    took = f"{cost.seconds:.0f} s, {cost.cpu_seconds:.0f} CPU s, {_mebibytes(cost):.0f} MiB"
    _progress(f"{place.name}: {took}; {said}")
    return found


def _mebibytes(cost: Cost) -> float:
    return (cost.gpu_bytes or cost.peak_bytes) / 2**20


def _progress(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


# --- measurements ---------------------------------------------------------------------------------


def of_healthy(name: str, command: str, plain: Ran, ours: Ran) -> Iterator[Measurement]:
    """The time and the memory of a command beside those of the plain run."""
    why = "" if plain.is_right else plain.said
    ours_why = "" if ours.is_right else ours.said

    def measured(what: str, unit: str, goal: float | None, of: Callable[[Cost], float]) -> Any:
        return Measurement(
            name=f"{name}, {command}: {what}",
            unit=unit,
            ours=(of(ours.cost) if ours.is_right else None,),
            goal=goal,
            compared_with="the plain run",
            peer=(of(plain.cost) if plain.is_right else None,),
            why_no_peer=why,
            why_failed=ours_why,
        )

    goal = GOALS["time"] if command == "doctor" else None
    yield measured("time", "CPU s", goal, lambda cost: cost.cpu_seconds)
    held = max(plain.cost.gpu_bytes or plain.cost.peak_bytes, 1)
    on_gpu = bool(plain.cost.gpu_bytes)
    # Main memory also takes eager's results, and what a backward pass saves.
    allowed = 1 + max(_LEAST, _PART * held) / held + (0.0 if on_gpu else 1.0)
    yield measured("memory of the GPU" if on_gpu else "memory", "MiB", allowed, _mebibytes)
    if on_gpu:
        host = 1 + 1.5 * held / plain.cost.peak_bytes
        yield measured("main memory", "MiB", host, lambda cost: cost.peak_bytes / 2**20)


def of_fault(fault: Recipe, plain: Ran, ours: Ran) -> Iterator[Measurement]:
    for what, seconds in (("named", ours.named), ("proven", ours.proven)):
        yield Measurement(
            name=f"decoder with a fault in {fault.stage}: {what}",
            unit="s",
            ours=(seconds,),
            goal=GOALS[what],
            compared_with="the plain run",
            peer=(plain.cost.seconds,),
            why_failed="" if ours.is_right else ours.said,
        )


def of_growth(ran: Sequence[Ran], plain: Sequence[Ran]) -> list[Measurement]:
    """What twice as many layers take, beside half of them, for each step."""
    found = []
    for (few, many), (less, more), (least, most) in zip(
        itertools.pairwise(LAYERS), itertools.pairwise(ran), itertools.pairwise(plain), strict=True
    ):
        grown = most.cost.cpu_seconds / max(least.cost.cpu_seconds, 0.1)
        found.append(
            Measurement(
                name=f"doctor of {many} layers",
                unit="CPU s",
                ours=(more.cost.cpu_seconds if more.is_right else None,),
                goal=GOALS["twice the layers"],
                compared_with=f"{few} layers",
                peer=(less.cost.cpu_seconds if less.is_right else None,),
                why_failed=more.said,
                note=f"the plain run takes {grown:.2f} times as long",
            )
        )
    return found


@dataclass(frozen=True)
class Bench:
    """What is measured, in one folder."""

    programs: tuple[Program, ...]
    # A decoder whose layers are counted up.
    grown: Program
    folder: Path
    limit: float

    def healthy(self, program: Program) -> list[Measurement]:
        is_usual = program.model == "decoder" and not program.size
        commands = [*COMMANDS][1 : None if is_usual else 2]
        plain = run(program, "plain", self.folder, self.limit)
        found: list[Measurement] = []
        for command in commands if plain.is_right else ["doctor"]:
            ours = run(program, command, self.folder, self.limit) if plain.is_right else plain
            found += of_healthy(program.name, command, plain, ours)
        if plain.cost.gpu_bytes and is_usual:
            # What the program may take: a tenth more than it does.
            fraction = plain.cost.gpu_bytes / 0.9 / memory_of_gpu()
            limited = replace(program, fraction=fraction)
            ours = run(limited, "doctor", self.folder, self.limit)
            found += of_healthy(limited.name, "doctor", plain, ours)
        return found

    def planted(self, fault: Recipe) -> list[Measurement]:
        program = replace(self.programs[0], calls=1)
        plain = run(program, "plain", self.folder, self.limit, fault)
        return [*of_fault(fault, plain, run(program, "doctor", self.folder, self.limit, fault))]

    def growth(self) -> list[Measurement]:
        sizes = [replace(self.grown, layers=layers) for layers in LAYERS]
        plain = [run(size, "plain", self.folder, self.limit) for size in sizes]
        ours = [run(size, "doctor", self.folder, self.limit) for size in sizes]
        return of_growth(ours, plain)

    def jobs(self, only: str) -> list[Callable[[], list[Measurement]]]:
        named: dict[str, Callable[[], list[Measurement]]] = {}
        named |= {program.name: partial(self.healthy, program) for program in self.programs}
        for fault in faults(self.grown.device):
            named[f"fault in {fault.stage}"] = partial(self.planted, fault)
        named["growth"] = self.growth
        return [job for name, job in named.items() if re.search(only, name)]


def memory_of_gpu() -> int:
    """The bytes of the first GPU."""
    asked = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    return int(told.split()[0]) << 20


def measure(bench: str, programs: Sequence[Program], grown: Program) -> None:
    what = "Measure the doctor on large models."
    parser = argparse.ArgumentParser(prog=f"python -m bench.{bench}", description=what)
    parser.add_argument("--only", default="", help="measure what this regular expression finds")
    parser.add_argument("--jobs", type=int, default=1, help="programs side by side")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds for one run")
    parser.add_argument("--json", type=Path, help="write the measurements to this file")
    options = parser.parse_args()
    with workplace("bench-large") as folder:
        jobs = Bench((*programs,), grown, folder, options.limit).jobs(options.only)
        found = [*side_by_side(jobs, options.jobs)]
    finish(sorted(itertools.chain(*found), key=lambda each: each.name), options.json)


if __name__ == "__main__":
    measure("large", (*ON_CPU, *_TRAINED), Program("decoder", 1, 512, calls=1))
