"""Reads the recorded text of a node's arguments: `(l_x_, (16,), 1e-05)`.

The text is parsed, never evaluated: it may hold references to nodes that came before, numbers,
short plain strings, lists, slices, and the few objects of torch that graphs hold.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inductoscope.targets.recompile.unbuildable import Unbuildable

# Strings end up in generated code, sometimes without quotes around them: nothing that means
# something there gets through. It is enough for modes, devices and einsum's equations.
_PLAIN = re.compile(r"[\w .,:>\-]{0,200}", re.ASCII)
_NUMBERS = {"inf": float("inf"), "nan": float("nan"), "Ellipsis": ...}
_DEEPEST = 20


@dataclass(frozen=True)
class Names:
    """What a name in the arguments may stand for."""

    nodes: Mapping[str, Any]
    # 'cpu' in the recording → where the graph is to be compiled for.
    devices: Mapping[str, str]

    def device(self, recorded: str) -> Any:
        """The device that takes the place of a recorded one."""
        import torch

        kind = recorded.partition(":")[0]
        try:
            return torch.device(self.devices.get(kind, recorded))
        except RuntimeError as error:
            raise Unbuildable(f"there is no device {recorded[:40]}") from error


def read_arguments(text: str, names: Names) -> Any:
    """The value that the text stands for."""
    if not text:
        return ()
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise Unbuildable(_why_unreadable(text)) from error
    return _value(tree.body, names, 0)


def _why_unreadable(text: str) -> str:
    if "<" in text and " at 0x" in text:
        return "an argument is an object of the program's own"
    if len(text) >= 2000:
        return "a long literal was left out of the recording"
    return f"an argument cannot be read: {text[:60]}"


def _value(node: ast.expr, names: Names, depth: int) -> Any:
    if depth > _DEEPEST:
        raise Unbuildable("arguments are nested too deeply")
    reader = _READERS.get(type(node))
    if reader is None:
        raise Unbuildable(f"an argument cannot be read: {ast.unparse(node)[:60]}")
    return reader(node, names, depth + 1)


def _constant(node: Any, names: Names, depth: int) -> Any:
    value = node.value
    if isinstance(value, str) and not _PLAIN.fullmatch(value):
        raise Unbuildable("an argument is a string that is not a plain word")
    if isinstance(value, bytes):
        raise Unbuildable("an argument is a string of bytes")
    return value


def _name(node: Any, names: Names, depth: int) -> Any:
    if node.id in names.nodes:
        return names.nodes[node.id]
    if node.id in _NUMBERS:
        return _NUMBERS[node.id]
    raise Unbuildable(f"an argument refers to {node.id[:60]}, which is not in the graph")


def _attribute(node: Any, names: Names, depth: int) -> Any:
    text = ast.unparse(node)
    found = _torch_constants().get(text)
    if found is None:
        raise Unbuildable(f"{text[:60]} is not a type, layout or memory format of torch")
    return found


def _torch_constants() -> dict[str, Any]:
    import torch

    kinds = (torch.dtype, torch.layout, torch.memory_format)
    return {f"torch.{name}": v for name, v in vars(torch).items() if isinstance(v, kinds)}


def _tuple(node: Any, names: Names, depth: int) -> Any:
    return tuple(_value(item, names, depth) for item in node.elts)


def _list(node: Any, names: Names, depth: int) -> Any:
    return [_value(item, names, depth) for item in node.elts]


def _dictionary(node: Any, names: Names, depth: int) -> Any:
    if any(key is None for key in node.keys):
        raise Unbuildable("an argument cannot be read")
    keys = [_value(key, names, depth) for key in node.keys]
    if not all(isinstance(key, int) or _is_keyword(key) for key in keys):
        raise Unbuildable("an argument is a dictionary with other keys than names")
    return dict(zip(keys, (_value(item, names, depth) for item in node.values), strict=True))


def _is_keyword(key: Any) -> bool:
    """Whether it can name an argument; FX writes such names into code as they are."""
    return isinstance(key, str) and key.isidentifier() and not keyword.iskeyword(key)


def _minus(node: Any, names: Names, depth: int) -> Any:
    value = _value(node.operand, names, depth)
    if not isinstance(node.op, ast.USub) or not isinstance(value, (int, float, complex)):
        raise Unbuildable(f"an argument cannot be read: {ast.unparse(node)[:60]}")
    return -value


def _complex(node: Any, names: Names, depth: int) -> Any:
    """`(1+2j)` is the only sum that prints as one."""
    left, right = _value(node.left, names, depth), _value(node.right, names, depth)
    known = isinstance(node.op, (ast.Add, ast.Sub)) and isinstance(right, complex)
    if not known or not isinstance(left, (int, float)):
        raise Unbuildable(f"an argument cannot be read: {ast.unparse(node)[:60]}")
    return left + right if isinstance(node.op, ast.Add) else left - right


def _call(node: Any, names: Names, depth: int) -> Any:
    """`device(type='cpu')`, `slice(None, 2, None)` and `torch.Size([2, 3])` print as calls."""
    function = ast.unparse(node.func)
    arguments = [_value(item, names, depth) for item in node.args]
    keywords = {str(k.arg): _value(k.value, names, depth) for k in node.keywords}
    if function == "slice" and 1 <= len(arguments) <= 3 and not keywords:
        return slice(*arguments)
    if function == "torch.Size" and len(arguments) == 1 and not keywords:
        return tuple(arguments[0])
    if function in ("device", "torch.device"):
        kind = keywords.get("type", arguments[0] if arguments else "")
        return names.device(str(kind))
    raise Unbuildable(f"an argument is a {function[:60]}, which is not in the recording")


_READERS: dict[type[ast.expr], Any] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Tuple: _tuple,
    ast.List: _list,
    ast.Dict: _dictionary,
    ast.UnaryOp: _minus,
    ast.BinOp: _complex,
    ast.Call: _call,
}
