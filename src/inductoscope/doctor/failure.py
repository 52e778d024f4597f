"""Failures, their locations and signatures: two are the same bug only if signatures agree.

A search by exit codes alone could slip from one bug to another.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from inductoscope.torch_facts import stages

WRONG, NAN, ERROR, SIGNAL, HANG = "wrong", "nan", "error", "signal", "hang"
# Compiling ends, but takes far too long.
SLOW = "slow"
# Eager raises an error; compiled code returns, or raises an error of another type.
LOST_CHECK = "lost-check"

# A graph with this many nodes is compiled in a second or two.
FEW_NODES = 20

_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
_NAMES = re.compile(r"'[^']*'|\"[^\"]*\"|\b\w*\d+\w*\b")


@dataclass(frozen=True)
class WrongValue:
    """An element of a wrong result: the one with the largest error, or the first non-finite."""

    where: str
    index: tuple[int, ...]
    # Texts, because JSON has no NaN and no infinity. `expected` is eager's value.
    actual: str
    expected: str
    float64: str = ""
    # The number of wrong elements of the result, and of all its elements.
    wrong: int = 0
    elements: int = 0


@dataclass(frozen=True)
class Failure:
    """A failure of a candidate when it is compiled and run."""

    kind: str
    text: str
    stage: str = ""
    # For a wrong result: value, dtype, stride …; for an error: the innermost exception's type;
    # for a lost check: the type of error that compiled code raises instead, empty if it returns.
    aspect: str = ""
    # The compiler's function that raised, or the last entered kernel.
    function: str = ""
    message: str = ""
    detail: str = ""
    # For a wrong result: the outputs or inputs that differ, descriptions, and the largest error.
    where: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    largest: float = 0.0
    allowed: float = 0.0
    values: tuple[WrongValue, ...] = ()
    # Functions on the stack, innermost first.
    functions: tuple[str, ...] = ()
    # The output of the native compiler.
    messages: tuple[str, ...] = ()
    # For an error between two stages: the last stage that ended.
    after: str = ""
    # For a hang: seconds until the hanging stage was entered.
    entered_at: float | None = None
    # Whether memory was filled with NaN first, so that unwritten values show as NaN.
    memory_was_filled: bool = False
    # The error that eager raises, with its type; empty if eager returns.
    eager_error: str = ""

    def is_same_as(self, other: Failure) -> bool:
        """Check whether both failures are signs of one bug."""
        if self.kind != other.kind:
            was_filled = self.memory_was_filled or other.memory_was_filled
            return was_filled and {self.aspect, other.aspect} == {"value", "nan"}
        if _words(self.eager_error) != _words(other.eager_error):
            return False  # Another check.
        if self.kind in (WRONG, NAN, LOST_CHECK):
            return self.aspect == other.aspect
        if self.kind == ERROR:
            said = _words(self.message), _words(other.message)
            alike = self.function == other.function or said[0] == said[1]
            return self.aspect == other.aspect and alike
        if self.kind == SIGNAL:
            return self.aspect == other.aspect
        return self.stage == other.stage

    def updated_with(self, other: Failure) -> Failure:
        """Return this failure, updated with the facts of another sign of the same bug."""
        if self.kind != other.kind:
            return self  # Keep the program's own failure, whatever a graph in filled memory does.
        return replace(self, **{name: value for name, value in vars(other).items() if value})


def _words(message: str) -> str:
    """Return a message without numbers and names, which differ from graph to graph."""
    return _NAMES.sub("", _NUMBERS.sub("", message.partition("\n")[0]))[:200]


# Messages of errors that are due to the machine or its settings, and advice for each.
_MISSING = (
    ("InvalidCxxCompiler", "Install g++ or clang++, or name one that works in CXX."),
    ("TritonMissing", "Install triton for this torch."),
    (
        "is not a valid IntermediateValueDebuggingLevel",
        "This torch does not know that value of AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER: "
        "choose another, or unset it.",
    ),
)
# Messages that count only during compilation: a running graph may itself need too much.
_SHORT_OF = (
    ("No space left on device", "Free some space there, or choose another TMPDIR."),
    ("Disk quota exceeded", "Free some space there, or choose another TMPDIR."),
    ("Killed signal terminated program", "Memory ran out: give the native compiler more of it."),
    ("Cannot allocate memory", "Memory ran out: let less run at the same time."),
    ("MemoryError", "Memory ran out: give the program more of it."),
)


def advice_on_machine(failure: Failure) -> str:
    """Return advice on a failure that is due to the machine; "" for any other."""
    if failure.kind != ERROR:
        return ""
    said = f"{failure.aspect}: {failure.message} {failure.text}"
    signs = (
        *_MISSING,
        *(_SHORT_OF if failure.stage not in (stages.WRAPPER, stages.RUNTIME) else ()),
    )
    return next((advice for sign, advice in signs if sign in said), "")


# Errors of a GPU that refuses a second process.
_NO_SECOND_PROCESS = (
    (
        "busy or unavailable",
        "the GPU takes no second process, which every trial needs: nvidia-smi -c DEFAULT allows it",
    ),
    (
        "out of memory",
        "the GPU has no memory left for another process, which every trial needs: end others first",
    ),
)


def why_no_trial(mistake: str) -> str:
    """Return why trials on a GPU are impossible, and advice; "" for any other mistake."""
    said = mistake.strip().rpartition("CUDA error: ")[2] if "CUDA error: " in mistake else ""
    said = said or (mistake if "CUDA out of memory" in mistake else "")
    return next((advice for sign, advice in _NO_SECOND_PROCESS if sign in said), "")


# --- Places in the compiler -----------------------------------------------------------------------


@dataclass(frozen=True)
class Location:
    """The place in the compiler that causes a failure, as far as it is known."""

    stage: str = ""
    operation: str = ""
    pass_name: str = ""
    kernel: str = ""
    # The first wrong buffer of the kernel, and whether another kernel has made it.
    buffer: str = ""
    is_overwritten: bool = False
    function: str = ""
    text: str = ""
    # How the place was established.
    how: str = ""
    # Suspect nodes of the candidate.
    suspects: tuple[str, ...] = ()
    # All nodes of the candidate that the kernel computes.
    of_kernel: tuple[str, ...] = ()
    # Patterns and passes inside the pass, or operations inside the kernel.
    names: tuple[str, ...] = ()
    # Operations of the kernel that are wrong when compiled alone.
    wrong_alone: tuple[str, ...] = ()
    # Operations that a pass removed, and those that it inserted.
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    # A pass that is not torch's: its function, and the place of that.
    own_pass: str = ""
    # Whether all passes and decompositions were compared and are right.
    graphs_are_right: bool = False
    # How many kernels were compared, if all of them are right, and for how many of their values the
    # noise of rounding was that of an equal kernel.
    right_kernels: int = 0
    like_equal_kernel: int = 0

    @property
    def is_known(self) -> bool:
        """Whether the stage is known."""
        return bool(self.stage)


# --- An axis without which a failure vanishes: a hint at the stage to blame -----------------------
#
# The axis itself need not be broken: without fusion, say, a miscompiled kernel is never made.


@dataclass(frozen=True)
class SuppressingAxis:
    """An axis that suppresses a failure, and its decisive application."""

    axis: str
    stage: str
    title: str
    # Empty if unknown, or if the axis acts as a whole.
    application: str = ""
    # How precisely the axis points at its stage; lower is more precise.
    rank: int = 0
    rewrites_graph: bool = False
    # Whether `application` is the name of a pass.
    names_passes: bool = False
    # Whether `application` is the name of an operation.
    names_operations: bool = False


def most_telling(
    axes: Sequence[SuppressingAxis], *, graphs_are_right: bool
) -> SuppressingAxis | None:
    """Return the axis that best indicates the stage; right graphs rule out axes that rewrite them.

    If graphs may be wrong, axes that rewrite them come first: kernels only pass on their errors.
    """
    return min(
        axes, key=lambda axis: (axis.rewrites_graph is graphs_are_right, axis.rank), default=None
    )
