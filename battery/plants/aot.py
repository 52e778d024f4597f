"""AOTAutograd: wrong before Inductor is asked."""

from __future__ import annotations

from battery.fault import Recipe

RECIPES = (
    Recipe(
        "tanh",
        "aot",
        "not-inductor",
        "torch._functorch.partitioners",
        """
original = m.min_cut_rematerialization_partition

def min_cut_rematerialization_partition(*rest, **more):
    forward, backward = original(*rest, **more)
    output = next(iter(backward.graph.find_nodes(op="output")))
    first = next(arg for arg in output.args[0] if arg is not None)
    with backward.graph.inserting_before(output):
        turned = backward.graph.call_function(aten.neg.default, (first,))
    turned.meta.update(first.meta)
    output.replace_input_with(first, turned)
    backward.recompile()
    return forward, backward

m.min_cut_rematerialization_partition = min_cut_rematerialization_partition
""",
        ("aot", "partition", "backward"),
        templates=("training",),
        detail="partitioner",
    ),
    Recipe(
        "sin",
        "aot",
        "not-inductor",
        "torch._functorch._aot_autograd.graph_capture",
        """
original = m.aot_dispatch_base_graph

def aot_dispatch_base_graph(*rest, **more):
    found = original(*rest, **more)
    module = found[0] if isinstance(found, tuple) else found
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target is aten.sin.default:
            node.target = aten.tanh.default
    module.recompile()
    return found

m.aot_dispatch_base_graph = aot_dispatch_base_graph
""",
        ("aot", "sin"),
        templates=("function", "module", "breaks"),
        detail="capture",
    ),
    Recipe(
        "matmul",
        "aot",
        "not-inductor",
        "torch._functorch._aot_autograd.graph_capture",
        """
def aot_dispatch_base_graph(*rest, **more):
    raise AssertionError("Node primals_1 has no functional counterpart")

m.aot_dispatch_base_graph = aot_dispatch_base_graph
""",
        ("aot", "functional counterpart"),
        templates=("function", "module", "breaks"),
        detail="raises",
    ),
)
