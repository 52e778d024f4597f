"""How torch's own check for NaN (`nan_asserts`) speaks.

A wrapper in Python raises a bare AssertionError, in a line that names a variable of its own; one in
C++ names the variable in its message.
"""

from __future__ import annotations

import re

_SAID = re.compile(r"At least one (?:NaN|INF) in (\w+)", re.IGNORECASE)
_ASSERTED = re.compile(r"assert not (\w+)\.is(?:nan|inf)\(\)\.any\(\)\.item\(\)")


def refused_variable(kind: str, message: str, last_frame: str) -> str:
    """The variable of the wrapper that holds NaN; "" if an exception says something else.

    `kind` is the exception's type, `last_frame` the line that raised it, as Python prints it.
    """
    if kind == "AssertionError":
        found = _ASSERTED.search(last_frame)
    else:
        found = _SAID.search(message) if kind == "RuntimeError" else None
    return found[1] if found else ""


# --- What a GPU that is not there cannot answer, as torch words it --------------------------------
#
# An exception with such a text says nothing about the program: on a real GPU it would not be
# raised.

# Names of what stands in for the device's own objects; Python writes them into its exceptions.
PROPERTIES_NAME = "PretendedProperties"
DRIVER_NAME = "PretendedDriver"

_STAND_INS = f"{PROPERTIES_NAME}|{DRIVER_NAME}"
_LIMITS = tuple(
    re.compile(pattern)
    for pattern in (
        r"module 'torch\._C' has no attribute '(?P<what>_(?:cuda|Cuda|CUDA)\w*)'",
        rf"'(?:{_STAND_INS})' object has no attribute '(?P<what>\w+)'",
        r"Tried to instantiate dummy base class (?P<what>\w+)",
        r"Could not run '(?P<what>[\w:.]+)' with arguments from the 'CUDA' backend",
        r"(?P<what>Torch not compiled with CUDA enabled)",
        r"(?P<what>Found no NVIDIA driver on your system)",
        r"(?P<what>Cannot initialize CUDA without ATen_cuda library)",
        r"(?P<what>PyTorch is not linked with support for cuda devices)",
    )
)


# Raised where a program asks for the value of a tensor that was never computed.
_NO_VALUE = ("DataDependentOutputException", "DynamicOutputShapeException")


def wants_a_value(type_name: str, message: str) -> bool:
    """Whether an exception says that a tensor has a shape and no value."""
    return type_name in _NO_VALUE or "FakeTensor" in message


def asked_in_vain(text: str) -> str:
    """What torch wanted of a GPU, in an exception that only a pretended one causes; else empty."""
    for pattern in _LIMITS:
        found = pattern.search(text)
        if found is not None:
            return found["what"]
    return ""
