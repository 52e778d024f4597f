"""Why an operation has no code of its own, so that nobody searches for it in the kernels."""

from __future__ import annotations

from typing import Any

from inductoscope.model.entities import LoweredNode
from inductoscope.model.fx import FxNode
from inductoscope.model.join import GraphJoin, inputs_of
from inductoscope.model.loops import steps_of
from inductoscope.recording.values import members

_RUN_GRAPHS = ("Conditional", "Switch", "WhileLoop", "InvokeSubgraph")


def why_codeless(join: GraphJoin, node: FxNode) -> str:
    """What stands in place of an operation's code; empty where it has some, or nothing is known."""
    lowered = join.lowered.get(node.name)
    if lowered is None or not join.after:
        return ""
    leaves = join.leaves(node)
    if leaves:
        runs_graph = any(made.get("class") in _RUN_GRAPHS for made in lowered.made)
        is_run = runs_graph and not join.kernels(leaves)
        return "it runs another graph, which has kernels of its own" if is_run else ""
    if node.target == "getitem":
        return f"one of the results of {inputs_of(node)[0]}" if inputs_of(node) else ""
    results = _results(lowered)
    kinds = {str(members(result).get("class", "")) for result in results}
    if kinds and all(kind.endswith("View") for kind in kinds):
        return "a view: it only changes how memory is addressed"
    if lowered.made:
        return ""
    if any(_same_as(result, join, inputs_of(node)) for result in results):
        return "it returns its input as it is"
    if kinds and not any(members(result).get("ranges") for result in results):
        return "a number: no kernel computes it"
    return _of_loops(node, results) if join.says_whose_lines_are else ""


def _results(lowered: LoweredNode) -> list[Any]:
    return lowered.ir if isinstance(lowered.ir, list) else [lowered.ir]


def _same_as(result: Any, join: GraphJoin, inputs: list[str]) -> bool:
    """Whether torch made nothing new: the result is what an input has become."""
    buffer = members(result).get("buffer")
    known = [one for name in inputs if name in join.lowered for one in _results(join.lowered[name])]
    return result in known or (buffer is not None and buffer in inputs)


def _of_loops(node: FxNode, results: list[Any]) -> str:
    steps = [step for one in results for step in steps_of(str(members(one).get("inner", "")))]
    if not any("load" in step.expression for step in steps):
        return "worked out while compiling: a constant, or part of an address" if steps else ""
    if node.operation == "clone":
        return "a copy that is not made: what reads it reads its input"
    return "torch worked it out, or no kernel needs its value"
