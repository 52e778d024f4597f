"""What a GPU that is not there cannot answer, as torch words it.

An exception with such a text says nothing about the program: on a real GPU it would not be raised.
"""

from __future__ import annotations

import re

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
