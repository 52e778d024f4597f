"""The slow programs, and the truth about each."""

from __future__ import annotations

from dataclasses import dataclass

DOCTOR, ADVISE = "doctor", "profile --advise"


@dataclass(frozen=True)
class SlowProgram:
    """A program that is slow for one reason."""

    name: str
    # What a user would type.
    command: str
    # Why it is slow, for a reader, and where the program comes from.
    truth: str
    origin: str
    # Words that a right answer contains, in what it says is the cause.
    named: tuple[str, ...]


PROGRAMS = (
    SlowProgram(
        "index_add", DOCTOR, "values are added one by one, atomically", "pytorch#108220",
        ("index_put_ adds", "atomically"),
    ),
    SlowProgram(
        "grid_sample", ADVISE, "Inductor takes grid_sampler_2d apart, eager has a kernel for it",
        "found by comparing operations with eager", ("grid_sampler_2d",),
    ),
    SlowProgram(
        "scalar_loop", ADVISE, "cpp.simdlen = 1: no loop is vectorized", "one change",
        ("not vectorized", "cpp.simdlen = 1"),
    ),
    SlowProgram(
        "no_fusion", ADVISE, "max_fusion_size = 1 keeps reductions apart", "one change",
        ("max_fusion_size",),
    ),
    SlowProgram(
        "item_in_steps", ADVISE, "the graph breaks at .item() in every step", "one change",
        ("graph breaks at", ".item()"),
    ),
    SlowProgram(
        "one_thread", ADVISE, "cpp.threads = 1: no loop is shared among threads", "one change",
        ("cpp.threads = 1",),
    ),
    SlowProgram(
        "stencil", ADVISE, "a value is computed again for each neighbour that reads it",
        "found by comparing operations with eager", ("is computed in", "realize_opcount_threshold"),
    ),
    SlowProgram(
        "step_counter", DOCTOR, "a number of a module changes with every call", "pytorch#114293",
        ("self.step",),
    ),
    SlowProgram(
        "every_length", ADVISE, "dynamic=False and a new length in every call", "one change",
        ("score", "dynamic=True"),
    ),
    SlowProgram(
        "recurrence", DOCTOR, "expressions that double with every step", "pytorch#148073",
        ("A loop body has", "computed again"),
    ),
    SlowProgram(
        "slow_lowering", DOCTOR, "the lowering of erf", "planted", ("erf", "careful_erf"),
    ),
    SlowProgram(
        "slow_pass", DOCTOR, "a pass of the program's own that looks at all pairs", "planted",
        ("post-grad", "LooksAtPairs"),
    ),
    SlowProgram(
        "slow_fusion", DOCTOR, "Scheduler.can_fuse", "planted", ("careful_can_fuse",),
    ),
)  # fmt: skip
