"""Passes over the joint graph of forward and backward that rewrite it wrongly."""

from __future__ import annotations

from battery.fault import Recipe

MODULE = "torch._inductor.fx_passes.joint_graph"

RECIPES = (
    Recipe(
        "full",
        "joint-pass",
        "wrong-result",
        MODULE,
        """
original = m.constant_fold_uniform_value

def constant_fold_uniform_value(gm):
    original(gm)
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target is aten.full.default and node.args[1] == 0.75:
            node.args = (node.args[0], 1.0)
    gm.recompile()

m.constant_fold_uniform_value = constant_fold_uniform_value
""",
        ("constant_fold_uniform_value", "aten.full", "constant_fold"),
        ("post-grad-pass",),
    ),
    Recipe(
        "pow",
        "joint-pass",
        "wrong-result",
        MODULE,
        """
@m.register_graph_pattern(
    m.CallFunction(aten.pow.Tensor_Scalar, m.KeywordArg("x"), m.KeywordArg("n")),
    pass_dict=m.pass_patterns[0],
)
def cube_to_square(match, x, n):
    match.replace_by_example(lambda x: x * x, [x])
""",
        ("cube_to_square", "pass_pattern_0", "aten.pow", "pow"),
        templates=("function", "module", "breaks", "dynamic"),
    ),
    Recipe(
        "steep_sigmoid",
        "joint-pass",
        "nan",
        MODULE,
        """
def plain(x):
    grown = torch.exp(x)
    return grown / (1.0 + grown)

@m.register_graph_pattern(
    m.CallFunction(aten.sigmoid.default, m.KeywordArg("x")),
    pass_dict=m.pass_patterns[1],
)
def open_sigmoid(match, x):
    match.replace_by_example(plain, [x])
""",
        ("open_sigmoid", "pass_pattern_1", "sigmoid"),
    ),
    Recipe(
        "slice",
        "joint-pass",
        "wrong-result",
        "torch._inductor.config",
        """
def rotate_cats(graph):
    for node in graph.nodes:
        if node.op == "call_function" and node.target is aten.cat.default:
            node.args = (list(reversed(node.args[0])), *node.args[1:])

m.joint_custom_pre_pass = rotate_cats
""",
        ("joint_custom_pre_pass", "rotate_cats", "aten.cat"),
        templates=("function", "module", "breaks"),
        detail="custom",
    ),
    Recipe(
        "amax",
        "joint-pass",
        "crash",
        MODULE,
        """
original = m.canonicalize_aten_ir_passes

def canonicalize_aten_ir_passes(gm):
    original(gm)
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target is aten.amax.default:
            node.args[3].meta

m.canonicalize_aten_ir_passes = canonicalize_aten_ir_passes
""",
        ("canonicalize_aten_ir_passes", "canonicalize_aten_ir"),
    ),
    Recipe(
        "tanh",
        "joint-pass",
        "crash",
        MODULE,
        """
@m.register_graph_pattern(
    m.CallFunction(aten.tanh.default, m.KeywordArg("x")), pass_dict=m.pass_patterns[0]
)
def approximate_tanh(match, x):
    raise AssertionError("no approximation for " + str(x.meta["val"].dtype))
""",
        ("approximate_tanh", "pass_pattern_0"),
        detail="pattern",
    ),
)
