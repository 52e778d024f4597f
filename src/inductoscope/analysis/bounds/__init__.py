"""Bounds checks: whether kernels stay inside their buffers for all sizes that guards admit."""
