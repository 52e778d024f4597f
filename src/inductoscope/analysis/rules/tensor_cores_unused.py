"""Matrix products in float32 on a GPU without its tensor cores.

What it finds: a matrix product of float32 matrices whose autotuned choices were all compiled with
ALLOW_TF32=False.

Why it matters: NVIDIA GPUs since A100 compute float32 products several times faster with TF32,
which keeps 10 of the 23 bits of the fraction.

Example: a model in float32 that does not call `torch.set_float32_matmul_precision`.

What to do: `torch.set_float32_matmul_precision("high")` if your model tolerates it, or bfloat16.
'inductoscope profile --advise SCRIPT' tries it, also where nothing was autotuned.
"""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import (
    Autotune,
    Compile,
    InductorGraph,
    Recording,
)
from inductoscope.model.fx import FxNode, read_graph
from inductoscope.model.join import final_graph, place_of
from inductoscope.recording.values import members
from inductoscope.torch_facts import stages
from inductoscope.wording import count_of

_ASKED, _REFUSED = "ALLOW_TF32", "ALLOW_TF32=False"


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per graph."""
    for compile_ in recording.compiles:
        for graph in compile_.inductor:
            products = {tuned.operation for tuned in graph.autotunes if _is_without(tuned)}
            if products:
                yield from _check_graph(recording, compile_, graph, products)


def _is_without(tuned: Autotune) -> bool:
    told = [choice.description for choice in tuned.choices if _ASKED in choice.description]
    return bool(told) and all(_REFUSED in description for description in told)


def _check_graph(
    recording: Recording, compile_: Compile, graph: InductorGraph, products: set[str]
) -> Iterator[Finding]:
    final = read_graph(recording, final_graph(compile_, graph))
    single = [
        node.name
        for node in (final.calls if final else ())
        if node.operation in products and _is_single_precision(node)
    ]
    if not single:
        return
    where, code = place_of(recording, compile_, graph, single)
    yield Finding(
        rule="tensor_cores_unused",
        title=f"{count_of(len(single), 'matrix product')} in float32 without the tensor cores",
        is_problem=False,
        confidence="proven",
        evidence=(f"{', '.join(single[:4])}: every choice was compiled with {_REFUSED}",),
        advice='torch.set_float32_matmul_precision("high") uses TF32, with about 3 decimal digits; '
        "bfloat16 is faster still.",
        stage=stages.AUTOTUNE,
        source=where,
        compile=compile_.id,
        code=code,
    )


def _is_single_precision(node: FxNode) -> bool:
    value = members(node.value)
    on_gpu = str(value.get("device", "")).startswith("cuda")
    return on_gpu and value.get("dtype") == "torch.float32"
