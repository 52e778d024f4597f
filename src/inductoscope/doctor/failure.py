"""Failures, their locations and signatures: two are the same bug only if signatures agree.

A search that went by exit codes alone would slide from one bug to another.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from inductoscope.torch_facts import stages

WRONG, NAN, ERROR, SIGNAL, HANG = "wrong", "nan", "error", "signal", "hang"
# Compiling takes far longer than it should, and ends.
SLOW = "slow"

# A graph of so few nodes is compiled in a second or two.
FEW_NODES = 20

_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
_NAMES = re.compile(r"'[^']*'|\"[^\"]*\"|\b\w*\d+\w*\b")


@dataclass(frozen=True)
class WrongValue:
    """An element of a wrong result: the furthest off, or the first that is not finite."""

    where: str
    index: tuple[int, ...]
    # Texts, because JSON has no NaN and no infinity. `expected` is eager's value.
    actual: str
    expected: str
    float64: str = ""
    # Elements of the result that are wrong, and all that it has.
    wrong: int = 0
    elements: int = 0


@dataclass(frozen=True)
class Failure:
    """A failure of a candidate that is compiled and run."""

    kind: str
    text: str
    stage: str = ""
    # For a wrong result: value, dtype, stride …; for an error: the innermost exception's type.
    aspect: str = ""
    # The compiler's function that raised, or the kernel that was entered last.
    function: str = ""
    message: str = ""
    detail: str = ""
    # For a wrong result: which outputs or inputs differ, what is said of them, and by how much.
    where: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    largest: float = 0.0
    allowed: float = 0.0
    values: tuple[WrongValue, ...] = ()
    # Functions on the stack, innermost first.
    functions: tuple[str, ...] = ()
    # What the native compiler printed.
    messages: tuple[str, ...] = ()
    # The last stage that ended before an error between two stages.
    after: str = ""
    # For a hang: seconds until the stage was entered in which it hangs.
    entered_at: float | None = None
    # Whether memory held NaN at first, so that a value which was never written shows as NaN.
    memory_was_filled: bool = False

    def is_same_as(self, other: Failure) -> bool:
        """Check whether both are signs of one bug."""
        if self.kind != other.kind:
            was_filled = self.memory_was_filled or other.memory_was_filled
            return was_filled and {self.aspect, other.aspect} == {"value", "nan"}
        if self.kind in (WRONG, NAN):
            return self.aspect == other.aspect
        if self.kind == ERROR:
            alike = self.function == other.function or self._words == other._words
            return self.aspect == other.aspect and alike
        if self.kind == SIGNAL:
            return self.aspect == other.aspect
        return self.stage == other.stage

    @property
    def _words(self) -> str:
        """The message without what differs from graph to graph."""
        return _NAMES.sub("", _NUMBERS.sub("", self.message.partition("\n")[0]))[:200]

    def updated_with(self, other: Failure) -> Failure:
        """This failure with all that another sign of the same bug adds."""
        if self.kind != other.kind:
            return self  # The program is wrong its own way, whatever a graph in filled memory does.
        return replace(self, **{name: value for name, value in vars(other).items() if value})


# What an error says that lies with the machine or its settings, and what to do about it.
_MISSING = (
    ("InvalidCxxCompiler", "Install g++ or clang++, or name one that works in CXX."),
    ("TritonMissing", "Install triton for this torch."),
    (
        "is not a valid IntermediateValueDebuggingLevel",
        "This torch does not know that value of AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER: "
        "choose another, or unset it.",
    ),
)
# The same, while something is compiled; a graph that runs may itself ask for too much.
_SHORT_OF = (
    ("No space left on device", "Free some space there, or choose another TMPDIR."),
    ("Disk quota exceeded", "Free some space there, or choose another TMPDIR."),
    ("Killed signal terminated program", "Memory ran out: give the native compiler more of it."),
    ("Cannot allocate memory", "Memory ran out: let less run at the same time."),
)


def advice_on_machine(failure: Failure) -> str:
    """Advice on a failure that is the machine's, not the compiler's; "" for any other."""
    if failure.kind != ERROR:
        return ""
    said = f"{failure.aspect}: {failure.message} {failure.text}"
    signs = (
        *_MISSING,
        *(_SHORT_OF if failure.stage not in (stages.WRAPPER, stages.RUNTIME) else ()),
    )
    return next((advice for sign, advice in signs if sign in said), "")


# What a GPU answers to a second process that wants to use it.
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
    """Why nothing could be tried on a GPU, and what to do; "" for any other mistake."""
    said = mistake.strip().rpartition("CUDA error: ")[2] if "CUDA error: " in mistake else ""
    said = said or (mistake if "CUDA out of memory" in mistake else "")
    return next((advice for sign, advice in _NO_SECOND_PROCESS if sign in said), "")


_DEVICE_ERROR = re.compile(r"CUDA (?:driver )?error: ([^\n]+)")
# After these a process cannot use the GPU any more.
_LOSES_DEVICE = (
    "illegal memory access", "illegal address", "illegal instruction", "misaligned address",
    "device-side assert", "unspecified launch failure", "invalid program counter",
    "hardware stack error",
)  # fmt: skip


def device_error(message: str) -> str:
    """The error of a GPU after which the process cannot use it; "" for any other message."""
    found = _DEVICE_ERROR.search(message)
    said = found[1].strip() if found else ""
    return said if any(words in said for words in _LOSES_DEVICE) else ""


# --- Where in the compiler something goes wrong ---------------------------------------------------


@dataclass(frozen=True)
class Location:
    """The place in the compiler that makes a failure, as far as it is known."""

    stage: str = ""
    operation: str = ""
    pass_name: str = ""
    kernel: str = ""
    # The buffer of the kernel that is wrong first, and whether another kernel has made it.
    buffer: str = ""
    is_overwritten: bool = False
    function: str = ""
    text: str = ""
    # How it was established.
    how: str = ""
    # Nodes of the candidate that may be to blame.
    suspects: tuple[str, ...] = ()
    # All of its nodes that went into the kernel.
    of_kernel: tuple[str, ...] = ()
    # Patterns and passes inside the pass, or operations inside the kernel.
    names: tuple[str, ...] = ()
    # Operations inside the kernel that are wrong when they are compiled on their own.
    wrong_alone: tuple[str, ...] = ()
    # Operations that a pass took out, and that it put in.
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    # A pass that is not torch's: its function, and where that is.
    own_pass: str = ""
    # Whether every pass and every decomposition was compared, and is right.
    graphs_are_right: bool = False

    @property
    def is_known(self) -> bool:
        """Whether a stage was found."""
        return bool(self.stage)


# --- An axis without which a failure vanishes: a hint at the stage to blame -----------------------
#
# It need not be what is broken: without fusion, say, a kernel that is miscompiled is never made.


@dataclass(frozen=True)
class SuppressingAxis:
    """An axis as the doctor outside knows it, and the one application that matters."""

    axis: str
    stage: str
    title: str
    # Empty if it is not known, or if the axis acts as a whole.
    application: str = ""
    # How precisely it points at its stage: the lowest is the most telling.
    rank: int = 0
    rewrites_graph: bool = False
    # Whether `application` is the name of a pass.
    names_passes: bool = False
    # Whether `application` is the name of an operation.
    names_operations: bool = False


def most_telling(
    axes: Sequence[SuppressingAxis], *, graphs_are_right: bool
) -> SuppressingAxis | None:
    """The axis that says most about where the failure is; graphs that are right are not to blame.

    Otherwise whoever rewrites a graph comes first: what is wrong with it, kernels only pass on.
    """
    return min(
        axes, key=lambda axis: (axis.rewrites_graph is graphs_are_right, axis.rank), default=None
    )
