"""The names of one operator: as the scheduler has it, and as a C++ wrapper calls it."""

from __future__ import annotations

import re

_SHIM = re.compile(r"aoti_torch_(?:(?:cpu|cuda|xpu|mps|aten)_)?(\w+?)(?:_v[0-9]{1,3})?")


def scheduler_names(recorded: str) -> frozenset[str]:
    """What `called_names` may give for a kernel of the scheduler: itself, or its operator."""
    namespace, _, rest = recorded.removeprefix("torch.ops.").partition(".")
    operator, _, overload = rest.partition(".")
    if not operator:
        return frozenset({recorded})
    bare = operator.removesuffix("_")  # What works in place ends with it.
    full = f"{bare}_{overload}" if overload and overload != "default" else bare
    return frozenset({recorded, f"{namespace}::{operator}", full})


def called_names(reported: str) -> frozenset[str]:
    """The names under which `scheduler_names` may have what a wrapper calls."""
    shim = _SHIM.fullmatch(reported)
    if shim is None:
        return frozenset({reported, "::".join(reported.split("::")[:2]).partition(".")[0]})
    bare = shim[1].removesuffix("_out").removesuffix("_")
    return frozenset({reported, bare, bare.removeprefix("mkldnn_")})


def is_same_operator(recorded: str, reported: str) -> bool:
    """Whether a wrapper calls a kernel of the scheduler by the name that it reports."""
    return not scheduler_names(recorded).isdisjoint(called_names(reported))
