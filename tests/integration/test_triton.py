"""Recordings of a GPU, read where there is none: Triton kernels, their forms, choices by timing."""

from __future__ import annotations

import re

import pytest

from inductoscope.model.entities import Recording
from inductoscope.model.fold import load
from inductoscope.model.kernels import compile_of_kernel
from support.examples import inductoscope, stored

CHAIN = stored("h200_seed")
PRODUCT = stored("h200_autotune")


@pytest.fixture(scope="module")
def chain() -> Recording:
    """x.relu().add(1).sum(-1), then a linear layer with softmax, forward and backward."""
    return load(CHAIN)


@pytest.fixture(scope="module")
def product() -> Recording:
    """torch.relu(a @ b), the product chosen by timing."""
    return load(PRODUCT)


# --- kernels --------------------------------------------------------------------------------------


def test_relu_is_followed_to_the_lines_of_its_triton_kernel() -> None:
    (relu,) = inductoscope("show", CHAIN, "--op", "relu", "--json", "-").data["operations"]
    assert relu["aten"]["value"] == "float32[10, 100] cuda:0"
    (kernel,) = relu["kernel"]
    assert (kernel["language"], kernel["name"]) == ("Triton", "triton_per_fused_add_relu_sum_0")
    lines = [line["text"].strip() for line in kernel["lines"]]
    assert any(line.startswith("tmp0 = tl.load(in_ptr0") for line in lines)
    assert "tmp2 = triton_helpers.maximum(tmp1, tmp0)" in lines
    assert not any("tl.sum" in line or "tl.store" in line for line in lines)
    assert all(native["tool"] == "triton" for native in kernel["native"])


def test_every_generated_kernel_was_compiled_at_least_once(chain: Recording) -> None:
    for graph in chain.graphs:
        for kernel in graph.kernels:
            natives = compile_of_kernel(chain, kernel)
            assert bool(natives) == (kernel.language == "Triton"), kernel.name
            assert len({native.config for native in natives}) == len(natives)


def test_a_compile_has_its_configuration_its_passes_and_its_binary(chain: Recording) -> None:
    native = chain.natives[0]
    assert re.match(r"XBLOCK: \d+, num_warps: \d+", native.config)
    assert [name for name, _ in native.passes] == ["ttir", "ttgir", "llir", "ptx", "cubin"]
    assert all(seconds > 0 for _, seconds in native.passes)
    assert native.output.endswith("/triton_per_fused_add_relu_sum_0.cubin")


def test_passes_are_shown_with_their_seconds() -> None:
    shown = inductoscope("show", CHAIN, "--stage", "native").words
    assert re.search(r"passes ttir [\d.e-]+, ttgir [\d.e-]+, llir [\d.e-]+, ptx", shown)


# --- forms on the way to machine code -------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("ttir", "tt.func public @triton_per_fused_sum_1"),
        ("ttgir", "#ttg.blocked"),
        ("llir", "define ptx_kernel void @triton_per_fused_sum_1"),
        ("ptx", ".visible .entry triton_per_fused_sum_1"),
    ],
)
def test_a_kernel_is_shown_in_every_form(form: str, text: str) -> None:
    words = ("--kernel", "triton_per_fused_sum_1", "--form", form)
    shown = inductoscope("show", CHAIN, *words)
    assert shown.exit_code == 0
    assert f"1/0 backward triton_per_fused_sum_1: {form}" in shown.stdout
    assert text in shown.stdout


def test_a_call_of_a_library_has_no_forms() -> None:
    shown = inductoscope("show", CHAIN, "--kernel", "addmm", "--form", "ptx").words
    assert shown.startswith("No ptx of addmm is in the recording")


def test_a_form_that_was_taken_out_of_the_recording_is_missing_and_said_to_be() -> None:
    shown = inductoscope("show", PRODUCT, "--kernel", "triton_tem_fused_mm_0", "--form", "llir")
    assert shown.exit_code == 0
    assert "(missing from the recording)" in shown.stdout


# --- choices by timing ----------------------------------------------------------------------------


def test_the_winner_of_a_search_is_the_fastest_choice(product: Recording) -> None:
    (search,) = product.graphs[0].autotunes
    times = {c.name: c.milliseconds for c in search.choices if c.milliseconds is not None}
    assert search.operation == "mm"
    assert len(search.choices) == 21
    assert search.winner == min(times, key=lambda name: times[name])
    assert {"mm", "triton_mm_0"} <= times.keys()


def test_choices_are_shown_with_times_and_configurations() -> None:
    lines = inductoscope("show", PRODUCT, "--stage", "autotune").stdout.splitlines()
    (winner,) = [line for line in lines if line.startswith("  * ")]
    assert re.match(r"  \* [\d.]+ ms +triton_mm_\d+ .*BLOCK_M=\d+.*num_warps=\d+$", winner)
    # One choice asks for more shared memory than the GPU has: its compile failed, and says why.
    assert any(line.split()[:1] == ["failed"] for line in lines)
    assert any("out of resource" in line for line in lines)


def test_a_matrix_product_became_a_template_and_relu_a_kernel(product: Recording) -> None:
    kernels = [(kernel.name, kernel.language) for kernel in product.graphs[0].kernels]
    assert kernels == [("triton_tem_fused_mm_0", "Triton"), ("triton_poi_fused_relu_1", "Triton")]
