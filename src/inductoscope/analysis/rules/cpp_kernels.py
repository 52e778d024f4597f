"""Rules about the loops of generated C++ kernels."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Recording
from inductoscope.model.join import KernelPlace, kernel_places
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.cpp_loops import CppLoop, LoopNest, loop_nests, read_loops
from inductoscope.verdicts import Confidence

# A loop over fewer elements takes less time than calling the kernel from Python.
FEWEST = 1 << 16


def _long_nests(recording: Recording) -> Iterator[tuple[KernelPlace, str, list[LoopNest]]]:
    """Yield every C++ kernel with its source and its loops over many elements."""
    for place in kernel_places(recording, "C++"):
        source = recording.payload(place.kernel.payload)
        yield place, source, [nest for nest in loop_nests(source) if nest.elements >= FEWEST]


# --- loops without vectors ------------------------------------------------------------------------

SIMDLEN = "torch._inductor.config.cpp.simdlen"
# Types without a vector form, as Inductor spells them.
_SCALAR_TYPES = {
    "int16_t": "int16",
    "uint16_t": "uint16",
    "uint32_t": "uint32",
    "uint64_t": "uint64",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
}
_POINTER = re.compile(r"(?:const )?([\w:<>]+)\* (\w+_ptr\d+)")
_CONVERTED = re.compile(r"(?:c10::convert|static_cast)<([\w:<>]+?)>\(")
_ACCESS = re.compile(r"(\w+_ptr\d+)\[static_cast<int64_t>\((.+?)\)\]")
# A macro in the compiler's command if the machine has vector instructions.
_INSTRUCTIONS = "CPU_CAPABILITY_"


def scalar_loop(recording: Recording) -> Iterator[Finding]:
    """C++ loops that take one element at a time.

    What it finds: a loop of a generated C++ kernel over at least 65,536 elements that is not
    vectorized, and why not: the setting that forbids it, the type that has no vector form, the
    elements that do not lie side by side in memory.

    Why it matters: vector instructions take 4 to 16 elements at once. Without them a loop that
    computes is several times slower.

    Example: `torch._inductor.config.cpp.simdlen = 1`, or a tensor of int16 among float tensors.

    What to do: The finding names what to change. 'inductoscope profile --advise SCRIPT' tries it
    out.
    """
    for place, source, nests in _long_nests(recording):
        # A loop that does not begin at 0 is the tail of a vectorized one.
        slow = [nest for nest in nests if not nest.is_vectorized and nest.loop.start == 0]
        if not slow:
            continue
        nest = max(slow, key=lambda nest: nest.elements)
        why, advice, confidence = _why_scalar(recording, place, source, nest)
        yield Finding(
            title=f"A loop over {nest.elements:,} elements is not vectorized: {why}",
            confidence=confidence,
            evidence=(
                f"kernel {place.kernel.name}: the loop over {nest.loop.variable} goes up by 1, and "
                "no line of it uses at::vec",
            ),
            advice=advice,
            stage=stages.CODEGEN,
        ).at(place.compile.id, *place.line())


def _why_scalar(
    recording: Recording, place: KernelPlace, source: str, nest: LoopNest
) -> tuple[str, str, Confidence]:
    settings = place.compile.settings.config if place.compile.settings else {}
    if settings.get(SIMDLEN) in ("0", "1"):
        return (
            f"the program sets cpp.simdlen = {settings[SIMDLEN]}",
            "Leave torch._inductor.config.cpp.simdlen as it is: None.",
            "proven",
        )
    commands = [each.command for each in recording.natives if each.tool == "c++" and each.command]
    if commands and not any(_INSTRUCTIONS in command for command in commands):
        return (
            "torch found no vector instructions on this machine",
            "'inductoscope env' shows what the C++ compiler can do here.",
            "proven",
        )
    types = _scalar_types(source, nest)
    if types:
        return (
            f"Inductor has no vector form of {' and '.join(types)}",
            "Convert to a type that has one, such as int32 or float32, before the loop.",
            "likely",
        )
    if apart := _strided_buffer(nest):
        return (
            f"{apart} does not lie side by side in memory along the inner loop",
            "Give the inputs one memory order (contiguous, or channels_last everywhere), or set "
            "torch._inductor.config.cpp.enable_tiling_heuristics = False.",
            "likely",
        )
    return (
        "Inductor decided so; why is not recorded",
        "Try torch._inductor.config.cpp.enable_tiling_heuristics = False.",
        "proven",
    )


def _scalar_types(source: str, nest: LoopNest) -> list[str]:
    text = "\n".join(nest.loop.own_lines)
    used = {kind for kind, name in _POINTER.findall(source) if f"{name}[" in text}
    used |= set(_CONVERTED.findall(text))
    return [name for kind, name in _SCALAR_TYPES.items() if kind in used]


def _strided_buffer(nest: LoopNest) -> str:
    factor = re.compile(rf"\d+L\*{nest.loop.variable}\b|\b{nest.loop.variable}\*\d+L")
    accesses = (found for line in nest.loop.own_lines for found in _ACCESS.findall(line))
    return next((str(name) for name, index in accesses if factor.search(index)), "")


# --- what a loop computes -------------------------------------------------------------------------

_UNPACKED = re.compile(r"tmpbuf_out\[i\] = ([\w:]+?)(?:<[^>]*>)?\(")
_ATOMIC = "atomic_add"
# The graph's names of operations that become atomic additions.
_COLLECTING = ("index_add", "scatter", "index_put", "embedding_dense_backward")
# Functions that take tens of instructions for each element.
COSTLY = (
    "sin", "cos", "tan", "tanh", "exp", "expm1", "log", "log1p", "pow", "erf", "erfc", "lgamma",
    "asin", "acos", "atan", "sinh", "cosh", "digamma",
)  # fmt: skip
_CALL = re.compile(rf"(?:\.|std::)({'|'.join(COSTLY)})\(")
_FACTOR, _MORE = 2, 4
# Operations that use one of these functions inside.
_WITHIN = {"sigmoid": "exp", "softmax": "exp", "gelu": "erf", "silu": "exp", "log_softmax": "exp"}


def element_by_element(recording: Recording) -> Iterator[Finding]:
    """Functions that a vectorized C++ loop computes one element at a time.

    What it finds: a vectorized loop over at least 65,536 elements that unpacks its vectors for one
    function, because Inductor has no vector form of it.

    Why it matters: packing and unpacking costs more than the vectors save. Eager may have a faster
    kernel for the function.

    Example: `torch.special.i1e`, `torch.special.bessel_j0`.

    What to do: Leave this one operation to eager if 'inductoscope profile --advise SCRIPT' shows
    that it is faster, or use another function.
    """
    for place, _, nests in _long_nests(recording):
        found: dict[str, int] = {}
        for nest in nests:
            for function in _UNPACKED.findall("\n".join(nest.loop.own_lines)):
                found[function] = max(found.get(function, 0), nest.elements)
        for function, elements in found.items():
            operation = function.rpartition("::")[2].removeprefix("calc_")
            yield Finding(
                title=f"{operation} is computed one element at a time, {elements:,} of them, in a "
                "loop that is otherwise vectorized",
                evidence=(f"kernel {place.kernel.name}: tmpbuf_out[i] = {function}(…)",),
                advice=f"Inductor has no vector form of {operation}. Leave it to eager if that is "
                "faster, or use another function.",
                stage=stages.CODEGEN,
            ).at(place.compile.id, *place.line(operation))


def atomic_adds(recording: Recording) -> Iterator[Finding]:
    """Sums that are collected with atomic additions.

    What it finds: a C++ loop over at least 65,536 elements that adds to places that an index names
    (`index_add`, `scatter_add`, the gradient of an embedding or of an indexing).

    Why it matters: several threads may add to the same place, so each addition is atomic, and they
    wait for each other. Eager has kernels that avoid this. Few places with many additions are the
    worst.

    Example: `torch.zeros(7, d).index_add(0, where, x)`.

    What to do: Leave this operation to eager if 'inductoscope profile --advise SCRIPT' shows that
    it is faster, or sort by the index first (`segment_reduce`, a matrix product with one-hot rows).
    """
    for place, _, nests in _long_nests(recording):
        counts = [
            nest.elements
            for nest in nests
            if any(line.startswith(_ATOMIC) for line in nest.loop.own_lines)
        ]
        if not counts:
            continue
        names = [node.operation for node in place.operations]
        operation = next((n for n in names for known in _COLLECTING if known in n), "")
        yield Finding(
            title=f"{operation or 'A sum'} adds {max(counts):,} values one by one, each atomically",
            evidence=(f"kernel {place.kernel.name}: {_ATOMIC} in its innermost loop",),
            advice="Leave this operation to eager if that is faster, or sort by the index first.",
            stage=stages.CODEGEN,
        ).at(place.compile.id, *place.line(operation))


def recomputed(recording: Recording) -> Iterator[Finding]:
    """Costly functions that are computed more often than the program asks for.

    What it finds: a C++ kernel that computes a costly function (sin, exp, tanh, pow …) over at
    least 65,536 elements, more than twice as often as the graph does, in at least 4 more places.

    Why it matters: Inductor puts the computation of a value into every loop that reads it, to save
    memory traffic. Where several loops read a value that is costly to compute, each computes it
    again.

    Example: a loop of `x = sin(x) * 0.5 + x; x = x - x.sum(-1, keepdim=True)`: in step n, all n
    functions are computed again.

    What to do: Have values kept: lower `torch._inductor.config.realize_opcount_threshold` (30), or
    break the chain with an operation that is not fused. 'inductoscope profile --advise SCRIPT'
    tries it.
    """
    for place, _, nests in _long_nests(recording):
        written = Counter(name for nest in nests for name in _CALL.findall(_main_part(nest.loop)))
        names = (node.operation for node in place.operations)
        wanted = Counter(_WITHIN.get(name, name) for name in names)
        often = {
            name: count
            for name, count in written.items()
            if wanted[name] and count > _FACTOR * wanted[name] and count >= wanted[name] + _MORE
        }
        if not often:
            continue
        name, count = max(often.items(), key=lambda item: item[1])
        yield Finding(
            title=f"{name} is computed in {count} places of a kernel; the graph asks for "
            f"{wanted[name]}",
            evidence=(
                f"kernel {place.kernel.name}: {count} calls of {name} in its innermost loops",
            ),
            advice="Have values kept instead: "
            "torch._inductor.config.realize_opcount_threshold = 4.",
            stage=stages.LOWERING,
        ).at(place.compile.id, *place.line(name))


def _main_part(loop: CppLoop) -> str:
    """Return the body without the code for the tail elements."""
    return "\n".join(loop.own_lines).partition("C10_UNLIKELY")[0]


# --- threads --------------------------------------------------------------------------------------

_FEWEST_STARTS = 8


def threads_restarted(recording: Recording) -> Iterator[Finding]:
    """Threads that are started and waited for again and again within one kernel.

    What it finds: a C++ kernel with a parallel region inside a loop, which is entered at least 8
    times per call.

    Why it matters: Each time, all threads start, share a small piece of work and wait for each
    other. Eager shares out the outer loop instead, once.

    Example: a normalization or reduction with few, long rows: `GroupNorm` on 40 groups of 50,000
    elements.

    What to do: Leave the operation to eager, or run it on one thread, if 'inductoscope profile
    --advise SCRIPT' shows that it is faster.
    """
    for place in kernel_places(recording, "C++"):
        loops = read_loops(recording.payload(place.kernel.payload))
        starts = max((count for loop in loops for count in _starts((), loop)), default=0)
        if starts >= _FEWEST_STARTS:
            yield Finding(
                title=f"A kernel starts and stops its threads {starts:,} times per call",
                evidence=(
                    f"kernel {place.kernel.name}: '#pragma omp parallel' inside a loop of "
                    f"{starts:,} rounds",
                ),
                advice="Inductor shares out the inner loop because the outer one has too few "
                "rounds for its heuristic. Leave the operation to eager if that is faster.",
                stage=stages.CODEGEN,
            ).at(place.compile.id, *place.line("norm"))


def _starts(outer: tuple[CppLoop, ...], loop: CppLoop) -> Iterator[int]:
    """Return how often each parallel region inside a loop is entered per call."""
    around = (*outer, loop)
    if loop.starts_threads:
        yield math.prod(one.elements for one in around)
    for inner in loop.inner:
        yield from _starts(around, inner)
