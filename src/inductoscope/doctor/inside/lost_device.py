"""A GPU that this process can no longer use: what the error itself says.

After a failed assertion or an illegal access on a GPU, every later call of the process fails too.
Nothing can be tried in it, and no fork of it can use the GPU. But under the doctor launches are
synchronous, so the line of the generated wrapper that raised names the kernel.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from inductoscope.doctor.handover import Found
from inductoscope.doctor.location import Location
from inductoscope.doctor.search.error_location import kernel_called_from
from inductoscope.doctor.search.failure_signature import first_to_last, raising_functions
from inductoscope.vocabulary import stages

_NO_SCRIPT = "after this error the process cannot use the GPU, so nothing could be tried"
_NODES = re.compile(
    r"# Topologically Sorted Source Nodes: \[(?P<nodes>[^\]]*)\]"
    r"(?:, Original ATen: \[(?P<aten>[^\]]*)\])?"
)


def is_device_lost() -> bool:
    """Whether every call to the GPU fails."""
    if not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except Exception:
        return True
    return False


def fill_in_from_error(found: Found, module: torch.fx.GraphModule, error: BaseException) -> Found:
    """Fill in the kernel that failed, its operations, and their lines in the program."""
    functions = [name for one in first_to_last(error) for name in raising_functions(one)]
    wrapper, kernel = kernel_called_from(functions)
    nodes, operations = _contents(wrapper, kernel)
    text = f"the launch of {kernel} raised the error" if kernel else ""
    how = "every launch was synchronous" if kernel else ""
    found.location = Location(stage=stages.RUNTIME, kernel=kernel, text=text, how=how)
    found.operations = operations
    found.sources = source_lines_of(module, nodes)
    found.functions = functions[:6]
    found.no_script = _NO_SCRIPT
    found.is_complete = True
    return found


def _contents(wrapper: str, kernel: str) -> tuple[list[str], list[str]]:
    """The nodes and ATen operations in a kernel, from the comments of the wrapper."""
    try:
        text = Path(wrapper).read_text("utf-8", "replace")
    except OSError:
        return [], []
    before = text.partition(f"{kernel} = async_compile")[0] if kernel else ""
    comments = list(_NODES.finditer(before))
    if not comments or before == text:
        return [], []
    last = comments[-1]
    return _names(last["nodes"]), _names(last["aten"] or "")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def source_lines_of(module: torch.fx.GraphModule, names: list[str]) -> list[str]:
    """Lines of the program that nodes of a graph come from."""
    from inductoscope.doctor.search.wrong_result_location import places_of

    chosen: list[Any] = [node for node in module.graph.nodes if node.name in names]
    return places_of(chosen or [node for node in module.graph.nodes if node.op != "output"])
