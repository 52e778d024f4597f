"""Operators that a program, or a library of its, defined itself.

Their code is not in the recording, and would not be run if it were. What is recorded is the shape
of what they return, and that is all a compiler needs: it calls them and never looks inside. So an
operator of the same name is declared that has such a result and cannot be run.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from inductoscope.recording.values import members
from inductoscope.targets.recompile.unbuildable import Unbuildable

_TORCHS = ("torch", "aten", "prims", "prim", "higher_order", "quantized", "mkldnn")
_LARGEST = 2**62

# Shape, strides, type and device of a result: a value, so that an operator is declared once.
Result = tuple[tuple[int, ...], tuple[int, ...], str, str]


def is_own(written: str) -> bool:
    """Whether printed code calls an operator that torch does not have.

    The code says `torch.ops.mine.twice(…)`. A function that Dynamo was told to leave alone has such
    a name too, but is called otherwise, and would be traced later on.
    """
    parts = _parts(written)
    is_operator = written.startswith("torch.ops.") and len(parts) in (2, 3)
    return is_operator and parts[0] not in _TORCHS and all(map(_is_plain, parts))


def _parts(name: str) -> list[str]:
    return name.removeprefix("torch.ops.").split(".")


def _is_plain(part: str) -> bool:
    return part.isascii() and part.isidentifier()


def stand_in(
    name: str, arguments: Iterable[Any], keywords: Mapping[str, Any], value: Any, devices: Any
) -> Any:
    """An operator that takes the same arguments and returns tensors of the recorded shapes."""
    namespace, operator = _parts(name)[:2]
    given = [f"{_type_of(item, name)} a{at}" for at, item in enumerate(arguments)]
    named = [f"{_type_of(item, name)} {key}" for key, item in keywords.items()]
    several = isinstance(value, list)
    results = tuple(_result(item, name, devices) for item in (value if several else [value]))
    returned = ", ".join("Tensor" for _ in results)
    signature = ", ".join([*given, *(["*", *named] if named else [])])
    arrow = f"({returned})" if several else returned
    return _declared(namespace, operator, f"({signature}) -> {arrow}", results)


def _type_of(item: Any, name: str) -> str:
    """The type of an argument, as schemas write it."""
    if isinstance(item, (list, tuple)):
        kinds = {_type_of(one, name) for one in item}
        if len(kinds) > 1 or not kinds <= {"Tensor", "SymInt", "float", "bool"}:
            raise Unbuildable(f"{name} is given a list of {' and '.join(sorted(kinds)) or 'none'}")
        return f"{kinds.pop() if kinds else 'SymInt'}[]"
    if item is None:
        return "Tensor?"
    if hasattr(item, "op"):  # A node of the graph.
        return "SymInt" if item.meta.get("is_size") else "Tensor"
    for kind, written in ((bool, "bool"), (int, "SymInt"), (float, "float"), (str, "str")):
        if isinstance(item, kind):
            return written
    return _torch_type(item, name)


def _torch_type(item: Any, name: str) -> str:
    import torch

    for kind, written in ((torch.dtype, "ScalarType"), (torch.device, "Device")):
        if isinstance(item, kind):
            return written
    raise Unbuildable(f"{name} is given a {type(item).__name__}")


def _result(value: Any, name: str, devices: Any) -> Result:
    found = members(value)
    shape, stride = found.get("shape"), found.get("stride")
    if "dtype" not in found or not isinstance(shape, list) or not isinstance(stride, list):
        raise Unbuildable(
            f"{name} is an operator of the program's own, and what it returns is not recorded"
        )
    if not all(type(size) is int and 0 <= size < _LARGEST for size in (*shape, *stride)):
        raise Unbuildable(
            f"{name} is an operator of the program's own, and its result has no fixed size"
        )
    device = str(devices.device(str(found.get("device", "cpu"))))
    return tuple(shape), tuple(stride), str(found["dtype"]), device


@functools.cache
def _declared(namespace: str, operator: str, signature: str, results: tuple[Result, ...]) -> Any:
    """Declared once per signature and result: each is an overload of its own."""
    import torch

    packet = getattr(getattr(torch.ops, namespace), operator, None)
    ours = _OVERLOADS.get((namespace, operator), 0)
    if packet is not None and not ours:
        raise Unbuildable(f"{namespace}.{operator} is an operator of torch that is not computed")
    overload = f"form_{ours + 1}" if ours else ""
    library = torch.library.Library(namespace, "FRAGMENT")
    _LIBRARIES.append(library)
    full = f"{operator}.{overload}" if overload else operator
    library.define(f"{full}{signature}")
    torch.library.register_fake(f"{namespace}::{full}", _fake(results, signature), lib=library)
    _OVERLOADS[namespace, operator] = ours + 1
    return getattr(getattr(getattr(torch.ops, namespace), operator), overload or "default")


# A library that nobody holds is taken back.
_LIBRARIES: list[Any] = []
_OVERLOADS: dict[tuple[str, str], int] = {}


def _fake(results: tuple[Result, ...], signature: str) -> Any:
    import torch

    def make(*arguments: Any, **keywords: Any) -> Any:
        made = tuple(
            torch.empty_strided(
                shape, stride, dtype=getattr(torch, dtype.removeprefix("torch.")), device=device
            )
            for shape, stride, dtype, device in results
        )
        return made if signature.endswith(")") else made[0]

    return make
