"""Imports the compiler into a process before it is forked, and has it prepare its passes."""

from __future__ import annotations

import contextlib
import importlib
import threading

from inductoscope.torch_facts import stages

# Modules that the compiler imports late. In a program that stops before its first compile, every
# fork would import them otherwise.
_LATE_IMPORTS = (
    "compile_fx", "scheduler", "choices", "bounds", "kernel_template_choice",
    "fx_passes.joint_graph", "fx_passes.post_grad", "fx_passes.fuse_attention", "fx_passes.pad_mm",
    "fx_passes.mkldnn_fusion", "fx_passes.quantization", "fx_passes.freezing_patterns",
    "codegen.cpp", "codegen.triton", "codegen.wrapper", "codegen.cpp_wrapper_gpu",
    "codegen.cuda_combined_scheduling", "codegen.halide", "codegen.mps", "codegen.pallas",
    "codegen.memory_planning", "codegen.segmented_tree", "codegen.wrapper_fxir",
)  # fmt: skip


def import_compiler() -> None:
    """Import the modules that forks need from the compiler."""
    for name in _LATE_IMPORTS:
        with contextlib.suppress(Exception):
            importlib.import_module(f"torch._inductor.{name}")


_ORDER = stages.COMPILER_ORDER
_AFTER_PASSES = _ORDER[_ORDER.index(stages.POST_GRAD_PASS) + 1 :]


def prepare_passes(reached: str) -> None:
    """Trace the pattern matcher's patterns; otherwise every fork would, for half of its time.

    This is done only if the program reached a stage after the passes, so that it cannot hang here.
    """
    if reached in _AFTER_PASSES:
        # A separate thread, because Dynamo is in the middle of a compiled frame on this one.
        thread = threading.Thread(target=_trace_patterns)
        thread.start()
        thread.join()


def _trace_patterns() -> None:
    import torch
    from torch._inductor.fx_passes import joint_graph, post_grad

    with contextlib.suppress(Exception):
        joint_graph.lazy_init(torch.device("cpu"))
        post_grad.lazy_init()
