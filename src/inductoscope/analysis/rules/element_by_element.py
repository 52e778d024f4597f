"""Functions that a vectorized C++ loop computes one element at a time.

What it finds: a vectorized loop over at least 65,536 elements that unpacks its vectors for one
function, because Inductor has no vector form of it.

Why it matters: packing and unpacking costs more than the vectors save. Eager may have a faster
kernel for the function.

Example: `torch.special.i1e`, `torch.special.bessel_j0`.

What to do: Leave this one operation to eager if 'inductoscope profile --advise SCRIPT' shows that
it is faster, or use another function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.analysis.rules.scalar_loop import FEWEST
from inductoscope.model.entities import Recording
from inductoscope.model.join import KernelPlace, kernel_places
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.cpp_loops import loop_nests

_UNPACKED = re.compile(r"tmpbuf_out\[i\] = ([\w:]+?)(?:<[^>]*>)?\(")


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per kernel and function."""
    for place in kernel_places(recording, "C++"):
        found: dict[str, int] = {}
        for nest in loop_nests(recording.payload(place.kernel.digest)):
            text = "\n".join(nest.loop.own_lines)
            for function in _UNPACKED.findall(text) if nest.elements >= FEWEST else ():
                found[function] = max(found.get(function, 0), nest.elements)
        for function, elements in found.items():
            yield _finding(place, function, elements)


def _finding(place: KernelPlace, function: str, elements: int) -> Finding:
    operation = function.rpartition("::")[2].removeprefix("calc_")
    where, code = place.line(operation)
    return Finding(
        rule="element_by_element",
        title=f"{operation} is computed one element at a time, {elements:,} of them, in a loop "
        "that is otherwise vectorized",
        is_problem=False,
        confidence="proven",
        evidence=(f"kernel {place.kernel.name}: tmpbuf_out[i] = {function}(…)",),
        advice=f"Inductor has no vector form of {operation}. Leave it to eager if that is faster, "
        "or use another function.",
        stage=stages.CODEGEN,
        source=where,
        compile=place.compile.id,
        code=code,
    )
