"""Passes over the functional forward and backward graphs that rewrite them wrongly."""

from __future__ import annotations

from battery.fault import Recipe

MODULE = "torch._inductor.fx_passes.post_grad"

RECIPES = (
    Recipe(
        "remainder",
        "post-grad-pass",
        "wrong-result",
        MODULE,
        """
original = m.remove_assert_ops

def remove_assert_ops(graph):
    original(graph)
    for node in graph.nodes:
        if node.op == "call_function" and node.target is aten.remainder.Scalar:
            node.target = aten.fmod.Scalar

m.remove_assert_ops = remove_assert_ops
""",
        ("remove_assert_ops", "remainder"),
    ),
    Recipe(
        "where",
        "post-grad-pass",
        "wrong-result",
        MODULE,
        """
@m.register_graph_pattern(
    m.CallFunction(
        aten.where.self, m.KeywordArg("c"), m.KeywordArg("a"), m.KeywordArg("b"), _users=m.MULTIPLE
    ),
    pass_dict=m.pass_patterns[1],
)
def order_branches(match, c, a, b):
    if not match.output_node().meta.get("ordered"):
        node = match.output_node()
        node.meta["ordered"] = True
        node.args = (c, b, a)
""",
        ("order_branches", "pass_pattern_1", "where"),
        detail="pattern",
    ),
    Recipe(
        "bmm",
        "post-grad-pass",
        "wrong-result",
        "torch._inductor.config",
        """
def reuse_left_operand(graph):
    for node in graph.nodes:
        if node.op == "call_function" and node.target is aten.bmm.default:
            with graph.inserting_before(node):
                turned = graph.call_function(aten.permute.default, (node.args[1], [0, 2, 1]))
            turned.meta["val"] = node.args[1].meta["val"].permute(0, 2, 1)
            node.args = (node.args[0], turned)

m.post_grad_custom_post_pass = reuse_left_operand
""",
        ("post_grad_custom_post_pass", "reuse_left_operand", "bmm"),
        templates=("function", "module", "breaks"),
        detail="custom",
    ),
    Recipe(
        "index_put",
        "post-grad-pass",
        "wrong-result",
        MODULE,
        """
original = m.reinplace_inplaceable_ops

def reinplace_inplaceable_ops(updater, graph):
    original(updater, graph)
    for node in graph.nodes:
        if node.op == "call_function" and node.target is aten.index_put.default:
            node.target = aten.index_put_.default

m.reinplace_inplaceable_ops = reinplace_inplaceable_ops
""",
        ("reinplace_inplaceable_ops", "index_put", "reinplace"),
        templates=("function", "module", "breaks"),
        detail="reinplace",
    ),
    Recipe(
        "flat_layer_norm",
        "post-grad-pass",
        "nan",
        MODULE,
        """
original = m.reorder_for_locality

def reorder_for_locality(graph):
    original(graph)
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target is aten.rsqrt.default:
            if node.args[0].target is aten.add.Tensor:
                node.args = (node.args[0].args[0],)

m.reorder_for_locality = reorder_for_locality
""",
        ("reorder_for_locality", "rsqrt", "layer_norm"),
        templates=("function", "module", "breaks"),
    ),
    Recipe(
        "topk",
        "post-grad-pass",
        "crash",
        MODULE,
        """
original = m.remove_assert_ops

def remove_assert_ops(graph):
    original(graph)
    for node in graph.nodes:
        if node.op == "call_function" and node.target is aten.topk.default:
            node.meta["val"].shape

m.remove_assert_ops = remove_assert_ops
""",
        ("remove_assert_ops",),
    ),
    Recipe(
        "scatter_add",
        "post-grad-pass",
        "hang",
        MODULE,
        """
original = m.move_constructors_to_gpu

def move_constructors_to_gpu(graph):
    while graph.find_nodes(op="call_function", target=aten.scatter_add.default):
        original(graph)

m.move_constructors_to_gpu = move_constructors_to_gpu
""",
        ("move_constructors_to_gpu", "move_constructors_to_cuda", "move_constructors"),
    ),
)
