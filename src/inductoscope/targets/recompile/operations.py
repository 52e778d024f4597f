"""Which operations a graph may be rebuilt from: tables of what torch computes with.

A recorded name is looked up here and nowhere else: it is neither imported nor evaluated. What
reads or writes files, calls back into Python or hands out memory is in no table.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

from inductoscope.capture.graphs import target_name
from inductoscope.targets.recompile.unbuildable import Unbuildable

TORCH_NAMES = {
    "torch._C": (
        "_VariableFunctions",
        "_dispatch_has_kernel",
        "_log_api_usage_once",
        "_set_grad_enabled",
    ),
    "torch._C._nn": (),
    "torch._ops": ("OpOverload", "OpOverloadPacket"),
}

_OPERATORS = (
    "abs", "add", "and_", "concat", "contains", "eq", "floordiv", "ge", "getitem", "gt",
    "iadd", "iand", "ifloordiv", "ilshift", "imatmul", "imod", "imul", "index", "invert",
    "ior", "ipow", "irshift", "isub", "itruediv", "ixor", "le", "lshift", "lt", "matmul",
    "mod", "mul", "ne", "neg", "not_", "or_", "pos", "pow", "rshift", "setitem", "sub",
    "truediv", "truth", "xor", "is_", "is_not",
)  # fmt: skip

# What torch's own table of functions that tensors can take over leaves out, and graphs hold.
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

# They touch files or memory, or call back into Python; and whatever has such a word in its name.
_REFUSED = {
    "save", "load", "from_numpy", "numpy", "tolist", "new", "map_", "map2_", "apply_",
    "register_hook", "backward", "module_load", "register_post_accumulate_grad_hook",
    "set_", "as_subclass", "type", "asarray", "autocast", "compile", "handle_torch_function",
}  # fmt: skip
_REFUSED_WORDS = ("file", "blob", "ptr", "storage", "dlpack", "buffer", "print", "test", "foobar")
ATTRIBUTES = {
    "T", "mT", "H", "mH", "real", "imag", "data", "shape", "dtype", "device", "ndim", "grad",
}  # fmt: skip

# What Dynamo captures although it computes nothing: torch counts the use of its own classes.
COMPUTES_NOTHING = ("torch._C._log_api_usage_once",)


def resolve_function(name: str, written: str) -> Callable[..., Any]:
    """The function of a call. `written` is how the printed code calls it, which
    distinguishes the few that share one name."""
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
    """The name of a method of tensors."""
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
    """Methods that torch itself defines in C++: arithmetic, views, conversions."""
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
    """As a recording spells it, and as printed code does."""
    recorded = target_name(SimpleNamespace(target=function))
    if "<" not in recorded:  # Several functions made in one place share such a name.
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
    """`aten.relu.default` or `prims.…`, as the dispatcher knows them."""
    import torch

    parts = name.removeprefix("torch.ops.").split(".")
    if len(parts) not in (2, 3) or parts[0] not in ("aten", "prims"):
        return None
    if not all(part.isidentifier() for part in parts) or _is_refused(parts[1]):
        return None
    packet = getattr(getattr(torch.ops, parts[0]), parts[1], None)
    found = packet if len(parts) == 2 else getattr(packet, parts[2], None)
    if not _is_computed(packet, found) or _reads_files(packet, found):
        return None
    return found


def _is_computed(packet: Any, operation: Any) -> bool:
    """Whether the dispatcher computes it: no attribute of Python's, nothing of TorchScript's own.

    TorchScript's operators on strings would let a graph make text that no check has seen.
    """
    import torch
    from torch._ops import OpOverload, OpOverloadPacket

    if not isinstance(packet, OpOverloadPacket):
        return False
    if isinstance(operation, OpOverload):
        return bool(torch._C._dispatch_has_kernel(operation._schema.name + _suffix(operation)))
    if operation is not packet:
        return False
    overloads = (getattr(packet, name) for name in packet.overloads())
    return all(_is_computed(packet, overload) for overload in overloads)


def _suffix(operation: Any) -> str:
    name = operation._schema.overload_name
    return f".{name}" if name else ""


def _reads_files(packet: Any, operation: Any) -> bool:
    overloads = [operation] if hasattr(operation, "_schema") else []
    overloads = overloads or [getattr(packet, name) for name in packet.overloads()]
    return any("file" in a.name for overload in overloads for a in overload._schema.arguments)


def written_calls(code: str) -> dict[str, str]:
    """What each name is assigned from in printed code: {'relu': 'torch.nn.functional.relu'}."""
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
