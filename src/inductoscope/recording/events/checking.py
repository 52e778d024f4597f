"""Events that the doctor writes from inside the program."""

from __future__ import annotations

from dataclasses import dataclass

from inductoscope.recording.events.base import Event

# Stands before the name of a package that another process has made, in the place of a compile.
FROM_ELSEWHERE = "package "
# Verdicts on a call with inputs that the graph was not compiled for.
OUTSIDE, WRONG_OUTSIDE = "outside", "wrong-outside"
# Verdict on a call that is wrong outside, and right with copies of the constants it was given.
RIGHT_WITH_COPIES = "right-with-copies"
# Verdict on a call that there was to be, had torch taken the constants that it was given.
REJECTED = "rejected"
# Verdicts on a call that torch's own check for NaN refuses: for good reason, or so it seems.
NAN_REFUSED, NAN_LIKELY = "nan-refused", "nan-likely"


@dataclass(frozen=True, kw_only=True)
class GraphCall(Event):
    """A checked call of a compiled graph begins."""

    kind = "graph-call"
    compile: str
    call: int


@dataclass(frozen=True, kw_only=True)
class GraphReturned(Event):
    """A checked call of a compiled graph ends."""

    kind = "graph-returned"
    compile: str
    call: int


@dataclass(frozen=True, kw_only=True)
class EagerReturned(Event):
    """Eager is through with the call; compiled code comes next."""

    kind = "eager-returned"
    seconds: float


@dataclass(frozen=True, kw_only=True)
class CallsUnchecked(Event):
    """A graph has been called more often than calls are checked."""

    kind = "calls-unchecked"
    compile: str


@dataclass(frozen=True, kw_only=True)
class SizesTried(Event):
    """A package was called at sizes that the program does not use. text: which graph and sizes."""

    kind = "sizes-tried"
    text: str


@dataclass(frozen=True, kw_only=True)
class CallChecked(Event):
    """A call of a compiled graph was compared with eager.

    verdict: right, within-rounding, unsteady, skipped, eager-fails, wrong, error; outside, before a
    call with inputs that it was not compiled for, and wrong-outside if it is then wrong;
    right-with-copies, if it is right once constants that are views are replaced by copies;
    rejected, if torch raised an error instead of taking new constants before it;
    nan-refused, if nan_asserts raised because of the program's own NaN; nan-likely, if there is
    such NaN, but it may not be what it raised for; is_exact: the same to the last bit; eager,
    compiled: seconds of the call, with its backward pass.
    """

    kind = "check"
    compile: str
    call: int
    verdict: str
    text: str
    is_exact: bool | None = None
    eager: float = 0.0
    compiled: float = 0.0


@dataclass(frozen=True, kw_only=True)
class DifferenceNoted(Event):
    """A result differs from eager's, which is not a failure. where: an output, or a kernel.

    aspect: stride or sharing, if it lies otherwise in memory; value, if a kernel differs by more
    than rounding explains, though the results do not.
    """

    kind = "difference"
    compile: str
    call: int
    aspect: str
    where: str
    text: str


@dataclass(frozen=True, kw_only=True)
class CppLibraryTaken(Event):
    """A package brings a copy of libstdc++: the one that torch uses was made to come first.

    package: its file, empty if it was only compiled so far; source: the line that loads it.
    """

    kind = "cpp-library-taken"
    package: str = ""
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class CallableChecked(Event):
    """A whole function was compared with eager. verdict: right, differs."""

    kind = "callable-check"
    function: str
    call: int
    verdict: str
    text: str


@dataclass(frozen=True, kw_only=True)
class KernelLaunched(Event):
    """A kernel is about to run, in a process that tries something out."""

    kind = "launch"
    kernel: str


@dataclass(frozen=True, kw_only=True)
class CallShadowed(Event):
    """A call of a compiled graph was also made in eager and float64, by the sentinel.

    spent, seen: seconds that shadowing has taken so far, and that the program had for itself.
    """

    kind = "shadow"
    compile: str
    call: int
    values: int
    spent: float
    seen: float


@dataclass(frozen=True, kw_only=True)
class ShadowsEnded(Event):
    """The sentinel shadows no more calls of a graph, and says why."""

    kind = "shadows-ended"
    compile: str
    text: str


@dataclass(frozen=True, kw_only=True)
class BiasFound(Event):
    """The error of a value of a compiled graph always points the same way. kept: the folder of the
    call."""

    kind = "bias"
    compile: str
    value: str
    direction: str
    bias: float
    call: int
    shadowed: int
    text: str
    kept: str
