"""Settings of Inductor that decide what is fused."""

from __future__ import annotations

# Recorded once per graph; all of them are numbers and switches.
FUSION_SETTINGS = (
    "max_fusion_size",
    "max_fusion_buffer_group_pairwise_attempts",
    "max_fusion_unique_io_buffers",
    "score_fusion_memory_threshold",
    "min_overlap_ratio",
    "aggressive_fusion",
    "benchmark_fusion",
    "epilogue_fusion",
    "prologue_fusion",
    "loop_ordering_after_fusion",
    "loop_reindexing_after_fusion",
    "loop_index_inversion_in_fusion",
    "max_autotune",
    "max_autotune_gemm",
    "cpp.max_horizontal_fusion_size",
    "triton.tiling_prevents_pointwise_fusion",
    "triton.tiling_prevents_reduction_fusion",
    "triton.mix_order_reduction",
)
