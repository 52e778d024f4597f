"""C++ wrappers are rewritten so that they report what they do: on texts that torch generated."""

from __future__ import annotations

import re
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.torch_facts.cpp_wrappers import ReportingWrapper, with_allocator, with_reports

TEXTS = Path(__file__).parent / "torch_facts/samples/cpp_wrappers/torch-2.13"
every_text = pytest.mark.parametrize("name", ["aot_inductor", "cpp_wrapper", "cpp_wrapper_cuda"])


def text_of(name: str) -> str:
    return (TEXTS / f"{name}.txt").read_text()


def reporting(name: str, *written: str) -> ReportingWrapper:
    found = with_reports(text_of(name), written, ["scope::twice", "scope::add_to"])
    assert found is not None
    return found


def announced(text: str) -> list[str]:
    return re.findall(r'inductoscope::before\("\w+", "([^"]+)"\);', text)


def reported(text: str, kernel: str) -> str:
    found = re.search(rf'inductoscope::after\("\w+", "{kernel}", {{(.*)}}\);', text)
    assert found is not None
    return found[1]


def test_every_kernel_and_operator_is_announced() -> None:
    assert announced(reporting("aot_inductor").text) == [
        "cpp_fused_add_embedding_scatter_reduce_select_sum_zeros_0",
        "aoti_torch_cpu_addmm_out",
        "cpp_fused__softmax_gt_linalg_vector_norm_mean_mul_relu_sin_sum_1",
        "cpp_fused_add_gt_sin_2",  # in one branch of a condition
        "cpp_fused_cos_gt_sub_3",  # in the other one
        "scope::twice",
        "cpp_fused_add_4",
        "aoti_torch_cpu_topk",
        "aoti_torch_cpu_scatter_reduce_two_out",
        "cpp_fused_add_sum_5",
        "aoti_torch_cpu_cumsum",
        "cpp_fused_add_to_mul_6",
        "scope::add_to",
        "aoti_torch_cpu_mm_out",
        "aoti_torch_cpu_sort_stable",
    ]


def test_operators_called_by_their_name_are_announced_with_it() -> None:
    found = announced(reporting("cpp_wrapper").text)
    assert [name for name in found if "::" in name] == ["scope::twice", "scope::add_to"]


def test_kernels_of_a_gpu_are_announced() -> None:
    assert announced(reporting("cpp_wrapper_cuda").text) == [
        "aoti_torch_cuda_mm_out",
        "triton_per_fused__softmax_abs_all_amax_eq_mul_ne_relu_sub_0",
        "aoti_torch_cuda_topk",
        "triton_per_fused_sum_1",
        "triton_per_fused_cumsum_2",
        "triton_red_fused_mean_3",
        "triton_poi_fused_add_copy__4",
    ]


@every_text
def test_announced_before_reported_after_and_nothing_else_changes(name: str) -> None:
    wrapper = reporting(name)
    lines = [line for line in wrapper.text.split("\n") if "inductoscope::" not in line]
    before, _, rest = "\n".join(lines).partition("\n\n// --- added by inductoscope ---")
    after = rest.partition("// --- end of what inductoscope added ---\n")[2]
    assert before + after == text_of(name)
    for kernel in announced(wrapper.text):
        place = wrapper.text.index(f'before("{wrapper.name}", "{kernel}");')
        assert place < wrapper.text.index(f'after("{wrapper.name}", "{kernel}", {{')


def test_results_of_an_operator_are_reported_by_their_handles() -> None:
    text = reporting("cpp_wrapper_cuda").text
    handles = '{"buf5", buf5}, {"buf7", buf7_handle}, {"buf8", buf8_handle}'
    assert reported(text, "aoti_torch_cuda_topk") == handles


def test_a_written_input_is_reported_like_a_buffer(snapshot: SnapshotAssertion) -> None:
    kernel = "triton_poi_fused_add_copy__4"
    assert reported(reporting("cpp_wrapper_cuda").text, kernel) == '{"buf9", buf9}'
    written = reporting("cpp_wrapper_cuda", "arg2_1")
    assert reported(written.text, kernel) == snapshot
    assert sum("arg2_1" in buffers for buffers in written.reports) == 1


def test_weights_inside_of_the_model_are_handed_over_with_its_inputs() -> None:
    begin = re.search(r"inductoscope::begin\(.*\);", reporting("aot_inductor").text)
    assert begin is not None
    assert ", input_handles, 3, {" in begin[0]
    assert '{"steps", constants_->at(2)}' in begin[0]


def test_reports_list_the_buffers_that_are_handed_over() -> None:
    wrapper = reporting("cpp_wrapper_cuda")
    for buffer, count in Counter(chain(*wrapper.reports)).items():
        assert len(re.findall(rf'{{"{buffer}", ', wrapper.text)) == count


@every_text
def test_buffers_are_asked_for_by_their_name(name: str) -> None:
    wrapper = with_allocator(text_of(name))
    assert wrapper is not None
    asked = re.findall(rf'inductoscope::empty_strided\("{wrapper.name}", "(\w+)"', wrapper.text)
    body = text_of(name).partition("steal_from_raw_handles")[2]
    assert asked == re.findall(r"aoti_torch_empty_strided\(.*, &(\w+)_handle\)\);", body)
    assert "buf0" in asked


def test_both_changes_at_once_share_what_they_add() -> None:
    first = with_allocator(text_of("aot_inductor"))
    assert first is not None
    both = with_reports(first.text)
    assert both is not None
    assert both.text.count("namespace inductoscope {") == 1
    assert both.name != first.name


@pytest.mark.parametrize("text", ["", "def call(args):\n    return args\n", "void run_impl() {}"])
def test_other_texts_are_left_alone(text: str) -> None:
    assert with_reports(text) is None
    assert with_allocator(text) is None


# As generated with aot_inductor.allow_stack_allocation.
POINTERS = """#include <torch/csrc/inductor/aoti_include/cpu.h>
void AOTInductorModel::run_impl(
    AtenTensorHandle* input_handles
) {
    auto inputs = steal_from_raw_handles_to_raii_handles(input_handles, 1);
    auto buf1 = std::move(buf0);  // reuse
    auto* var_0 = get_data_ptr_wrapper(buf1);
    cpp_fused_add_0((float*)(var_0));
} // AOTInductorModel::run_impl
"""


def test_a_buffer_behind_another_variable_is_reported() -> None:
    found = with_reports(POINTERS)
    assert found is not None
    assert reported(found.text, "cpp_fused_add_0") == '{"buf1", buf1}'
