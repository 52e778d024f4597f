"""Costly functions that are computed more often than the program asks for.

What it finds: a C++ kernel that computes a costly function (sin, exp, tanh, pow …) over at least
65,536 elements, more than twice as often as the graph does, in at least 4 more places.

Why it matters: Inductor puts the computation of a value into every loop that reads it, to save
memory traffic. Where several loops read a value that is costly to compute, each computes it again.

Example: a loop of `x = sin(x) * 0.5 + x; x = x - x.sum(-1, keepdim=True)`: in step n, all n
functions are computed again.

What to do: Have values kept: lower `torch._inductor.config.realize_opcount_threshold` (30), or
break the chain with an operation that is not fused. 'inductoscope profile --advise SCRIPT' tries
it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.analysis.rules.scalar_loop import FEWEST
from inductoscope.model.entities import Recording
from inductoscope.model.join import KernelPlace, kernel_places
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.cpp_loops import CppLoop, loop_nests

# Functions that take tens of instructions for each element.
COSTLY = (
    "sin", "cos", "tan", "tanh", "exp", "expm1", "log", "log1p", "pow", "erf", "erfc", "lgamma",
    "asin", "acos", "atan", "sinh", "cosh", "digamma",
)  # fmt: skip
_CALL = re.compile(rf"(?:\.|std::)({'|'.join(COSTLY)})\(")
_FACTOR, _MORE = 2, 4
# Operations that use one of these functions inside.
_WITHIN = {"sigmoid": "exp", "softmax": "exp", "gelu": "erf", "silu": "exp", "log_softmax": "exp"}


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per kernel, about the function that is recomputed most."""
    for place in kernel_places(recording, "C++"):
        written: Counter[str] = Counter()
        for nest in loop_nests(recording.payload(place.kernel.digest)):
            if nest.elements >= FEWEST:
                written.update(_CALL.findall(_main_part(nest.loop)))
        wanted = Counter(_function(node.operation) for node in place.operations)
        often = {
            name: count
            for name, count in written.items()
            if wanted[name] and count > _FACTOR * wanted[name] and count >= wanted[name] + _MORE
        }
        if often:
            name = max(often, key=lambda name: often[name])
            yield _finding(place, name, often[name], wanted[name])


def _main_part(loop: CppLoop) -> str:
    """Its body without the form for the elements that do not fill a vector."""
    return "\n".join(loop.own_lines).partition("C10_UNLIKELY")[0]


def _function(operation: str) -> str:
    return _WITHIN.get(operation, operation)


def _finding(place: KernelPlace, name: str, written: int, wanted: int) -> Finding:
    where, code = place.line(name)
    return Finding(
        rule="recomputed",
        title=f"{name} is computed in {written} places of a kernel; the graph asks for {wanted}",
        is_problem=False,
        confidence="proven",
        evidence=(f"kernel {place.kernel.name}: {written} calls of {name} in its innermost loops",),
        advice="Have values kept instead: torch._inductor.config.realize_opcount_threshold = 4.",
        stage=stages.LOWERING,
        source=where,
        compile=place.compile.id,
        code=code,
    )
