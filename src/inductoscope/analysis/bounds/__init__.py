"""Whether kernels stay inside their buffers, for all sizes that the guards admit."""
