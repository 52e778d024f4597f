"""Instructions of the doctor for a run of the program, handed over through the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from inductoscope.doctor.failure import Failure
from inductoscope.launch.environment import PARTS_VARIABLE, with_parts
from inductoscope.recording.codec import decode, encode
from inductoscope.recording.events import NotedDifference
from inductoscope.recording.layout import EXAMINATION

VARIABLE = "INDUCTOSCOPE_DOCTOR"

# Files in the recording's folder.
FOLDER = EXAMINATION
# A lock: the process that investigates.
INVESTIGATING = "investigating"
FUNCTION_SCRIPT = "function.py"

# A backend that runs each graph in eager with other roundings.
MOVED = "moved"

# How a process of the program ends when the doctor has found what it was looking for.
STOPPED = 75


@dataclass(frozen=True)
class Instructions:
    """How to run the program, and what to look for in it."""

    # How many calls of each compiled graph are checked; 0 checks none.
    calls: int = 8
    # The compile at which to stop and investigate, and the failure that was seen there.
    stop_at: str = ""
    failure: Failure | None = None
    # The folder of a call that the sentinel kept, to investigate instead of the first call there.
    kept: str = ""
    # Results that are given eager's strides or sharing, to see whether the program needs them.
    as_in_eager: tuple[NotedDifference, ...] = ()
    # Results whose strides or sharing count as a failure.
    counts: tuple[NotedDifference, ...] = ()
    # What stands in for the backend: 'eager' runs each graph as it is, 'moved' with other
    # roundings, 'off' compiles nothing.
    backend: str = ""
    # Statements that a workaround consists of.
    workaround: str = ""
    # Variables of the environment that a workaround consists of.
    variables: Mapping[str, str] = field(default_factory=dict)
    # Investigate what is found, rather than only note it.
    investigate: bool = True
    # Look for workarounds too, once it is known what is wrong.
    with_workaround: bool = True
    # Stop once it is known where it goes wrong: no reproducer, no workaround.
    quick: bool = False
    # Whether compiled code draws its random numbers as eager does, so that both can be compared.
    random_as_eager: bool = True
    # Whether large graphs, too, are compiled whole with Inductor's own random numbers.
    random_in_whole_graphs: bool = False
    # Seconds without a sign of life that count as a hang.
    stall: float = 60.0
    # Whether a graph may be differentiated more than once, which has to be known when it is first.
    keeps_graphs: bool = False
    # Recordings of this examination: a search goes on with the answers to candidates in them.
    recordings: tuple[str, ...] = ()
    # The address of a cluster whose workers try candidates, and whether they may have any versions.
    executor: str = ""
    any_worker: bool = False
    # How often the graph at which to stop is repeated, to see how its compile time grows.
    grow: int = 0
    # How many nodes that graph was lowered to in an earlier run; 0 if that is not known.
    lowered: int = 0
    # Whether the tool is in the program's processes at all.
    inside: bool = True

    def as_in_eager_of(self, compile_id: str) -> tuple[NotedDifference, ...]:
        """The results of one compile that are given eager's strides or sharing."""
        return tuple(note for note in self.as_in_eager if note.compile == compile_id)

    def counts_of(self, compile_id: str) -> tuple[NotedDifference, ...]:
        """The results of one compile whose strides or sharing count."""
        return tuple(note for note in self.counts if note.compile == compile_id)

    def environment(self) -> dict[str, str]:
        """The variables that carry the instructions, and that make forks of the program possible.

        A process that has used several OpenMP threads cannot use them in a fork. With the limit
        no thread is ever started; `ThreadLimit` sees to it that the generated code stays the
        same. MKL_NUM_THREADS must not be set: torch takes it for the number of its own threads.
        """
        without = {"TORCHDYNAMO_DISABLE": "1"} if self.backend == "off" else {}
        without |= self.variables
        if not self.inside:
            return without
        return {
            **without,
            VARIABLE: json.dumps(encode(self)),
            **with_parts("record", "check"),
            # A kernel that fails is then the one that is named.
            "CUDA_LAUNCH_BLOCKING": "1",
            # Otherwise to ask whether there is a GPU would make forks useless.
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            "OMP_THREAD_LIMIT": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }


# Not for a run without the doctor. Limits on threads that the user has set are the user's own.
OWN_VARIABLES = (VARIABLE, PARTS_VARIABLE)


def instructions_from(environment: Mapping[str, str] = os.environ) -> Instructions:
    """The instructions for this run."""
    return decode(Instructions, json.loads(environment[VARIABLE]))
