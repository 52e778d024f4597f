"""C++ loops that take one element at a time.

What it finds: a loop of a generated C++ kernel over at least 65,536 elements that is not
vectorized, and why not: the setting that forbids it, the type that has no vector form, the
elements that do not lie side by side in memory.

Why it matters: vector instructions take 4 to 16 elements at once. Without them a loop that computes
is several times slower.

Example: `torch._inductor.config.cpp.simdlen = 1`, or a tensor of int16 among float tensors.

What to do: The finding names what to change. 'inductoscope profile --advise SCRIPT' tries it out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Recording
from inductoscope.model.join import KernelPlace, kernel_places
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.cpp_loops import LoopNest, loop_nests
from inductoscope.verdicts import Confidence

# Fewer elements take less time than a call of the kernel from Python.
FEWEST = 1 << 16
SIMDLEN = "torch._inductor.config.cpp.simdlen"

# As Inductor spells the types that it has no vector form for.
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
# What the call of a C++ compiler has if the machine has vector instructions.
_INSTRUCTIONS = "CPU_CAPABILITY_"


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per kernel, about its longest scalar loop."""
    for place in kernel_places(recording, "C++"):
        source = recording.payload(place.kernel.digest)
        nests = [nest for nest in loop_nests(source) if _is_slow(nest)]
        if nests:
            yield _finding(recording, place, source, max(nests, key=lambda nest: nest.elements))


def _is_slow(nest: LoopNest) -> bool:
    # A loop that does not begin at 0 is what is left over from a vectorized one.
    return not nest.is_vectorized and nest.loop.start == 0 and nest.elements >= FEWEST


def _finding(recording: Recording, place: KernelPlace, source: str, nest: LoopNest) -> Finding:
    why, advice, confidence = _why(recording, place, source, nest)
    where, code = place.line()
    return Finding(
        rule="scalar_loop",
        title=f"A loop over {nest.elements:,} elements is not vectorized: {why}",
        is_problem=False,
        confidence=confidence,
        evidence=(
            f"kernel {place.kernel.name}: the loop over {nest.loop.variable} goes up by 1, and no "
            "line of it uses at::vec",
        ),
        advice=advice,
        stage=stages.CODEGEN,
        source=where,
        compile=place.compile.id,
        code=code,
    )


def _why(
    recording: Recording, place: KernelPlace, source: str, nest: LoopNest
) -> tuple[str, str, Confidence]:
    settings = place.compile.settings.config if place.compile.settings else {}
    if settings.get(SIMDLEN) in ("0", "1"):
        return (
            f"the program sets cpp.simdlen = {settings[SIMDLEN]}",
            "Leave torch._inductor.config.cpp.simdlen as it is: None.",
            "proven",
        )
    if _has_no_instructions(recording):
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
    if apart := _lies_apart(nest):
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


def _has_no_instructions(recording: Recording) -> bool:
    commands = [each.command for each in recording.natives if each.tool == "c++" and each.command]
    return bool(commands) and not any(_INSTRUCTIONS in command for command in commands)


def _scalar_types(source: str, nest: LoopNest) -> list[str]:
    """Types in the loop that Inductor cannot vectorize."""
    types = {name: kind for kind, name in _POINTER.findall(source)}
    text = "\n".join(nest.loop.own_lines)
    used = {kind for name, kind in types.items() if f"{name}[" in text}
    used |= set(_CONVERTED.findall(text))
    return [name for kind, name in _SCALAR_TYPES.items() if kind in used]


def _lies_apart(nest: LoopNest) -> str:
    """A buffer that the inner loop walks through in steps."""
    factor = re.compile(rf"\d+L\*{nest.loop.variable}\b|\b{nest.loop.variable}\*\d+L")
    for line in nest.loop.own_lines:
        for name, index in _ACCESS.findall(line):
            if factor.search(index):
                return str(name)
    return ""
