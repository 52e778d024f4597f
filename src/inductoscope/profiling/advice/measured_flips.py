"""Decisions that are worth changing because of what the profile measured, not what a rule found."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import replace

from inductoscope.analysis.rules.slow_guards import SKIPPED_GUARDS
from inductoscope.profiling.advice.evidence import RecordedEvidence
from inductoscope.profiling.advice.flip import Flip
from inductoscope.profiling.kernels.kernel_times import CLOCK
from inductoscope.profiling.kernels.profile import KernelProfile, floor_for
from inductoscope.profiling.kernels.work import KernelWork
from inductoscope.profiling.machine.limits import TF32
from inductoscope.profiling.overruling import overruling_sizes
from inductoscope.vocabulary.counting import count_of

TORCH_NAMES = {
    "torch._inductor.config": ("cpp_wrapper", "freezing", "max_autotune"),
}

# Products that lose less of the kernels' time than this are fast enough.
_LEAST_SHARE = 0.1
# A graph whose kernels run for less than the rest of its calls is worth another wrapper.
_MUCH_IDLE = 0.3
# A rate that is not higher by this much is the same: the GPU has no tensor cores for it.
_CLEARLY = 1.2
_CPP_WRAPPER = "torch._inductor.config.cpp_wrapper"
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
            code=overruling_sizes(dynamic=False),
            pasted="torch.compile(dynamic=False)",
        )


def wrapper_in_cpp(evidence: RecordedEvidence) -> Iterator[Flip]:
    """Small kernels on the CPU, called from Python."""
    for graph in evidence.graphs:
        if graph.device != "cpu" or graph.how != CLOCK or graph.idle < _MUCH_IDLE:
            continue
        yield Flip(
            f"{_CPP_WRAPPER} = True",
            f"no kernel runs for {graph.idle:.0%} of a call of {graph.function or graph.graph}: "
            "its kernels are too small for the Python code that calls them",
            source=graph.place,
            settings={"cpp_wrapper": True},
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
                left=evidence.left_without(lost),
                prediction="what these products lose against the machine's limit",
            )


def products_in_tf32(evidence: RecordedEvidence) -> Iterator[Flip]:
    """Products of float32 that take longer than tensor cores would need for them in TF32."""
    found = [(row, saved) for row in evidence.kernels if (saved := _saved_in_tf32(row, evidence))]
    seconds = sum(saved for _, saved in found)
    whole = sum(row.total for row in evidence.kernels)
    if not found or seconds < _LEAST_SHARE * whole:
        return
    took = sum(row.total for row, _ in found)
    code = 'torch.set_float32_matmul_precision("high")'
    if any("convolution" in name for row, _ in found for name in row.operations):
        code += "\ntorch.backends.cudnn.allow_tf32 = True"
    yield Flip(
        code.replace("\n", "; "),
        f"{count_of(len(found), 'matrix product')} in float32 take {took * 1e3:.3g} ms of the "
        "calls that were timed, without tensor cores; in TF32, with about 3 decimal digits, they "
        f"need at least {(took - seconds) * 1e3:.3g} ms",
        "tensor_cores_unused",
        next((row.places[0] for row, _ in found if row.places), ""),
        code=code,
        left=evidence.left_without(seconds),
        prediction="what these products take beyond the machine's limit in TF32",
        changes_eager=True,
    )


def _saved_in_tf32(row: KernelProfile, evidence: RecordedEvidence) -> float:
    """Seconds of the timed calls beyond the floor in TF32; 0 where it is no faster or not known."""
    machines = evidence.profile.machines if evidence.profile is not None else ()
    machine = next((m for m in machines if m.device == row.device), None)
    single = row.work.matrix.get("float32")
    if machine is None or not single or not row.calls:
        return 0.0
    if machine.matrix.get(TF32, 0.0) < _CLEARLY * machine.matrix.get("float32", 0.0):
        return 0.0
    others = {dtype: count for dtype, count in row.work.matrix.items() if dtype != "float32"}
    matrix = {**others, TF32: single + others.get(TF32, 0)}
    work: KernelWork = replace(row.work, matrix=matrix)
    floor = floor_for(work, machine)
    return max(0.0, row.total - floor.seconds * row.calls) if floor is not None else 0.0


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
    """Guards that are not evaluated again: for a user who knows that nothing changes."""
    change = "torch.compiler.set_stance(skip_guard_eval_unsafe=True)"
    for finding in evidence.about("slow_guards"):
        yield Flip(
            change,
            finding.title,
            finding.rule,
            finding.source,
            pasted=f"# torch warns: {SKIPPED_GUARDS}\n{change}",
            warning=SKIPPED_GUARDS,
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
