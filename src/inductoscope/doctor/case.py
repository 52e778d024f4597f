"""One program under examination: the facts from its first run, and later findings."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from inductoscope.doctor.finding import FailureFinding
from inductoscope.doctor.instructions import Instructions
from inductoscope.doctor.proof import Proof
from inductoscope.doctor.runs import ProgramRun, Runs
from inductoscope.doctor.symptom import clock_reads
from inductoscope.model.entities import Recording
from inductoscope.model.fx import read_graph
from inductoscope.recording.events import FROM_ELSEWHERE, Check, NotedDifference
from inductoscope.torch_facts.messages import COMPARISON_FAILED

Say = Callable[[str], None]
# A program that takes longer is not run again just to confirm that it succeeds without the tool.
_SHORT_RUN = 600.0


@dataclass
class ProgramCase:
    """The facts that hypotheses are tested against. A hypothesis may add to `finding`."""

    # The instructions of the first run, and its outcome.
    instructions: Instructions
    first: ProgramRun
    runs: Runs
    proof: Proof
    say: Say
    # The failure found inside the program; None if there is none yet.
    finding: FailureFinding | None = None
    # Results for which the program needs eager's memory layout.
    needed_layout: Sequence[NotedDifference] = ()

    @property
    def recording(self) -> Recording:
        """The recording of the first run."""
        return self.first.recording

    @property
    def takes_long(self) -> bool:
        """Whether the program takes too long to be run again if nothing was found."""
        return self.first.ending.seconds >= _SHORT_RUN

    @property
    def checks(self) -> Sequence[Check]:
        """The calls of compiled graphs that were compared with eager in the first run."""
        return self.recording.checks

    def checks_that_are(self, *verdicts: str) -> list[Check]:
        return [check for check in self.checks if check.verdict in verdicts]

    @cached_property
    def packages_from_elsewhere(self) -> list[str]:
        """Packages that the program calls, but did not compile itself."""
        called = dict.fromkeys(check.compile for check in self.checks)
        return [name for name in called if name.startswith(FROM_ELSEWHERE)]

    @property
    def noted(self) -> Sequence[NotedDifference]:
        """Differences from eager that are not failures, without duplicates."""
        every = dict.fromkeys(replace(note, call=0) for note in self.recording.noted)
        return [note for note in every if note not in self.needed_layout]

    @property
    def is_seen_wrong(self) -> bool:
        """Whether any result in the first run differed from eager."""
        return bool(self.first.functions_that_differ or self.checks_that_are("wrong", "error"))

    @property
    def calls_a_graph_again(self) -> bool:
        """Whether any graph was called more than once."""
        return bool(self.recording.unchecked) or any(check.call > 1 for check in self.checks)

    @cached_property
    def random_operations(self) -> list[str]:
        """Operations in the captured graphs that draw random numbers."""
        return random_operations(self.recording)

    @property
    def last_compiled(self) -> str | None:
        """The line of the last compiled function."""
        return self.recording.compiles[-1].place if self.recording.compiles else None

    def prove_and_help(self) -> None:
        if self.finding is not None:
            self.finding = self.proof.prove_and_help(self.finding)

    @property
    def fails_unexplained(self) -> bool:
        """Whether the program fails although no graph is known to be wrong."""
        return self.finding is None and self.first.failed

    @cached_property
    def clocks(self) -> list[str]:
        """The lines of the program that read a clock."""
        return list(clock_reads(self.runs.command, self.recording))

    @property
    def may_fail_by_time(self) -> bool:
        """Whether the program may fail, with every graph right, because it takes too long."""
        raised = any(not e.swallowed for c in self.recording.compiles for e in c.errors)
        if not self.fails_unexplained or self.is_seen_wrong or raised:
            return False
        says_numbers = COMPARISON_FAILED.search(self.first.output)
        return self.first.ending.signal is None and not says_numbers and bool(self.clocks)

    @property
    def is_hidden(self) -> bool:
        """Whether the program fails without the tool, and nothing is wrong with it."""
        return self.ends_well and not self.takes_long and self.runs.without_tool_once().failed

    @cached_property
    def uses_gpu(self) -> bool:
        kernels = (kernel for graph in self.recording.graphs for kernel in graph.kernels)
        return any(kernel.language == "Triton" for kernel in kernels)

    @property
    def ends_well(self) -> bool:
        """Whether the program succeeded, and nothing was found."""
        return self.finding is None and self.first.ending.exit_code == 0


# --- Operations that draw random numbers ----------------------------------------------------------

_RANDOM = re.compile(
    r"(inductor_)?rand.*|\w*dropout\w*|bernoulli_?|(log_)?normal_?|multinomial|poisson|exponential_?"
    r"|uniform_?|cauchy_?|geometric_?|rrelu.*"
)


def random_operations(recording: Recording) -> list[str]:
    """Return the operations in graphs that draw random numbers, if Inductor got any of them.

    Dynamo's graphs also hold dropouts that are disabled.
    """
    found = []
    for compile_ in recording.compiles:
        for graph in compile_.graphs:
            read = read_graph(recording, graph.payload)
            for node in read.nodes if read is not None else ():
                # Splits names such as aten.normal.Tensor_Tensor and torch.nn.functional.dropout.
                parts = node.target.split(".")
                if any(_RANDOM.fullmatch(part) for part in parts):
                    found.append(node.target)
    is_compiled = any(name.startswith(("aten.", "prims.")) for name in found)
    return list(dict.fromkeys(found)) if is_compiled else []
