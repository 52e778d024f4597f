"""Imports the compiler into a process before it is forked, and has it prepare its passes."""

from __future__ import annotations

import contextlib
import importlib
import threading

from inductoscope.torch_facts import stages

# What the compiler imports late. Otherwise, in a program that stops before its first compile, every
# fork would import it.
_LATE_IMPORTS = (
    "compile_fx", "scheduler", "choices", "bounds", "kernel_template_choice",
    "fx_passes.joint_graph", "fx_passes.post_grad", "fx_passes.fuse_attention", "fx_passes.pad_mm",
    "fx_passes.mkldnn_fusion", "fx_passes.quantization", "fx_passes.freezing_patterns",
    "codegen.cpp", "codegen.triton", "codegen.wrapper", "codegen.cpp_wrapper_gpu",
    "codegen.cuda_combined_scheduling", "codegen.halide", "codegen.mps", "codegen.pallas",
    "codegen.memory_planning", "codegen.segmented_tree", "codegen.wrapper_fxir",
)  # fmt: skip


def import_compiler() -> None:
    """Import in this process what its forks need."""
    for name in _LATE_IMPORTS:
        with contextlib.suppress(Exception):
            importlib.import_module(f"torch._inductor.{name}")


_ORDER = stages.COMPILER_ORDER
_AFTER_PASSES = _ORDER[_ORDER.index(stages.POST_GRAD_PASS) + 1 :]


def prepare_passes(reached: str) -> None:
    """Trace the patterns that passes look for; otherwise every fork would, in half of its time.

    Only in a program that was seen to reach a stage behind them, so that nothing can hang here.
    """
    if reached in _AFTER_PASSES:
        # Not on this thread, on which Dynamo is in the middle of a compiled frame.
        thread = threading.Thread(target=_trace_patterns)
        thread.start()
        thread.join()


def _trace_patterns() -> None:
    import torch
    from torch._inductor.fx_passes import joint_graph, post_grad

    with contextlib.suppress(Exception):
        joint_graph.lazy_init(torch.device("cpu"))
        post_grad.lazy_init()
