"""Rebuilds a captured FX graph from its recorded nodes, arguments, sizes and operators.

Names of nodes and lines of the user's program are kept, so that every view of the new recording
leads back to the program. Inputs are fake tensors: they have a shape, and no memory.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import keyword
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType, SimpleNamespace
from typing import Any

from inductoscope.inside.graphs import target_name
from inductoscope.model.fx import FxGraph, FxNode, graph_from
from inductoscope.recording.values import members
from inductoscope.torch_facts.frames import Frame

_IDENTIFIER = re.compile(r"[A-Za-z_]\w{0,200}", re.ASCII)
_ATTENTION = (
    "scaled_dot_product_attention is decomposed here; a real GPU would call a fused kernel for it"
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass
class Rebuilt:
    """A graph that can be compiled, its inputs, and how it differs from the original."""

    module: Any
    inputs: list[Any]
    notes: list[str] = field(default_factory=list)
    # Custom operators of the program, whose gradient formulas are not in the recording.
    own_operators: tuple[str, ...] = ()


class Rebuilder:
    """Builds graphs for one device, in one fake-tensor mode."""

    def __init__(self, fake_mode: Any, devices: Mapping[str, str]) -> None:
        self._mode = fake_mode
        self._sizes = Sizes(fake_mode.shape_env)
        self._devices = devices
        self._notes: list[str] = []
        self._own: dict[str, None] = {}

    def build(self, graph: FxGraph) -> Rebuilt:
        """Rebuild a graph with its inputs. Raise Unbuildable if the recording lacks something."""
        self._learn_sizes(graph)
        inputs: list[Any] = []
        module = self._module(graph, inputs)
        return Rebuilt(module, inputs, self._notes, tuple(self._own))

    def _learn_sizes(self, graph: FxGraph) -> None:
        for node in graph.nodes:
            value = members(node.value)
            if node.op == "placeholder" and "hints" in value:
                self._sizes.learn(_list(value.get("shape")), _list(value.get("hints")))
            elif node.op == "placeholder" and "hint" in value:
                self._sizes.learn([value.get("text")], [value.get("hint")])

    # --- nodes ------------------------------------------------------------------------------------

    def _module(self, graph: FxGraph, inputs: list[Any] | None) -> Any:
        """Build a GraphModule; `inputs`, if given, is filled in order."""
        from torch.fx import Graph, GraphModule
        from torch.nn import Module

        built, root = Graph(), Module()
        nodes: dict[str, Any] = {}
        written = written_calls(graph.code)
        for node in self._ordered(graph):
            made = self._node(built, root, graph, node, nodes, written)
            made.meta["is_size"] = members(node.value).get("type") in ("SymInt", "int")
            nodes[node.name] = made
            _keep_place(made, node)
            if _is_input(graph, node):
                self._input(made, node, graph, inputs)
        return GraphModule(root, built)

    def _ordered(self, graph: FxGraph) -> list[FxNode]:
        """Return the nodes to build, inputs first; constants become inputs."""
        nodes = [node for node in graph.nodes if node.target not in COMPUTES_NOTHING]
        return sorted(nodes, key=lambda node: not _is_input(graph, node))

    def _node(
        self,
        built: Any,
        root: Any,
        graph: FxGraph,
        node: FxNode,
        nodes: Mapping[str, Any],
        written: Mapping[str, str],
    ) -> Any:
        if not _IDENTIFIER.fullmatch(node.name) or node.name in nodes:
            raise Unbuildable(f"a node has the name {node.name[:40]!r}")
        names = Names(nodes, self._devices)
        if _is_input(graph, node):
            return built.create_node("placeholder", node.name, name=node.name)
        if node.op == "get_attr":
            return self._inner_graph(built, root, graph, node)
        arguments = read_arguments(node.args, names)
        keywords = read_arguments(node.kwargs, names) or {}
        if not isinstance(arguments, tuple) or not isinstance(keywords, dict):
            raise Unbuildable(f"the arguments of {node.name} cannot be read")
        if node.op == "output":
            return built.output(arguments[0] if arguments else ())
        if node.op == "call_method":
            target: Any = check_method(node.target)
        elif node.op == "call_function":
            called = written.get(node.name, "")
            if is_own(called):
                self._own[node.target] = None
                made = stand_in(called, arguments, keywords, node.value, names)
                return built.create_node(node.op, made, arguments, keywords, name=node.name)
            target = resolve_function(node.target, called)
            _check_attribute(target, arguments)
        else:
            raise Unbuildable(f"{node.name} calls a module whose code is not in the recording")
        if self._devices and node.target.endswith("scaled_dot_product_attention"):
            self._note(_ATTENTION)
        call = move_call(Call(target, arguments, keywords), names)
        return built.create_node(
            node.op, call.target, call.arguments, call.keywords, name=node.name
        )

    def _inner_graph(self, built: Any, root: Any, graph: FxGraph, node: FxNode) -> Any:
        inner = graph_from(members(graph.attributes.get(node.target)).get("graph"))
        if inner is None or not _IDENTIFIER.fullmatch(node.target):
            raise Unbuildable(f"{node.target[:60]}, which the graph reads, is not in the recording")
        setattr(root, node.target, self._module(inner, None))
        return built.create_node("get_attr", node.target, name=node.name)

    # --- inputs -----------------------------------------------------------------------------------

    def _input(self, made: Any, node: FxNode, graph: FxGraph, inputs: list[Any] | None) -> None:
        value = members(node.value) or members(graph.attributes.get(node.target))
        if inputs is None:
            return  # A subgraph gets its inputs from the outer graph.
        if node.op == "get_attr":
            self._note(f"the constant {node.target[:60]} is taken as an input")
        example = self._example(value, node.name)
        inputs.append(example)
        made.meta["example_value"] = example

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)

    def _example(self, value: dict[str, Any], name: str) -> Any:
        import torch

        if "dtype" not in value:
            return self._number(value, name)
        dtype = getattr(torch, str(value["dtype"]).removeprefix("torch."), None)
        if not isinstance(dtype, torch.dtype) or "stride" not in value:
            raise Unbuildable(f"the input {name} is not a dense tensor")
        shape = [self._sizes.size(size) for size in _list(value.get("shape"))]
        stride = [self._sizes.size(size) for size in _list(value.get("stride"))]
        if len(shape) != len(stride):
            raise Unbuildable(f"the input {name} has no strides")
        device = Names({}, self._devices).device(str(value.get("device", "cpu")))
        with self._mode:
            tensor = torch.empty_strided(shape, stride, dtype=dtype, device=device)
        learns = value.get("requires_grad") is True
        return tensor.requires_grad_() if learns and dtype.is_floating_point else tensor

    def _number(self, value: dict[str, Any], name: str) -> Any:
        if value.get("type") in ("SymInt", "int") and "text" in value:
            text = str(value["text"])
            return self._sizes.size(int(text) if text.isdecimal() else text)
        raise Unbuildable(f"the input {name} is neither a tensor nor a size")


def _is_input(graph: FxGraph, node: FxNode) -> bool:
    """Check whether a node is an input or a tensor of the module, recorded only by its shape."""
    held = node.op == "get_attr" and "dtype" in members(graph.attributes.get(node.target))
    return held or node.op == "placeholder"


def _check_attribute(target: Any, arguments: tuple[Any, ...]) -> None:
    if target is getattr and (len(arguments) != 2 or arguments[1] not in ATTRIBUTES):
        raise Unbuildable(f"the attribute {str(arguments[1:])[:40]} is read")


def _keep_place(made: Any, node: FxNode) -> None:
    """Set the stack trace and module stack as torch does; both may end up in generated comments."""
    if node.stack:
        made.meta["stack_trace"] = "".join(_frame_text(frame) for frame in node.stack)
    if node.modules:
        stack = [tuple(_CONTROL.sub("?", text) for text in (m.path, m.kind)) for m in node.modules]
        made.meta["nn_module_stack"] = {path: (path, kind) for path, kind in stack}


def _frame_text(frame: Frame) -> str:
    file, function, code = (
        _CONTROL.sub("?", text) for text in (frame.file, frame.function, frame.code)
    )
    return f'  File "{file}", line {frame.line}, in {function}\n    {code}\n'


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


# --- Why a recorded graph cannot be rebuilt -------------------------------------------------------


class Unbuildable(Exception):
    """The error for a graph that cannot be rebuilt from the recording; the message says why."""


# --- Reads the recorded text of a node's arguments: `(l_x_, (16,), 1e-05)` ------------------------
#
# The text is parsed, never evaluated: it may hold references to nodes that came before, numbers,
# short plain strings, lists, slices, and the few objects of torch that graphs hold.

# Strings end up in generated code, sometimes unquoted, so only characters that are harmless there
# are allowed. They are enough for modes, devices and einsum's equations.
_PLAIN = re.compile(r"[\w .,:>\-]{0,200}", re.ASCII)
_NUMBERS = {"inf": float("inf"), "nan": float("nan"), "Ellipsis": ...}


@dataclass(frozen=True)
class Names:
    """Values that a name in the arguments may stand for."""

    nodes: Mapping[str, Any]
    # Maps a recorded device, such as 'cpu', to the device to compile for.
    devices: Mapping[str, str]

    def device(self, recorded: str) -> Any:
        import torch

        kind = recorded.partition(":")[0]
        try:
            return torch.device(self.devices.get(kind, recorded))
        except RuntimeError as error:
            raise Unbuildable(f"there is no device {recorded[:40]}") from error


def _parsed(text: str, otherwise: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise Unbuildable(otherwise) from error


def read_arguments(text: str, names: Names) -> Any:
    """Parse recorded arguments into values."""
    return _value(_parsed(text, _why_unreadable(text)), names) if text else ()


def _why_unreadable(text: str) -> str:
    if "<" in text and " at 0x" in text:
        return "an argument is an object of the program's own"
    if len(text) >= 2000:
        return "a long literal was left out of the recording"
    return f"an argument cannot be read: {text[:60]}"


def _value(node: ast.expr, names: Names) -> Any:
    def read(item: Any) -> Any:
        return _value(item, names)

    match node:
        case ast.Constant(value=str(text)) if not _PLAIN.fullmatch(text):
            raise Unbuildable("an argument is a string that is not a plain word")
        case ast.Constant(value=value) if not isinstance(value, bytes):
            return value
        case ast.Name(id=name) if name in names.nodes:
            return names.nodes[name]
        case ast.Name(id=name) if name in _NUMBERS:
            return _NUMBERS[name]
        case ast.Name(id=name):
            raise Unbuildable(f"an argument refers to {name[:60]}, which is not in the graph")
        case ast.Attribute() if (path := ast.unparse(node)) in _torch_constants():
            return _torch_constants()[path]
        case ast.Tuple(elts=items):
            return tuple(map(read, items))
        case ast.List(elts=items):
            return list(map(read, items))
        case ast.Dict(keys=keys, values=values) if None not in keys:
            return dict(zip(map(_key, map(read, keys)), map(read, values), strict=True))
        case ast.UnaryOp(op=ast.USub(), operand=ast.Name(id="inf")):
            return -float("inf")
        case ast.UnaryOp() | ast.BinOp():
            with contextlib.suppress(ValueError):
                return ast.literal_eval(node)  # A negative or a complex number, nothing else.
        case ast.Call():
            keywords = {str(each.arg): read(each.value) for each in node.keywords}
            return _called(ast.unparse(node.func), [*map(read, node.args)], keywords, names)
    raise Unbuildable(f"an argument cannot be read: {ast.unparse(node)[:60]}")


@functools.cache
def _torch_constants() -> dict[str, Any]:
    import torch

    kinds = (torch.dtype, torch.layout, torch.memory_format)
    return {f"torch.{name}": v for name, v in vars(torch).items() if isinstance(v, kinds)}


def _key(key: Any) -> Any:
    """Check a dictionary key: FX writes names of arguments into code verbatim."""
    is_name = isinstance(key, str) and key.isidentifier() and not keyword.iskeyword(key)
    if not is_name and not isinstance(key, int):
        raise Unbuildable("an argument is a dictionary with other keys than names")
    return key


def _called(function: str, given: list[Any], named: dict[str, Any], names: Names) -> Any:
    """Read objects that print as calls, such as `device(type='cpu')` and `torch.Size([2, 3])`."""
    if function == "slice" and 1 <= len(given) <= 3 and not named:
        return slice(*given)
    if function == "torch.Size" and len(given) == 1 and not named:
        return tuple(given[0])
    if function in ("device", "torch.device"):
        return names.device(str(named.get("type", given[0] if given else "")))
    raise Unbuildable(f"an argument is a {function[:60]}, which is not in the recording")


# --- Recorded sizes: numbers, or expressions of symbols for dynamic sizes -------------------------

_SYMBOL = re.compile(r"[A-Za-z_]\w{0,40}")
_ARITHMETIC: dict[str, Any] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": operator.mul,
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
}
_LARGEST = 2**62


class Sizes:
    """Makes sizes for inputs: the same symbol is the same size everywhere."""

    def __init__(self, shape_env: Any) -> None:
        self._shape_env = shape_env
        self._symbols: dict[str, Any] = {}

    def learn(self, sizes: Iterable[Any], hints: Iterable[Any]) -> None:
        """Remember the values of the symbols in the recorded run."""
        for size, hint in zip(sizes, hints, strict=False):
            is_symbol = isinstance(size, str) and _SYMBOL.fullmatch(size)
            if is_symbol and size not in self._symbols and type(hint) is int:
                self._symbols[size] = self._new_symbol(size, hint)

    def _new_symbol(self, name: str, hint: int) -> Any:
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic

        source = ConstantSource(f"size_{name}")
        symbol = self._shape_env.create_symbol(
            hint, source=source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None
        )
        return self._shape_env.create_symintnode(symbol, hint=hint, source=source)

    def size(self, recorded: Any) -> Any:
        """Return the value of a recorded size, stride or scalar input."""
        if type(recorded) is int and 0 <= recorded < _LARGEST:
            return recorded
        if not isinstance(recorded, str):
            raise Unbuildable(f"a size is {str(recorded)[:40]}")
        return self._evaluate(_parsed(recorded, f"a size cannot be read: {recorded[:60]}"))

    def _evaluate(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.Name(id=name) if name in self._symbols:
                return self._symbols[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._evaluate(operand)
            case ast.BinOp(left=left, right=right):
                function = _ARITHMETIC.get(type(node.op).__name__)
            case ast.Call(func=ast.Name(id=name), args=[left, right], keywords=[]):
                function = _ARITHMETIC.get(name)
            case _:
                function = None
        if function is None:
            text = ast.unparse(node)[:60]
            raise Unbuildable(f"a size is only known while the program runs: {text}")
        return function(self._evaluate(left), self._evaluate(right))


# --- Calls that name a device, or that make a tensor where torch would by default -----------------
#
# A program for the CPU often does neither. Its graphs move to another device as a whole, including
# the tensors that they create.

_MAKES_TENSORS = {
    "arange", "bartlett_window", "blackman_window", "empty", "empty_permuted",
    "empty_strided", "eye", "full", "hamming_window", "hann_window", "kaiser_window",
    "linspace", "logspace", "ones", "rand", "randint", "randn", "randperm", "range",
    "scalar_tensor", "tensor", "tril_indices", "triu_indices", "zeros",
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    target: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]


def move_call(call: Call, names: Names) -> Call:
    """Return the call with recorded devices replaced by the ones to compile for."""
    if not names.devices:
        return call
    name = call.target if isinstance(call.target, str) else getattr(call.target, "__name__", "")
    if name == "_enter_autocast" and call.arguments:
        kind = names.devices.get(str(call.arguments[0]), str(call.arguments[0]))
        return replace(call, arguments=(kind.partition(":")[0], *call.arguments[1:]))
    if name in ("cpu", "cuda") and name in names.devices and isinstance(call.target, str):
        return Call("to", (call.arguments[0], names.device(name)), {})
    if name in _MAKES_TENSORS and "device" not in call.keywords:
        default = names.devices.get("cpu")
        more = {} if default is None else {"device": names.device("cpu")}
        return replace(call, keywords={**call.keywords, **more})
    return _with_words_read(call, name, names)


def _with_words_read(call: Call, name: str, names: Names) -> Call:
    """Replace devices that are given as strings: `x.to("cpu")` and `device="cpu"`."""
    arguments, keywords = call.arguments, call.keywords
    if name == "to":
        arguments = tuple(_moved(item, names) for item in arguments)
    if "device" in keywords:
        keywords = {**keywords, "device": _moved(keywords["device"], names)}
    return replace(call, arguments=arguments, keywords=keywords)


def _moved(value: Any, names: Names) -> Any:
    is_device = isinstance(value, str) and value.partition(":")[0] in names.devices
    return names.device(value) if is_device else value


# --- Which operations a graph may be rebuilt from: tables of what torch computes with -------------
#
# A recorded name is looked up here and nowhere else: it is neither imported nor evaluated. No table
# has functions that read or write files, call back into Python or expose memory.

_OPERATORS = (
    "abs", "add", "and_", "concat", "contains", "eq", "floordiv", "ge", "getitem", "gt",
    "iadd", "iand", "ifloordiv", "ilshift", "imatmul", "imod", "imul", "index", "invert",
    "ior", "ipow", "irshift", "isub", "itruediv", "ixor", "le", "lshift", "lt", "matmul",
    "mod", "mul", "ne", "neg", "not_", "or_", "pos", "pow", "rshift", "setitem", "sub",
    "truediv", "truth", "xor", "is_", "is_not",
)  # fmt: skip

# Functions that occur in graphs, but not in torch's table of overridable functions.
_AUTOCAST = ("_enter_autocast", "_exit_autocast")
_HIGHER_ORDER = (
    "cond",
    "while_loop",
    "scan",
    "associative_scan",
    "invoke_subgraph",
    "map_impl",
    "tag_activation_checkpoint",
    "wrap_activation_checkpoint",
    "wrap_with_set_grad_enabled",
    "wrap_with_autocast",
    "autograd_function_apply",
)

# Functions that touch files or memory, or call back into Python, and words that exclude a name.
_REFUSED = {
    "save", "load", "from_numpy", "numpy", "tolist", "new", "map_", "map2_", "apply_",
    "register_hook", "backward", "module_load", "register_post_accumulate_grad_hook",
    "set_", "as_subclass", "type", "asarray", "autocast", "compile", "handle_torch_function",
}  # fmt: skip
_REFUSED_WORDS = ("file", "blob", "ptr", "storage", "dlpack", "buffer", "print", "test", "foobar")
ATTRIBUTES = {
    "T", "mT", "H", "mH", "real", "imag", "data", "shape", "dtype", "device", "ndim", "grad",
}  # fmt: skip

# Calls that Dynamo captures although they compute nothing: torch's usage counters.
COMPUTES_NOTHING = ("torch._C._log_api_usage_once",)


def resolve_function(name: str, written: str) -> Callable[..., Any]:
    """Look up the function of a call. `written` is its name in the printed code, which
    distinguishes the few functions that share one recorded name."""
    for candidate in (name, written):
        found = _functions().get(candidate) or _library_operation(candidate)
        if found is not None:
            return found
    raise Unbuildable(f"{(name or written)[:80]} {_why_not(name)}")


def _why_not(name: str) -> str:
    parts = name.split(".")
    if len(parts) == 3 and parts[0] not in ("torch", "aten", "prims"):
        return "is an operator of the program's own"
    return "is not an operation that graphs are rebuilt from"


def check_method(name: str) -> str:
    """Return the name if it is an allowed tensor method; else raise Unbuildable."""
    if name not in _methods():
        raise Unbuildable(f"{name[:80]} is not a method that graphs are rebuilt from")
    return name


@functools.cache
def _methods() -> frozenset[str]:
    import torch
    from torch.overrides import get_overridable_functions

    known = {getattr(f, "__name__", "") for f in get_overridable_functions()[torch.Tensor]}
    known |= {name for name in dir(torch.Tensor) if _is_plain_method(name)}
    inner = {name for name in known if name.startswith("_")}
    arithmetic = {f"__{name.strip('_')}__" for name in _OPERATORS}
    return frozenset(name for name in known - inner | arithmetic if not _is_refused(name))


def _is_plain_method(name: str) -> bool:
    """Check whether torch defines a tensor method in C++: arithmetic, views, conversions."""
    import torch

    return type(getattr(torch.Tensor, name, None)).__name__ == "method_descriptor"


def _is_refused(name: str) -> bool:
    return name in _REFUSED or any(word in name for word in _REFUSED_WORDS)


@functools.cache
def _functions() -> dict[str, Callable[..., Any]]:
    table: dict[str, Callable[..., Any]] = {}
    for function in _torch_functions():
        name = getattr(function, "__name__", "")
        if name and not isinstance(function, type) and not _is_refused(name):
            table.update(dict.fromkeys(_names_of(function), function))
    table.update({name: getattr(operator, name) for name in _OPERATORS})
    table.update({f"_operator.{name}": getattr(operator, name) for name in _OPERATORS})
    for name, function in vars(math).items():
        if callable(function):
            table[f"math.{name}"] = function
    table["getattr"] = getattr  # Its second argument is checked: see ATTRIBUTES.
    return table


def _names_of(function: Any) -> Iterator[str]:
    """Yield a function's name as recordings and as printed code spell it."""
    recorded = target_name(SimpleNamespace(target=function))
    if "<" not in recorded:  # All functions made by one closure share such a name.
        yield recorded
    module, name = getattr(function, "__module__", None), getattr(function, "__name__", None)
    if module and name:
        yield f"{module}.{name}"


def _torch_functions() -> Iterator[Any]:
    import torch
    from torch.overrides import get_overridable_functions

    for owner, functions in get_overridable_functions().items():
        if isinstance(owner, ModuleType):
            yield from (f for f in functions if callable(f))
    for namespace in (torch._C._VariableFunctions, torch._C._nn):
        yield from (getattr(namespace, name) for name in dir(namespace) if _is_public(name))
    for module in (torch.nn.functional, torch.functional):
        for function in vars(module).values():
            if callable(function) and getattr(function, "__module__", "") == module.__name__:
                yield function
    yield from (function for name, function in vars(torch).items() if name.startswith("sym_"))
    yield torch.tensor
    yield torch._C._set_grad_enabled
    from torch.amp import autocast_mode

    yield from (getattr(autocast_mode, name) for name in _AUTOCAST if hasattr(autocast_mode, name))
    for name in _HIGHER_ORDER:
        function = getattr(torch.ops.higher_order, name, None)
        if function is not None:
            yield function


def _is_public(name: str) -> bool:
    return not name.startswith("__")


def _library_operation(name: str) -> Any:
    """Look up an operator such as `aten.relu.default` or `prims.…` in the dispatcher."""
    import torch

    parts = name.removeprefix("torch.ops.").split(".")
    if len(parts) not in (2, 3) or parts[0] not in ("aten", "prims"):
        return None
    if not all(part.isidentifier() for part in parts) or _is_refused(parts[1]):
        return None
    packet: Any = getattr(getattr(torch.ops, parts[0]), parts[1], None)
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return None
    overloads = packet.overloads() if len(parts) == 2 else parts[2:]
    every = [getattr(packet, name, None) for name in overloads]
    found = packet if len(parts) == 2 else every[0]
    return found if all(map(_is_computed, every)) else None


def _is_computed(operation: Any) -> bool:
    """Check whether an attribute of torch.ops is a dispatcher operator that computes on tensors.

    TorchScript's operators on strings are excluded, because a graph could build unchecked text with
    them, and so are operators that read files.
    """
    import torch

    if not isinstance(operation, torch._ops.OpOverload):
        return False
    reads_file = any("file" in argument.name for argument in operation._schema.arguments)
    return not reads_file and bool(torch._C._dispatch_has_kernel(operation.name()))


def written_calls(code: str) -> dict[str, str]:
    """Return the callee of each assigned name in code: {'relu': 'torch.nn.functional.relu'}."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return {}
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            target = node.targets[0]
            if isinstance(target, ast.Name):
                found.setdefault(target.id, ast.unparse(node.value.func)[:200])
    return found


# --- Custom operators of the program or of its libraries ------------------------------------------
#
# Their code is not in the recording, and would not be run if it were. The recorded shapes of their
# results are all that a compiler needs, because it calls custom operators without looking inside.
# So an operator of the same name and with such results is declared, which cannot be run.

_TORCHS = ("torch", "aten", "prims", "prim", "higher_order", "quantized", "mkldnn")

# Shape, strides, dtype and device of a result; hashable, so that an operator is declared once.
Result = tuple[tuple[int, ...], tuple[int, ...], str, str]


def is_own(written: str) -> bool:
    """Check whether printed code calls an operator that torch does not have.

    Such code reads `torch.ops.mine.twice(…)`. A function marked allow_in_graph has such a name too,
    but is called differently, and would be traced later.
    """
    parts = _parts(written)
    is_operator = written.startswith("torch.ops.") and len(parts) in (2, 3)
    is_plain = all(part.isascii() and part.isidentifier() for part in parts)
    return is_operator and parts[0] not in _TORCHS and is_plain


def _parts(name: str) -> list[str]:
    return name.removeprefix("torch.ops.").split(".")


def stand_in(
    name: str, arguments: Iterable[Any], keywords: Mapping[str, Any], value: Any, devices: Any
) -> Any:
    """Declare an operator with the same arguments that returns tensors of the recorded shapes."""
    namespace, operator = _parts(name)[:2]
    given = [f"{_type_of(item, name)} a{at}" for at, item in enumerate(arguments)]
    named = [f"{_type_of(item, name)} {key}" for key, item in keywords.items()]
    several = isinstance(value, list)
    results = tuple(_result(item, name, devices) for item in (value if several else [value]))
    signature = ", ".join([*given, *(["*", *named] if named else [])])
    returned = f"({', '.join('Tensor' for _ in results)})" if several else "Tensor"
    return _declared(namespace, operator, f"({signature}) -> {returned}", results)


def _type_of(item: Any, name: str) -> str:
    import torch

    if isinstance(item, (list, tuple)):
        kinds = {_type_of(one, name) for one in item}
        if len(kinds) > 1 or not kinds <= {"Tensor", "SymInt", "float", "bool"}:
            raise Unbuildable(f"{name} is given a list of {' and '.join(sorted(kinds))}")
        return f"{kinds.pop() if kinds else 'SymInt'}[]"
    if hasattr(item, "op"):  # A node of the graph.
        return "SymInt" if item.meta.get("is_size") else "Tensor"
    known = {
        type(None): "Tensor?",
        bool: "bool",
        int: "SymInt",
        float: "float",
        str: "str",
        torch.dtype: "ScalarType",
        torch.device: "Device",
    }
    if type(item) not in known:
        raise Unbuildable(f"{name} is given a {type(item).__name__}")
    return known[type(item)]


def _result(value: Any, name: str, devices: Any) -> Result:
    found = members(value)
    shape, stride = found.get("shape"), found.get("stride")
    if "dtype" not in found or not isinstance(shape, list) or not isinstance(stride, list):
        why = "what it returns is not recorded"
    elif not all(type(size) is int and 0 <= size < _LARGEST for size in (*shape, *stride)):
        why = "its result has no fixed size"
    else:
        device = str(devices.device(str(found.get("device", "cpu"))))
        return tuple(shape), tuple(stride), str(found["dtype"]), device
    raise Unbuildable(f"{name} is an operator of the program's own, and {why}")


@functools.cache
def _declared(namespace: str, operator: str, signature: str, results: tuple[Result, ...]) -> Any:
    """Declare an overload, once per signature and results."""
    import torch

    ours = _OVERLOADS.get((namespace, operator), 0)
    if not ours and hasattr(getattr(torch.ops, namespace), operator):
        raise Unbuildable(f"{namespace}.{operator} is an operator of torch that is not computed")
    overload = f"form_{ours + 1}" if ours else ""
    full = f"{operator}.{overload}" if overload else operator
    library = torch.library.Library(namespace, "FRAGMENT")
    _LIBRARIES.append(library)
    library.define(f"{full}{signature}")

    def fake(*arguments: Any, **keywords: Any) -> Any:
        made = [
            torch.empty_strided(
                shape, stride, dtype=getattr(torch, dtype.removeprefix("torch.")), device=device
            )
            for shape, stride, dtype, device in results
        ]
        return tuple(made) if signature.endswith(")") else made[0]

    torch.library.register_fake(f"{namespace}::{full}", fake, lib=library)
    _OVERLOADS[namespace, operator] = ours + 1
    return getattr(getattr(getattr(torch.ops, namespace), operator), overload or "default")


# A torch.library.Library that is garbage-collected is deregistered.
_LIBRARIES: list[Any] = []
_OVERLOADS: dict[tuple[str, str], int] = {}
