"""Instructions of the doctor for a run of the program, and how such a run differs from the user's.

They are passed through the environment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from inductoscope.doctor.failure import Failure
from inductoscope.launch.environment import PARTS_VARIABLE, with_parts
from inductoscope.launch.users_cache import USERS, CacheContent
from inductoscope.recording.codec import decode, encode
from inductoscope.recording.events import NotedDifference
from inductoscope.recording.layout import EXAMINATION

VARIABLE = "INDUCTOSCOPE_DOCTOR"

# Files in the recording's folder.
FOLDER = EXAMINATION
# A lock file that holds the investigating process.
INVESTIGATING = "investigating"
FUNCTION_SCRIPT = "function.py"

# Backends that run each graph in eager: with perturbed rounding, and as slowly without.
MOVED = "moved"
UNMOVED = "unmoved"

# --- Conditions of a run under the doctor that the user's run does not have -----------------------


@dataclass(frozen=True)
class RunCondition:
    """A way in which a run under the doctor differs from the user's."""

    name: str
    # The hypothesis that gives it back, if the program fails only without the tool.
    covered_by: str
    # The variables that impose it, as far as it is not imposed inside the process.
    variables: Mapping[str, str] = field(default_factory=dict)


CACHES = RunCondition(
    "torch's caches of compiled graphs",
    "cached_results",
    # A workaround may change generated code without changing cache keys.
    {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"},
)
# Compiled code draws random numbers as eager does, so that results are comparable.
RANDOM_NUMBERS = RunCondition("Inductor's random numbers", "inductor_random_numbers")
CUDA_GRAPHS = RunCondition("CUDA graphs", "cuda_graphs")
# A process that has used several OpenMP threads cannot use them in a fork. With the limit, no such
# thread is ever started; `ThreadLimit` keeps the generated code unchanged. MKL_NUM_THREADS must not
# be set: torch would use it as the number of its own threads.
THREADS = RunCondition(
    "several threads",
    "given_back",
    {"OMP_THREAD_LIMIT": "1", "OPENBLAS_NUM_THREADS": "1"},
)
# Synchronous launches attribute an error to the kernel that caused it.
LAUNCHES = RunCondition("asynchronous launches", "given_back", {"CUDA_LAUNCH_BLOCKING": "1"})
# A check calls compiled code once more, keeps copies, and takes time.
CHECKS = RunCondition("calls without checks", "given_back")

CONDITIONS = (CACHES, RANDOM_NUMBERS, CUDA_GRAPHS, THREADS, LAUNCHES, CHECKS)

# Variables of a process that tries candidates in forks.
FOR_FORKS = {
    **LAUNCHES.variables,
    **THREADS.variables,
    # Checking for a GPU through the CUDA runtime would make forks unusable.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}

# The exit status of a process in which the doctor has found the failure.
STOPPED = 75

# How many calls of a graph each rank of a job checks before the ranks share the others.
CALLS_BY_EACH_RANK = 2


@dataclass(frozen=True)
class Instructions:
    """The options of a run under the doctor."""

    # How many calls of each compiled graph are checked in any case; 0 checks none.
    calls: int = 8
    # Whether further calls are checked, as long as that takes little of the program's time.
    checks_more: bool = True
    # Whether checks are left out to save time: those of another rank, and of large calls.
    saves_time: bool = True
    # The compile at which to stop and investigate, and the failure that was seen there.
    stop_at: str = ""
    failure: Failure | None = None
    # The folder of a call stored by the sentinel, to investigate instead of the first call there.
    kept: str = ""
    # Results that get eager's strides or aliasing, to test whether the program needs them.
    as_in_eager: tuple[NotedDifference, ...] = ()
    # Results whose strides or aliasing count as a failure.
    counts: tuple[NotedDifference, ...] = ()
    # A replacement for the backend: 'eager' runs each graph unchanged, 'moved' with perturbed
    # rounding, 'unmoved' as slowly as that, 'off' compiles nothing.
    backend: str = ""
    # Whether Dynamo forgets before each call what it has captured.
    captures_every_call: bool = False
    # If not 0, compiled graphs draw random numbers of another seed, which this number chooses.
    reseeded: int = 0
    # Statements that a workaround consists of.
    workaround: str = ""
    # Variables of the environment that a workaround consists of.
    variables: Mapping[str, str] = field(default_factory=dict)
    # Whether to investigate a failure instead of only noting it.
    investigate: bool = True
    # Whether to look for workarounds, too, once the failure is located.
    with_workaround: bool = True
    # Whether to stop once the failure is located, without reproducer and workaround.
    quick: bool = False
    # Whether large graphs, too, are compiled whole with Inductor's own random numbers.
    random_in_whole_graphs: bool = False
    # Seconds without a sign of life that count as a hang.
    stall: float = 60.0
    # Whether a graph may be differentiated more than once; needed at the first backward pass.
    keeps_graphs: bool = False
    # Recordings of this examination, whose results for candidates a search reuses.
    recordings: tuple[str, ...] = ()
    # The address of a cluster that tries candidates, and whether workers may have any versions.
    executor: str = ""
    any_worker: bool = False
    # The number of copies of the stopping graph, to measure the growth of its compile time.
    grow: int = 0
    # The number of nodes that graph was lowered to in an earlier run; 0 if unknown.
    lowered: int = 0
    # What torch finds in its caches, if the run has them.
    cache: CacheContent = USERS
    # Of these, one by its name that is left out.
    cache_without: str = ""
    # The names of conditions that are as in the user's run.
    given_back: tuple[str, ...] = ()
    # Whether the tool is active in the program's processes at all.
    inside: bool = True

    def has(self, condition: RunCondition) -> bool:
        """Whether the run has a condition that the user's run does not have."""
        return self.inside and condition.name not in self.given_back

    def as_in_eager_of(self, compile_id: str) -> tuple[NotedDifference, ...]:
        """Return the results of one compile that get eager's strides or aliasing."""
        return tuple(note for note in self.as_in_eager if note.compile == compile_id)

    def counts_of(self, compile_id: str) -> tuple[NotedDifference, ...]:
        """Return the results of one compile whose strides or aliasing count."""
        return tuple(note for note in self.counts if note.compile == compile_id)

    def environment(self) -> dict[str, str]:
        """Return variables that carry the instructions and make forks of the program possible."""
        without = {"TORCHDYNAMO_DISABLE": "1"} if self.backend == "off" else {}
        without |= self.variables
        if not self.inside:
            return without
        given_back = [each for each in CONDITIONS if not self.has(each)]
        as_users = {name for condition in given_back for name in condition.variables}
        imposed = {**FOR_FORKS, **CACHES.variables}
        return {
            **without,
            VARIABLE: json.dumps(encode(self)),
            **with_parts("record", "check"),
            **{name: value for name, value in imposed.items() if name not in as_users},
        }


# Removed for a run without the doctor. Thread limits stay, because they may be the user's own.
OWN_VARIABLES = (VARIABLE, PARTS_VARIABLE)


def instructions_from(environment: Mapping[str, str] = os.environ) -> Instructions:
    return decode(Instructions, json.loads(environment[VARIABLE]))
