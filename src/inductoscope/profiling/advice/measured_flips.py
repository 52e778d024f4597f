"""Decisions that are worth changing because of what the profile measured, not what a rule found."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

from inductoscope.profiling.advice.evidence import RecordedEvidence
from inductoscope.profiling.advice.flip import Flip
from inductoscope.profiling.kernels.profile import KernelProfile
from inductoscope.vocabulary.counting import count_of

TORCH_NAMES = {
    "torch._inductor.config": ("freezing", "max_autotune"),
}

# Products that lose less of the kernels' time than this are fast enough.
_LEAST_SHARE = 0.1
_STATIC = """
import torch._dynamo
compile_function = torch.compile
def compile_for_each_size(*args, **kwargs):
    kwargs["dynamic"] = False
    return compile_function(*args, **kwargs)
torch.compile = compile_for_each_size
"""
_MAX_AUTOTUNE = "torch._inductor.config.max_autotune"
_FREEZING = "torch._inductor.config.freezing"


def static_sizes(evidence: RecordedEvidence) -> Iterator[Flip]:
    """A graph that is compiled for any size, and that is always called with the same."""
    by_graph: dict[str, list[int]] = {}
    for number, graph in enumerate(evidence.graphs):
        if graph.sizes and graph.calls:
            by_graph.setdefault(graph.graph, []).append(number)
    for numbers in by_graph.values():
        graph = evidence.graphs[numbers[0]]
        if len(numbers) > 1 or graph.other_sizes:
            continue
        sizes = ", ".join(f"{name} = {size}" for name, size in graph.sizes.items())
        yield Flip(
            "torch.compile(dynamic=False)",
            f"{graph.function} is compiled for any size; all {count_of(graph.calls, 'timed call')} "
            f"had {sizes}",
            source=graph.place,
            code=_STATIC,
            pasted="torch.compile(dynamic=False)",
        )


def tuned_products(evidence: RecordedEvidence) -> Iterator[Flip]:
    """Products that go straight to the library, and lose time there."""
    rows = [row for row in evidence.kernels if _is_slow_product(row, evidence)]
    if not rows:
        return
    lost = sum(row.lost for row in rows)
    why = (
        f"{count_of(len(rows), 'matrix product')} of the library lose {lost * 1e3:.3g} ms of "
        f"{sum(row.total for row in rows) * 1e3:.3g} ms against the machine's limit, and nothing "
        "else was tried"
    )
    is_cpu = all(row.device == "cpu" for row in rows)
    frozen = {"freezing": True} if all(row.phase == "inference" for row in rows) else {}
    tuned = {"max_autotune": True}
    if is_cpu:
        tuned = {**tuned, "max_autotune_gemm_backends": "CPP,ATEN", **frozen}  # type: ignore[dict-item]
    for settings in (frozen, tuned):
        if settings and not _is_set(evidence, settings):
            yield Flip(
                "; ".join(f"torch._inductor.config.{name} = {v!r}" for name, v in settings.items()),
                why,
                source=rows[0].places[0] if rows[0].places else "",
                settings=settings,
                predicted=lost,
                prediction="what these products lose against the machine's limit",
            )


def _is_slow_product(row: KernelProfile, evidence: RecordedEvidence) -> bool:
    whole = sum(kernel.total for kernel in evidence.kernels)
    is_library = row.language == "extern" and bool(row.work.matrix) and row.floor is not None
    return is_library and row.calls > 0 and row.lost > _LEAST_SHARE * whole


def _is_set(evidence: RecordedEvidence, settings: dict[str, bool]) -> bool:
    """Whether the program already does so."""
    given = [c.settings for c in evidence.recording.compiles if c.settings is not None]
    name = _MAX_AUTOTUNE if "max_autotune" in settings else _FREEZING
    return any(
        each.config.get(name) == "True" or "max-autotune" in each.arguments.get("mode", "")
        for each in given
    )


def fewer_guards(evidence: RecordedEvidence) -> Iterator[Flip]:
    """Guards that are not evaluated again; only to see what they cost."""
    code = "torch.compiler.set_stance(skip_guard_eval_unsafe=True)"
    for finding in evidence.about("slow_guards"):
        yield Flip(
            f"{code}  # unsafe: wrong results if what they look at changes",
            finding.title,
            finding.rule,
            finding.source,
            code=code,
        )


def more_compile_threads(evidence: RecordedEvidence) -> Iterator[Flip]:
    """Kernels of one graph, compiled at the same time."""
    threads = min(os.cpu_count() or 1, 32)
    for finding in evidence.about("compile_threads"):
        if threads < 2:
            return
        seconds = [n.seconds or 0.0 for n in evidence.recording.natives if n.digest]
        rounds = math.ceil(len(seconds) / threads) / max(1, len(seconds))
        yield Flip(
            f"torch._inductor.config.compile_threads = {threads}",
            finding.title,
            finding.rule,
            finding.source,
            settings={"compile_threads": threads},
            overrules=True,
            predicted=sum(seconds) * (1 - rounds),
            prediction=f"{len(seconds)} kernels, {threads} at a time",
            shortens_compiles=True,
        )
