"""Calls that name a device, or that make a tensor where torch would by default.

A program on the CPU says neither: its graphs go to another device as a whole, and so does what
they make on the way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from inductoscope.targets.recompile.arguments import Names

_MAKES_TENSORS = {
    "arange", "bartlett_window", "blackman_window", "empty", "empty_permuted",
    "empty_strided", "eye", "full", "hamming_window", "hann_window", "kaiser_window",
    "linspace", "logspace", "ones", "rand", "randint", "randn", "randperm", "range",
    "scalar_tensor", "tensor", "tril_indices", "triu_indices", "zeros",
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    """What is called, and with what."""

    target: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]


def move_call(call: Call, names: Names) -> Call:
    """The same call with recorded devices replaced by others."""
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
    """`x.to("cpu")` and `device="cpu"`: devices given as words."""
    arguments, keywords = call.arguments, call.keywords
    if name == "to":
        arguments = tuple(_moved(item, names) for item in arguments)
    if "device" in keywords:
        keywords = {**keywords, "device": _moved(keywords["device"], names)}
    return replace(call, arguments=arguments, keywords=keywords)


def _moved(value: Any, names: Names) -> Any:
    is_device = isinstance(value, str) and value.partition(":")[0] in names.devices
    return names.device(value) if is_device else value
