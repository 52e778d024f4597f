"""Sums that are collected with atomic additions.

What it finds: a C++ loop over at least 65,536 elements that adds to places that an index names
(`index_add`, `scatter_add`, the gradient of an embedding or of an indexing).

Why it matters: several threads may add to the same place, so each addition is atomic, and they wait
for each other. Eager has kernels that avoid this. Few places with many additions are the worst.

Example: `torch.zeros(7, d).index_add(0, where, x)`.

What to do: Leave this operation to eager if 'inductoscope profile --advise SCRIPT' shows that it is
faster, or sort by the index first (`segment_reduce`, a matrix product with one-hot rows).
"""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.analysis.rules.scalar_loop import FEWEST
from inductoscope.model.entities import Recording
from inductoscope.model.join import KernelPlace, kernel_places
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.cpp_loops import loop_nests

_ATOMIC = "atomic_add"
# Operations that become atomic additions, as they are called in the graph.
_COLLECTING = ("index_add", "scatter", "index_put", "embedding_dense_backward")


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per kernel."""
    for place in kernel_places(recording, "C++"):
        source = recording.payload(place.kernel.digest)
        if _ATOMIC not in source:
            continue
        counts = [
            nest.elements
            for nest in loop_nests(source)
            if any(line.startswith(_ATOMIC) for line in nest.loop.own_lines)
        ]
        if max(counts, default=0) >= FEWEST:
            yield _finding(place, max(counts))


def _finding(place: KernelPlace, elements: int) -> Finding:
    names = [node.operation for node in place.operations]
    operation = next((n for n in names for known in _COLLECTING if known in n), "")
    where, code = place.line(operation)
    return Finding(
        rule="atomic_adds",
        title=f"{operation or 'A sum'} adds {elements:,} values one by one, each atomically",
        is_problem=False,
        confidence="proven",
        evidence=(f"kernel {place.kernel.name}: {_ATOMIC} in its innermost loop",),
        advice="Leave this operation to eager if that is faster, or sort by the index first.",
        stage=stages.CODEGEN,
        source=where,
        compile=place.compile.id,
        code=code,
    )
