"""Loop bodies: what an operation reads, masks and reduces inside its loops."""

from __future__ import annotations

from battery.fault import Recipe

MODULE = "torch._inductor.loop_body"

RECIPES = (
    Recipe(
        "pad",
        "loop-body",
        "wrong-result",
        MODULE,
        """
original = m.CaptureIndexing.masked

def masked(self, mask, body, other):
    return original(self, mask, body, other * 4 if isinstance(other, float) else other)

m.CaptureIndexing.masked = masked
""",
        ("masked", "pad", "constant_pad_nd"),
        ("lowering", "codegen", "scheduler"),
        ("function", "module", "breaks"),
        ("cat", "slice", "sort"),
    ),
    Recipe(
        "argmax",
        "loop-body",
        "wrong-result",
        MODULE,
        """
original = m.CaptureIndexing.reduction

def reduction(self, dtype, src_dtype, reduction_type, value):
    if reduction_type == "argmax":
        reduction_type = "argmin"
    return original(self, dtype, src_dtype, reduction_type, value)

m.CaptureIndexing.reduction = reduction
""",
        ("argmax", "argmin", "reduction"),
        ("lowering", "codegen", "scheduler"),
    ),
    Recipe(
        "gather",
        "loop-body",
        "crash",
        MODULE,
        """
def indirect_indexing(self, index_proxy, size, check=True, wrap_neg=True):
    raise NotImplementedError("indirect_indexing of " + str(size))

m.CaptureIndexing.indirect_indexing = indirect_indexing
""",
        ("indirect_indexing",),
        ("lowering", "scheduler"),
        templates=("function", "module", "breaks"),
    ),
)
