"""AOTInductor's debugging guide, followed step by step by someone who never errs.

Each step builds the package again, with other flags, and runs the program: one run each. Where the
guide says "if the inputs to the kernel are not as expected", the right values are looked up in a
build without the fault; a person would compute them in eager, which is one run more. Time that a
person needs to read, to think and to type is not counted.
"""

from __future__ import annotations

import re
import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from battery.fault import Fault
from battery.trial import Outcome, make_environment, run_limited, write_files
from bench.aoti.faults import THE_INPUT, THE_OPERATOR, PackageFault
from bench.aoti.printed import (
    Call,
    PrintedValue,
    Shown,
    calls_of,
    last_announced,
    reused_names,
    shown_calls,
    wrapper_text,
)

SANITY = {"AOTI_RUNTIME_CHECK_INPUTS": "1", "TORCHINDUCTOR_NAN_ASSERTS": "1"}
PINPOINT = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "CUDA_LAUNCH_BLOCKING": "1"}
PRINTER, FILTER = (
    "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER",
    ("AOT_INDUCTOR_FILTERED_KERNELS_TO_PRINT"),
)
_BROKEN_INPUT = re.compile(r"input_handles\[\d+\]: \w[^\n]*")
_BROKEN_OPERATOR = re.compile(r"[^\n]*(?:expected size|wrong (?:size|number))[^\n]*")

# What someone writes to see every intermediate value in eager.
_IN_EAGER = """
import runpy, sys, torch

class Printing(torch.fx.Interpreter):
    def run_node(self, node):
        value = super().run_node(node)
        if isinstance(value, torch.Tensor):
            number = value.double()
            print(node.name, tuple(value.shape), number.mean(), number.min(), number.max())
        return value

kept = []
torch._inductor.aoti_compile_and_package = lambda program, **more: kept.append(program)
torch._inductor.aoti_load_package = lambda path: Printing(kept[-1].module()).run
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@dataclass(frozen=True)
class GuideRun:
    """One run of the program."""

    step: str
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Trail:
    """The runs until a kernel was named, or until the guide had nothing more to say."""

    runs: tuple[GuideRun, ...]
    # The kernel, or what else is said to be guilty; "" if nothing is.
    named: str
    said: str
    # The number of its call.
    call: int | None
    # What the guide would need if every kernel were printed at once and nothing idle were run.
    fewest_runs: int


@dataclass(frozen=True)
class Expected:
    """A build without the fault: the calls, and what each would have printed."""

    calls: Sequence[Call]
    shown: Sequence[Shown]
    reused: Mapping[str, str]

    def producer(self, tensor: str, before: int) -> int | None:
        """The call that wrote what a later call reads; None if it is an input of the model."""
        for number in reversed(range(before)):
            call = self.calls[number]
            if tensor in call.returned or (tensor in call.tensors and self._writes(number, tensor)):
                return number
        old = self.reused.get(tensor)
        return None if old is None else self.producer(old, before)

    def _writes(self, number: int, tensor: str) -> bool:
        is_first = all(tensor not in call.tensors for call in self.calls[:number])
        is_made = is_first and tensor.startswith("buf") and tensor not in self.reused
        shown = self.shown[number]
        return is_made or not shown.before[tensor].is_like(shown.after[tensor])

    def inputs(self, number: int) -> list[str]:
        """The tensors that a call reads."""
        tensors = self.calls[number].tensors
        return [t for t in tensors if not t.startswith("buf") or self._is_read(t, number)]

    def _is_read(self, tensor: str, number: int) -> bool:
        return self.producer(tensor, number) is not None


@dataclass
class Guide:
    """One fault, examined as the guide says."""

    fault: PackageFault
    folder: Path
    cache: Path
    limit: float
    runs: list[GuideRun] = field(default_factory=list)
    # What was printed of which calls, and the kernels that were asked for.
    _known: dict[int, Shown] = field(default_factory=dict)
    _printed: set[str] = field(default_factory=set)

    def follow(self) -> Trail:
        """All steps, until something is named."""
        expected = self._expected()
        said = self._sanity()
        if said:
            named = THE_OPERATOR if "operator" in said else THE_INPUT
            return Trail(tuple(self.runs), named, said, None, 1)
        # "Together with the previous flags": these faults are the same in every run without them.
        announced = self._run("last kernel", {**PINPOINT, PRINTER: "3"})
        self._in_eager()
        last = last_announced(announced.output)
        # sanity, eager, all kernels printed at once; for a crash the last kernel first
        fewest = 3 if last is None else 4
        start = len(expected.calls) - 1 if last is None else last
        call, said = self._walk_back(expected, start)
        named = "" if call is None else expected.calls[call].kernel
        return Trail(tuple(self.runs), named, said, call, fewest)

    # --- steps ------------------------------------------------------------------------------------

    def _sanity(self) -> str:
        """Messages of the runtime checks, if any."""
        output = self._run("sanity", SANITY).output
        found = _BROKEN_INPUT.search(output)
        if found:
            return found[0]
        found = _BROKEN_OPERATOR.search(output)
        return f"operator: {found[0].strip()}" if found else ""

    def _walk_back(self, expected: Expected, start: int) -> tuple[int | None, str]:
        """From kernel to producer, as long as an input is not as expected."""
        current, seen = [start], {start}
        while True:
            shown = self._shown(expected, current)
            bad = {number: bad_inputs(expected, number, shown.get(number)) for number in current}
            well_fed = [number for number in current if not bad[number]]
            for number in well_fed:
                if number == start or is_wrong(expected, number, shown[number]):
                    kernel = expected.calls[number].kernel
                    return number, f"the inputs of {kernel} are as expected"
            made = [expected.producer(t, number) for number in current for t in bad[number]]
            current = sorted({number for number in made if number is not None} - seen)
            if not current:
                kernels = ", ".join(expected.calls[number].kernel for number in well_fed)
                return None, f"inputs and results of {kernels or 'no kernel'} are as expected"
            seen.update(current)

    def _shown(self, expected: Expected, current: Sequence[int]) -> dict[int, Shown]:
        """Output of the printer for these calls: one run, for kernels that were not shown yet."""
        kernels = sorted({expected.calls[number].kernel for number in current} - self._printed)
        if kernels:
            flags = {**PINPOINT, PRINTER: "2", FILTER: ",".join(kernels)}
            output = self._run(f"values of {', '.join(kernels)}", flags).output
            numbers = [call.number for call in expected.calls if call.kernel in kernels]
            self._known.update(zip(numbers, shown_calls(output), strict=False))
            self._printed.update(kernels)
        return self._known

    # --- runs -------------------------------------------------------------------------------------

    def _run(self, step: str, flags: Mapping[str, str]) -> Outcome:
        return self._timed(step, ["script.py"], flags)

    def _in_eager(self) -> None:
        (self.folder / "in_eager.py").write_text(_IN_EAGER)
        self._timed("eager, by hand", ["in_eager.py", "script.py"], {})

    def _timed(self, step: str, arguments: Sequence[str], flags: Mapping[str, str]) -> Outcome:
        before = cpu_of_children()
        outcome = self._flagged(self.fault.fault, self.folder, arguments, flags)
        self.runs.append(GuideRun(step, outcome.seconds, cpu_of_children() - before))
        return outcome

    def _flagged(
        self, fault: Fault, folder: Path, arguments: Sequence[str], flags: Mapping[str, str]
    ) -> Outcome:
        """No line is held back, as on a terminal, so that a crash loses none."""
        write_files(fault, folder)
        environment = {**make_environment(fault, folder, self.cache), **flags}
        command = ["stdbuf", "-oL", sys.executable, *arguments]
        return run_limited(command, folder, environment, self.limit)

    def _expected(self) -> Expected:
        """Built without the fault; not counted."""
        cured = replace(self.fault.fault, plant=self.fault.cure)
        folder = self.folder / "cured"
        outcome = self._flagged(cured, folder, ["script.py"], {PRINTER: "2"})
        text = wrapper_text(folder / "model.pt2")
        return Expected(calls_of(text), shown_calls(outcome.output), reused_names(text))


def bad_inputs(expected: Expected, number: int, shown: Shown | None) -> list[str]:
    """The inputs of a call that are not as expected; all of them if nothing is shown."""
    tensors = expected.inputs(number)
    if shown is None or not shown.before:
        return tensors
    right = expected.shown[number].before
    given = in_place_of(right, shown.before)
    return [t for t in tensors if t in given and not given[t].is_like(right[t])]


def is_wrong(expected: Expected, number: int, shown: Shown) -> bool:
    """Whether a call gives something that is not as expected, or that is not printed."""
    right = expected.shown[number].after
    after = in_place_of(right, shown.after)
    is_seen = not expected.calls[number].returned
    return not is_seen or any(not after[t].is_like(right[t]) for t in right if t in after)


def in_place_of(
    right: Mapping[str, PrintedValue], given: Mapping[str, PrintedValue]
) -> dict[str, PrintedValue]:
    """The values of one build under the names of another, which counts its buffers otherwise.

    It may also pass them in another order, so the first of the same size is meant.
    """
    left, found = [*given.values()], {}
    for name, value in right.items():
        alike = [other for other in left if other.size == value.size]
        if alike:
            found[name] = alike[0]
            left.remove(alike[0])
    return found


def cpu_of_children() -> float:
    """Processor time of all processes that were started from here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
