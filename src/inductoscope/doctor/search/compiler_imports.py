"""Imports the compiler into a process before it is forked."""

from __future__ import annotations

import contextlib
import importlib

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
