"""Models of the size that people run, on a GPU: make bench-large_gpu.

As on a CPU, with 3 billion parameters in training and 6 and 29 billion in inference, for a GPU of
140 GB. The decoder also runs where `set_per_process_memory_fraction` leaves it a tenth more than
what it takes. `--jobs 3` runs three programs side by side, which changes the times alike.
"""

from __future__ import annotations

from dataclasses import replace

from bench.large import Program, measure

_USUAL = Program("decoder", 27, 4096, length=512, batch=4, device="cuda")
ON_GPU = (
    _USUAL,
    replace(_USUAL, model="encoder-decoder", layers=24),
    replace(_USUAL, model="vision", length=224),
    replace(_USUAL, model="experts", layers=18),
    replace(_USUAL, model="unet", layers=24, dim=2048, length=128),
    replace(_USUAL, model="state-space", layers=40),
)

# The optimizer's states take twice as much again, and gradients once.
_TRAINED = tuple(
    replace(each, size="3 billion", layers=each.layers // 2, is_training=True) for each in ON_GPU
)
_LARGEST = replace(_USUAL, size="29 billion", layers=60, dim=6144, batch=1)

if __name__ == "__main__":
    grown = replace(_USUAL, dim=512, length=64, batch=1, calls=1)
    measure("large_gpu", (*ON_GPU, *_TRAINED, _LARGEST), grown)
