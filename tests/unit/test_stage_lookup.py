"""Which stage a module of Inductor belongs to, and whose code raised."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from inductoscope.torch_facts import stages
from inductoscope.torch_facts.stage_lookup import stage_of_module, stage_that_raised

# What serves all stages, or none.
OF_NO_STAGE = {
    "__init__", "analysis", "await_utils", "cache", "cache_key", "codecache", "compiler_bisector",
    "config", "config_comms", "debug", "dtype_propagation", "exc", "extern_node_serializer",
    "fuzzer", "fx_utils", "hooks", "metrics", "mock_cache", "ops_handler", "remote_cache",
    "rocm_multiarch_utils", "shape_propagation", "test_case", "test_operators", "utils",
    "virtualized", "wrapper_benchmark",
}  # fmt: skip


def test_every_module_of_inductor_has_a_stage_or_is_known_to_have_none() -> None:
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    folder = Path(found.origin).parent
    for file in sorted((folder / "_inductor").rglob("*.py")):
        place = file.relative_to(folder.parent).as_posix()
        first = file.relative_to(folder / "_inductor").parts[0].removesuffix(".py")
        assert (stage_of_module(place) == stages.INDUCTOR) == (first in OF_NO_STAGE), place


MODULES = {
    "index_propagation": stages.LOOP_BODY,
    "bounds": stages.LOOP_BODY,
    "decomposition": stages.DECOMPOSITION,
    "mkldnn_lowerings": stages.LOWERING,
    "kernel/mm": stages.LOWERING,
    "comms": stages.SCHEDULER,
    "fx_passes/overlap_scheduling": stages.POST_GRAD_PASS,
    "fx_passes/fuse_attention": stages.JOINT_PASS,
    "codegen/simd_kernel_features": stages.CODEGEN,
    "codegen/cpp_wrapper_gpu": stages.WRAPPER,
    "codegen/memory_planning": stages.WRAPPER,
    "select_algorithm": stages.AUTOTUNE,
    "runtime/benchmarking": stages.AUTOTUNE,
    "cudagraph_trees": stages.RUNTIME,
}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_works_for_its_stage(module: str) -> None:
    assert stage_of_module(f"/x/site-packages/torch/_inductor/{module}.py") == MODULES[module]


# The stage that torch had entered, the functions on the stack, innermost first, and who raised.
STACKS = {
    "index propagation while the scheduler makes its nodes": (
        stages.SCHEDULER,
        "utils.f index_propagation.wrap ops_handler.mul lowering.inner_fn ir.f scheduler.create",
        stages.LOOP_BODY,
    ),
    "what a lowering put off until its loop is read": (
        stages.SCHEDULER,
        "virtualized.f lowering.inner_fn ir.f scheduler.create",
        stages.LOWERING,
    ),
    "a layout is decided": (stages.SCHEDULER, "ir.decide_layout scheduler.f", stages.SCHEDULER),
    "whether to fuse": (
        stages.SCHEDULER,
        "codegen/simd.can_fuse codegen/cuda_combined_scheduling.f scheduler.can_fuse",
        stages.SCHEDULER,
    ),
    "a question of the scheduler": (
        stages.SCHEDULER,
        "codegen/cpp.get_name scheduler.f",
        stages.SCHEDULER,
    ),
    "a kernel is written to be timed": (
        stages.SCHEDULER,
        "codegen/triton.store codegen/simd.f scheduler.benchmark",
        stages.CODEGEN,
    ),
    "an operation in a loop body is written": (
        stages.CODEGEN,
        "codegen/common.store loop_body.run codegen/cpp.f scheduler.codegen",
        stages.CODEGEN,
    ),
    "a loop body is asked for what it does not have": (
        stages.CODEGEN,
        "loop_body.get_read_expr codegen/cpp.try_outer_loop_fusion scheduler.codegen",
        stages.CODEGEN,
    ),
    "an extern kernel is called": (
        stages.CODEGEN,
        "codegen/wrapper.f ir.codegen scheduler.codegen",
        stages.WRAPPER,
    ),
    "a size is compared": (stages.LOWERING, "sizevars.f lowering.mm graph.run", stages.LOWERING),
    "a pattern that both groups use": (
        stages.PRE_GRAD_PASS,
        "fx_passes/split_cat.f pattern_matcher.apply fx_passes/pre_grad.f",
        stages.PRE_GRAD_PASS,
    ),
    "before the passes": (
        stages.INDUCTOR,
        "fx_passes/post_grad.view_to_reshape compile_fx.f",
        stages.POST_GRAD_PASS,
    ),
    "between stages": (stages.INDUCTOR, "graph.f compile_fx.f", stages.INDUCTOR),
    "the native compiler": (
        stages.CPP_COMPILE,
        "codegen/common.f codecache.f",
        stages.CPP_COMPILE,
    ),
}


@pytest.mark.parametrize("case", STACKS)
def test_the_innermost_code_that_belongs_to_one_stage_raised(case: str) -> None:
    opened, stack, expected = STACKS[case]
    calls = [call.rpartition(".") for call in stack.split()]
    frames = [(f"/x/site-packages/torch/_inductor/{file}.py", name) for file, _, name in calls]
    assert stage_that_raised(frames, opened) == expected


def test_code_that_is_not_the_compilers_says_nothing() -> None:
    frames = [("/home/me/train.py", "f"), ("/x/site-packages/sympy/core/add.py", "g")]
    assert stage_that_raised(frames, stages.LOWERING) == stages.LOWERING
