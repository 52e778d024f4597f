"""Passes over Dynamo's graph that rewrite it wrongly."""

from __future__ import annotations

from battery.fault import Recipe

MODULE = "torch._inductor.fx_passes.pre_grad"
_NAMED = """
def named(node, name):
    return node.op in ("call_function", "call_method") and name in (
        node.target, getattr(node.target, "__name__", None)
    )

"""

RECIPES = (
    Recipe(
        "gelu",
        "pre-grad-pass",
        "wrong-result",
        MODULE,
        _NAMED
        + """
original = m.group_batch_fusion_passes

def group_batch_fusion_passes(graph, pre_grad=True):
    original(graph, pre_grad=pre_grad)
    for node in graph.nodes:
        if named(node, "gelu"):
            node.target, node.kwargs = torch.nn.functional.silu, {}

m.group_batch_fusion_passes = group_batch_fusion_passes
""",
        ("group_batch_fusion_passes", "gelu"),
    ),
    Recipe(
        "tanh",
        "pre-grad-pass",
        "wrong-result",
        "torch._inductor.config",
        """
def squash_activations(graph):
    for node in graph.nodes:
        if node.op == "call_function" and node.target is torch.tanh:
            node.target = torch.sigmoid

m.pre_grad_custom_pass = squash_activations
""",
        ("pre_grad_custom_pass", "squash_activations", "tanh"),
        detail="custom",
    ),
    Recipe(
        "cat",
        "pre-grad-pass",
        "wrong-result",
        MODULE,
        _NAMED
        + """
original = m.sink_cat_after_pointwise

def sink_cat_after_pointwise(module):
    module = original(module)
    for node in module.graph.nodes:
        if named(node, "cat"):
            node.args = (list(reversed(node.args[0])), *node.args[1:])
    module.recompile()
    return module

m.sink_cat_after_pointwise = sink_cat_after_pointwise
""",
        ("sink_cat_after_pointwise", "cat"),
    ),
    Recipe(
        "sqrt_abs",
        "pre-grad-pass",
        "nan",
        MODULE,
        _NAMED
        + """
original = m.numpy_compat_normalization

def numpy_compat_normalization(graph):
    original(graph)
    for node in list(graph.nodes):
        if named(node, "sqrt") and named(node.args[0], "abs"):
            node.args = node.args[0].args

m.numpy_compat_normalization = numpy_compat_normalization
""",
        ("numpy_compat_normalization", "sqrt", "abs"),
    ),
    Recipe(
        "softmax",
        "pre-grad-pass",
        "crash",
        MODULE,
        _NAMED
        + """
original = m.group_batch_fusion_passes

def group_batch_fusion_passes(graph, pre_grad=True):
    original(graph, pre_grad=pre_grad)
    for node in graph.nodes:
        if named(node, "softmax"):
            node.meta["normalized_dim"] + 1

m.group_batch_fusion_passes = group_batch_fusion_passes
""",
        ("group_batch_fusion_passes", "normalized_dim"),
    ),
    Recipe(
        "cumsum",
        "pre-grad-pass",
        "hang",
        MODULE,
        _NAMED
        + """
original = m.sink_cat_after_pointwise

def sink_cat_after_pointwise(module):
    while any(named(node, "cumsum") for node in module.graph.nodes):
        module.graph.lint()
    return original(module)

m.sink_cat_after_pointwise = sink_cat_after_pointwise
""",
        ("sink_cat_after_pointwise", "pre_grad"),
    ),
)
