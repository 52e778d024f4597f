"""One file per stage of the compiler; each view lists the private torch names that it needs.

A new view is one `Hook` in the table of its stage's file.
"""

from __future__ import annotations

from inductoscope.inside.hooks import (
    aot,
    aot_inductor,
    autotune,
    caches,
    codegen,
    dynamo,
    fusion,
    inductor,
    kernel_lines,
    lowering,
    native,
    passes,
    scheduler,
)
from inductoscope.torch_facts.torch_names import Hook

# In the order of the compiler's stages.
_FILES = (
    *(dynamo, aot_inductor, aot, inductor, passes, lowering, scheduler, fusion),
    *(codegen, kernel_lines, native, autotune, caches),
)
HOOKS: tuple[Hook, ...] = tuple(hook for file in _FILES for hook in file.HOOKS)
