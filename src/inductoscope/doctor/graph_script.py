"""Writes a recorded graph as a script that needs only torch.

A recording holds no values, so the script makes new inputs and constants of the recorded shapes,
strides and dtypes. The script runs the graph in eager and compiled, and compares the results.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from inductoscope.errors import ToolFailure, UsageError
from inductoscope.model.entities import Recording
from inductoscope.model.fx import FxGraph, FxNode, graph_from
from inductoscope.recording.values import members

# An unbacked symbol: a size that is known only at run time.
_UNKNOWN_SIZE = 8

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_DTYPE = re.compile(r"torch\.\w+")

# The code of joint graphs takes and returns pytrees, which only torch can unpack.
_NESTED_INPUTS = re.compile(
    r"def forward\(self[^\n]*\n\s*([\w, ]+?),? = fx_pytree\.tree_flatten_spec\([^\n]*"
)
_NESTED_OUTPUTS = re.compile(r"pytree\.tree_unflatten\((.*), self\._out_spec\)")


@dataclass(frozen=True)
class NamedGraph:
    """A graph of a recording, with its name for users."""

    name: str
    digest: str
    origin: str


def graph_names(recording: Recording) -> list[NamedGraph]:
    """List the graphs of a recording: '0/0 dynamo', '0/0 aot-forward', '0/0 backward post-grad'."""
    found: dict[str, NamedGraph] = {}
    for compile_ in recording.compiles:
        for graph in compile_.graphs:
            name = f"{graph.graph or compile_.id} {graph.stage}"
            origin = f"{compile_.function} at {compile_.place}"
            found[name] = NamedGraph(name, graph.payload, origin)
    return list(found.values())


def find_graph(recording: Recording, name: str) -> NamedGraph:
    """Find a graph by its full name, or by any unique part of it."""
    every = graph_names(recording)
    exact = [graph for graph in every if graph.name == name]
    words = name.split()
    found = exact or [g for g in every if all(word in g.name.split() for word in words)]
    if len(found) == 1:
        return found[0]
    listed = "".join(f"\n  {graph.name}" for graph in found or every) or " none"
    problem = "More than one graph is" if found else "There is no graph"
    raise UsageError(f"{problem} called '{name}'. Choose one of:{listed}")


def write_script(named: NamedGraph, graph: FxGraph | None) -> str:
    if graph is None:
        raise ToolFailure(f"The graph {named.name} is missing from the recording.")
    if "[...]" in graph.code:
        raise ToolFailure(
            f"The graph {named.name} holds a long list of numbers, which the recording leaves out."
        )
    modules = [name for name, item in graph.attributes.items() if "module" in members(item)]
    if modules:
        raise ToolFailure(
            f"The graph {named.name} calls modules ({', '.join(modules)}) whose code is not in "
            "the recording. Choose a later stage, for example post-grad."
        )
    classes = _classes("Graph", graph)
    parts = [
        _header(named, classes),
        _imports(_all_globals(graph)),
        _MAKE,
        *([_PUT] if graph.attributes else []),
        *classes,
        _inputs(graph),
        _MAIN,
    ]
    return "\n\n".join(parts)


def _header(named: NamedGraph, classes: list[str]) -> str:
    text = f"Graph '{named.name}' of {named.origin}, written by inductoscope."
    note = "Inputs and constants are random: a recording holds no values."
    lines = [f"# {_one_line(text)}", f"# {note}", "import torch"]
    if any("torch.ops.prims." in each for each in classes):
        # Inductor's own operators are registered when their module is imported.
        lines.append("import torch._inductor.inductor_prims")
    return "\n".join(lines)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _all_globals(graph: FxGraph) -> dict[str, Any]:
    names = dict(graph.globals)
    for item in graph.attributes.values():
        inner = graph_from(members(item).get("graph"))
        if inner is not None:
            names.update(_all_globals(inner))
    return names


def _imports(names: dict[str, Any]) -> str:
    """Write statements that bind the global names in torch's printed code."""
    lines = []
    for name, path in sorted(names.items(), key=lambda item: item[0]):
        if name == "torch" or not isinstance(path, str) or not _IDENTIFIER.fullmatch(name):
            continue
        if path in ("inf", "nan", "-inf"):
            lines.append(f"{name} = float('{path}')")
        elif path == "NoneType" or path.endswith(".NoneType"):
            lines.append(f"{name} = type(None)")
        else:
            lines.append(_import_line(name, path))
    return "\n".join(lines) or "# the graph uses no names but torch"


def _import_line(name: str, path: str) -> str:
    module, _, attribute = path.rpartition(".")
    parts = path.split(".")
    if not all(_IDENTIFIER.fullmatch(part) for part in parts):
        return f"{name} = {path}" if re.fullmatch(r"[\w.+-]+", path) else f"# unknown: {name}"
    module = {"": "builtins", "_operator": "operator"}.get(module, module)
    return f"from {module} import {attribute} as {name}"


_MAKE = '''\
def make(shape, stride, dtype, device):
    """A tensor of this layout. Integers are 0 or 1, so that they are valid as indices."""
    size = 1 + sum((n - 1) * s for n, s in zip(shape, stride)) if 0 not in shape else 0
    if dtype.is_floating_point or dtype.is_complex:
        storage = torch.randn(size, device=device).to(dtype)
    else:
        storage = torch.randint(0, 2, (size,), device=device).to(dtype)
    return storage.as_strided(shape, stride)'''

_PUT = '''\
def put(owner, path, value):
    """Set an attribute by its path, such as layers.0.weight."""
    *parents, last = path.split(".")
    for name in parents:
        if not hasattr(owner, name):
            setattr(owner, name, torch.nn.Module())
        owner = getattr(owner, name)
    setattr(owner, last, value)'''


def _classes(name: str, graph: FxGraph) -> list[str]:
    """Write the graph as a module class, preceded by those of its subgraphs."""
    ahead: list[str] = []
    lines = [f"class {name}(torch.nn.Module):", "    def __init__(self):"]
    lines.append("        super().__init__()")
    for path, item in graph.attributes.items():
        inner = graph_from(members(item).get("graph"))
        if inner is not None:
            inner_name = f"{name}_{re.sub(r'[^0-9A-Za-z_]', '_', path)}"
            ahead += _classes(inner_name, inner)
            value = f"{inner_name}()"
        else:
            value = _make_call(item)
        lines.append(f"        put(self, {path!r}, {value})")
    # One parameter per input, and a plain list of outputs.
    code = _NESTED_OUTPUTS.sub(r"\1", _NESTED_INPUTS.sub(r"def forward(self, \1):", graph.code))
    body = "\n".join("    " + line for line in code.strip().splitlines())
    return [*ahead, "\n".join(lines) + "\n\n" + body]


def _inputs(graph: FxGraph) -> str:
    lines = ["def inputs():", "    return ["]
    for node in graph.nodes:
        if node.op == "placeholder":
            lines.append(f"        {_input(node)},  # {_one_line(node.name)}")
    return "\n".join([*lines, "    ]"])


def _input(node: FxNode) -> str:
    value = node.value
    if isinstance(value, dict) and "dtype" not in value:
        hint = value.get("hint")
        return str(hint) if isinstance(hint, int) else str(_UNKNOWN_SIZE)
    call = _make_call(value)
    wants_gradient = isinstance(value, dict) and value.get("requires_grad")
    return f"{call}.requires_grad_()" if wants_gradient else call


def _make_call(value: Any) -> str:
    if not isinstance(value, dict) or "dtype" not in value:
        return "None"
    sizes = value.get("hints") or value.get("shape")
    known_sizes = sizes if isinstance(sizes, list) else []
    shape = [size if isinstance(size, int) else _UNKNOWN_SIZE for size in known_sizes]
    stride = value.get("stride")
    known = isinstance(stride, list) and all(isinstance(size, int) for size in stride)
    strides = [int(size) for size in stride] if known and stride else _contiguous(shape)
    dtype, device = str(value["dtype"]), str(value.get("device", "cpu"))
    if not _DTYPE.fullmatch(dtype):
        dtype = "torch.float32"
    return f"make({shape}, {strides}, {dtype}, {device!r})"


def _contiguous(shape: list[int]) -> list[int]:
    return [math.prod(max(size, 1) for size in shape[place + 1 :]) for place in range(len(shape))]


_MAIN = """\
def tensors(value):
    leaves = torch.utils._pytree.tree_leaves(value)
    return [leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor)]


def run(function):
    torch.manual_seed(0)
    return tensors(function(*inputs()))


if __name__ == "__main__":
    torch.manual_seed(0)
    graph = Graph()
    eager = run(graph)
    print("eager:", [tuple(value.shape) for value in eager])
    compiled = run(torch.compile(graph))
    for number, (one, other) in enumerate(zip(eager, compiled)):
        difference = (one.double() - other.double()).abs().max().item() if one.numel() else 0.0
        print(f"output {number}: largest difference {difference:.3g}")
"""
