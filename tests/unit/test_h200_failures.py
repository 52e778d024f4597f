"""Failures that were found and cut down on an H200, and what the doctor says about them.

`tests/data/h200_failures` holds what the copy of each program handed over, and what a program
printed that read the output of a CUDA graph too late.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.doctor.failure import why_no_trial
from inductoscope.doctor.finding import FailureFinding, Script, claim_of
from inductoscope.doctor.hypotheses import first_verdict
from inductoscope.doctor.instructions import CACHES, CUDA_GRAPHS
from inductoscope.recording.events import (
    ClaimMade,
    CompileFailed,
    CompileStart,
    InductorStart,
    Kernel,
)
from inductoscope.torch_facts.messages import device_error
from support.findings import verdict_on
from support.program_cases import COMPILED, ENDS_WELL, PLAIN, End, check, written_case

DATA = Path(__file__).parents[1] / "data" / "h200_failures"


def found(name: str) -> FailureFinding:
    events = [ClaimMade(**each) for each in json.loads((DATA / f"{name}.json").read_text())]
    return FailureFinding(
        tuple(claim for event in events if (claim := claim_of(vars(event))) is not None)
    )


@pytest.mark.parametrize(
    ("name", "verdict", "stage", "operation", "kernel", "nodes"),
    [
        ("gated_mlp", "crash", "runtime", "aten.cos.default", "triton_poi_fused_cos_0", (1, 7)),
        (
            "total_energy",
            "hang",
            "runtime",
            "aten.sum.dim_IntList",
            "triton_unk_fused_sum_0",
            (1, 4),
        ),
        (
            "wide_history",
            "compile-error",
            "triton-compile",
            "slice_scatter_default",
            "triton_poi_fused_slice_slice_backward_0",
            (2, 4),
        ),
        # The kernel that made the index, not the one that reads with it and fails.
        (
            "wild_index",
            "crash",
            "codegen",
            "aten.argmax.default",
            "triton_per_fused_argmax_0",
            (2, 5),
        ),
        (
            "device_assert",
            "crash",
            "codegen",
            "aten.argmax.default",
            "triton_per_fused_argmax_0",
            (2, 5),
        ),
        # The program is wrong; in memory filled with NaN, its graph gives NaN.
        (
            "unwritten_memory",
            "wrong-result",
            "codegen",
            "aten.expm1.default",
            "triton_poi_fused_expm1_0",
            (1, 6),
        ),
        (
            "lost_update",
            "wrong-result",
            "codegen",
            "aten.index_put.default",
            "triton_poi_fused_index_add_1",
            (1, 4),
        ),
        # Behind a C++ wrapper, which Inductor makes while it runs the kernels.
        (
            "cpp_wrapper_illegal_access",
            "crash",
            "runtime",
            "aten.cos.default",
            "triton_poi_fused_cos_0",
            (1, 7),
        ),
        (
            "cpp_wrapper_wild_index",
            "crash",
            "codegen",
            "aten.argmax.default",
            "triton_per_fused_argmax_0",
            (2, 5),
        ),
        (
            "package_illegal_access",
            "crash",
            "runtime",
            "aten.cos.default",
            "triton_poi_fused_cos_0",
            (1, 6),
        ),
        # Under no_grad and autocast, as its script is.
        (
            "race",
            "wrong-result",
            "codegen",
            "aten.mul.Tensor",
            "triton_red_fused_add_embedding_mean_mul_0",
            (6, 23),
        ),
    ],
    ids=[
        "illegal access",
        "kernel that never returns",
        "refused by Triton",
        "wild index",
        "device-side assertion",
        "memory that was never written",
        "addition that is not atomic",
        "illegal access behind a C++ wrapper",
        "wild index behind a C++ wrapper",
        "illegal access in a package",
        "race",
    ],
)
def test_a_failure_on_a_gpu_is_cut_down_and_put_down_to_its_kernel(
    name: str, verdict: str, stage: str, operation: str, kernel: str, nodes: tuple[int, int]
) -> None:
    what = found(name)
    said = verdict_on(what)
    assert (said.verdict, said.stage, said.confidence) == (verdict, stage, "proven")
    assert str(said.culprit.op).startswith(operation)
    assert said.reduction is not None
    assert said.reduction.kernel == kernel
    assert (what.reduction.nodes, what.reduction.of) == nodes
    assert "on_gpu(" in what.fact(Script).text


def test_values_from_memory_that_was_never_written_are_said_to_be() -> None:
    said = [str(item["what"]) for item in verdict_on(found("unwritten_memory")).evidence]
    assert any("memory that was never written: with NaN there" in text for text in said), said


def test_a_kernel_of_the_user_is_part_of_the_script() -> None:
    what = found("users_kernel")
    said = verdict_on(what)
    assert (said.verdict, said.stage) == ("not-inductor", "aot")
    assert "@triton.jit\ndef add_one(" in what.fact(Script).text
    assert "add_one[(16, 1, 1)](ptr=total, n=4000, BLOCK=256)" in what.fact(Script).text


def test_a_clone_that_a_pass_removed_before_a_kernel_of_the_user_names_the_pass() -> None:
    what = found("users_kernel_clone")
    said = verdict_on(what)
    assert (said.verdict, said.stage) == ("wrong-result", "post-grad-pass")
    assert said.culprit.pass_ == "reinplace_inplaceable_ops"
    assert (what.reduction.nodes, what.reduction.of) == (3, 6)
    assert "add_one[(16, 1, 1)](" in what.fact(Script).text


def test_a_race_that_is_right_by_chance_has_a_script_that_fills_memory() -> None:
    script = found("race").fact(Script).text
    assert "    with torch.no_grad():\n        outputs = function(*arguments)" in script
    assert "    fill_free_memory()\n    compiled = run(function)" in script


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        ("torch.AcceleratorError: CUDA error: out of memory", "no memory left"),
        (
            "torch.AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
            "nvidia-smi -c DEFAULT",
        ),
        ("torch.AcceleratorError: CUDA error: an illegal memory access was encountered", ""),
        ("MemoryError: out of memory", ""),
    ],
)
def test_a_gpu_that_takes_no_second_process_is_said_to(answer: str, advice: str) -> None:
    said = why_no_trial(f"Traceback (most recent call last):\n{answer}\n")
    assert advice in said
    assert bool(said) == bool(advice)


def test_what_is_not_peculiar_to_the_cpp_wrapper_is_said_to_show_without_it(
    snapshot: SnapshotAssertion,
) -> None:
    said = [str(item["what"]) for item in verdict_on(found("cpp_wrapper_illegal_access")).evidence]
    assert said == snapshot


def test_a_gpu_that_is_lost_while_inductor_compiles_is_investigated_at_that_graph(
    tmp_path: Path,
) -> None:
    """Inductor runs kernels while it makes a C++ wrapper, so that no graph is ever called."""
    lost = CompileFailed(
        compile="0/0",
        graph="0/0 inference",
        stage="wrapper",
        type="BackendCompilerFailed",
        message="backend='inductor' raised:\nAcceleratorError: CUDA error: an illegal memory "
        "access was encountered\nSearch for `cudaErrorIllegalAddress'",
        traceback="",
        raised_in=("cb (torch/cuda/random.py:74)",),
    )
    first = End(1, "AcceleratorError", events=(*KERNEL, lost))
    again = End(1, "AcceleratorError", found=found("cpp_wrapper_illegal_access"))
    case, asked = written_case(tmp_path, first, compiled=[again])
    said = first_verdict(case)
    assert (said.verdict, said.culprit.kernel) == ("crash", "triton_poi_fused_cos_0")
    assert asked[0] == COMPILED


def test_a_kernel_that_never_returns_is_told_apart_from_a_compile_that_never_ends(
    snapshot: SnapshotAssertion,
) -> None:
    text = verdict_on(found("total_energy")).summary
    assert text == snapshot


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            "CUDA driver error: an illegal memory access was encountered",
            "an illegal memory access was encountered",
        ),
        (
            "CUDA error: device-side assert triggered\nSearch for `cudaErrorAssert'",
            "device-side assert triggered",
        ),
        ("CUDA error: out of memory", ""),
        ("CUDA out of memory. Tried to allocate 2 GiB", ""),
    ],
)
def test_what_loses_the_gpu_is_the_same_failure_whoever_notices_it(message: str, said: str) -> None:
    assert device_error(message) == said


# --- CUDA graphs ----------------------------------------------------------------------------------

KERNEL = (
    CompileStart(compile="0/0", function="forward", file="script.py", line=13),
    InductorStart(compile="0/0", graph="0/0 forward", phase="forward"),
    Kernel(graph="0/0 forward", name="triton_poi_fused_0", language="Triton"),
)
CHECKED = End(events=(*KERNEL, check()))
OVERWRITTEN = End(1, (DATA / "cuda_graphs.txt").read_text())


def test_an_output_that_a_later_run_overwrites_is_put_down_to_cuda_graphs(tmp_path: Path) -> None:
    # Without checks it fails; it does not without CUDA graphs, nor with its outputs cloned.
    runs = {PLAIN: [OVERWRITTEN], CUDA_GRAPHS.name: [OVERWRITTEN, ENDS_WELL, ENDS_WELL]}
    case, asked = written_case(tmp_path, CHECKED, **runs)
    said = first_verdict(case)
    assert (said.verdict, said.stage, said.confidence) == ("crash", "runtime", "proven")
    assert "CUDA graphs" in said.summary
    assert said.culprit.source == "script.py:13"
    assert said.workaround is not None
    assert said.workaround.verified
    assert "clone" in said.workaround.text
    assert asked == [PLAIN, "off", PLAIN, CACHES.name, *[CUDA_GRAPHS.name] * 3]


def test_where_it_fails_without_cuda_graphs_too_they_are_not_blamed(tmp_path: Path) -> None:
    runs = {PLAIN: [OVERWRITTEN], CUDA_GRAPHS.name: [OVERWRITTEN]}
    case, _ = written_case(tmp_path, CHECKED, **runs)
    said = first_verdict(case)
    assert said.verdict == "unknown"
    assert said.culprit.config is None
