"""A call of a compiled graph, kept so that it can be made again when the test is over.

During the test nothing is compared and nothing is called twice: a test may count compiles, calls
or warnings, patch settings, or expect an exception. Its inputs are copied, which reads memory and
changes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from inductoscope.doctor.compare.surroundings import Surroundings
from inductoscope.doctor.compare.values import copy_values, is_plain, size_in_bytes
from inductoscope.doctor.inside.room_for_checks import has_room_for_copies
from inductoscope.profiling.gpu_use import is_capturing

TORCH_NAMES = {
    "torch._C": ("_len_torch_dispatch_stack", "_len_torch_function_stack"),
    "torch._C._autograd": ("_profiler_enabled",),
    "torch._C._functorch": ("get_dynamic_layer_stack_depth",),
}

# Bytes of inputs that are kept until the end of one test.
_MOST = 1 << 30
_DEVICES = ("cpu", "cuda")
_NUMBERS = (bool, int, float, complex, str, type(None), torch.dtype, torch.device)


@dataclass(eq=False)
class SuiteGraph:
    """A graph that Inductor has compiled, and what it was before."""

    # Unique in the whole suite.
    name: str
    compile_id: str
    module: GraphModule
    options: dict[str, Any]
    dynamic: bool | None
    compiled: Callable[..., Any] | None = None
    # Whether its backward graph is compiled too, so that gradients can be compared.
    has_backward: bool = False
    # Why none of its calls can be made again.
    off: str = ""

    def versions(self) -> tuple[int, ...]:
        """Counts how often the tensors were written to that the graph itself holds."""
        held = [*self.module.parameters(), *self.module.buffers()]
        held += [value for value in vars(self.module).values() if isinstance(value, torch.Tensor)]
        return tuple(value._version for value in held if not value.is_inference())


@dataclass(frozen=True)
class CallSituation:
    """What a call depends on besides its inputs."""

    surroundings: Surroundings
    is_inference: bool
    default_dtype: torch.dtype
    matmul_precision: str

    @classmethod
    def now(cls) -> CallSituation:
        """That of the call that is made now."""
        return cls(
            Surroundings.now(),
            torch.is_inference_mode_enabled(),
            torch.get_default_dtype(),
            torch.get_float32_matmul_precision(),
        )

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """The same situation, inside the block."""
        before = torch.get_default_dtype(), torch.get_float32_matmul_precision()
        try:
            torch.set_default_dtype(self.default_dtype)
            if self.matmul_precision != before[1]:
                torch.set_float32_matmul_precision(self.matmul_precision)
            with torch.inference_mode(self.is_inference), self.surroundings.entered():
                yield
        finally:
            torch.set_default_dtype(before[0])
            if self.matmul_precision != before[1]:
                torch.set_float32_matmul_precision(before[1])


@dataclass(eq=False)
class KeptSuiteCall:
    """One call: copies of its inputs, and the situation that it was made in."""

    graph: SuiteGraph
    number: int
    inputs: tuple[Any, ...]
    situation: CallSituation
    versions: tuple[int, ...]
    # What it raised in the test.
    raised: str = ""
    # Why it cannot be made again after all.
    spoilt: str = ""
    # Bytes of its inputs.
    size: int = 0

    def returned(self) -> None:
        """The call is over, without an exception."""
        if self.graph.versions() != self.versions:
            self.spoilt = "it writes to tensors that it holds itself"


def said_by(error: BaseException) -> str:
    """What an exception says, in one line; what a kept call `raised`."""
    return f"{type(error).__name__}: {error}".partition("\n")[0][:300]


def keep_call(graph: SuiteGraph, number: int, arguments: Sequence[Any]) -> KeptSuiteCall:
    """Copies of the inputs of a call that is about to be made."""
    return KeptSuiteCall(
        graph,
        number,
        tuple(copy_values(arguments)),
        CallSituation.now(),
        graph.versions(),
        size=size_in_bytes(arguments),
    )


def why_not_kept(graph: SuiteGraph, arguments: Sequence[Any], kept: int) -> str:
    """Why a call cannot be made again after the test; "" if it can. `kept`: bytes kept so far."""
    if graph.off:
        return graph.off
    if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
        return "called inside a torch mode, such as a default device"
    if torch._C._functorch.get_dynamic_layer_stack_depth():
        return "called inside a transform, such as vmap"
    if torch._C._autograd._profiler_enabled():
        return "called while torch.profiler was on"
    if is_capturing():
        return "called while a CUDA graph was recorded"
    for value in arguments:
        if not isinstance(value, _NUMBERS) and not is_plain(value):
            return f"an input is a {_kind_of(value)}"
        if isinstance(value, torch.Tensor) and value.device.type not in _DEVICES:
            return f"an input is on device {value.device.type}"
    if kept + size_in_bytes(arguments) > _MOST or not has_room_for_copies(arguments):
        return "its inputs are too large to copy"
    return ""


def _kind_of(value: Any) -> str:
    kind = type(value)
    if kind in (torch.Tensor, torch.nn.Parameter):
        return "tensor of an unusual layout"
    return f"{kind.__module__}.{kind.__qualname__}"


def why_never_kept(module: GraphModule, settings: dict[str, Any]) -> str:
    """Why no call of a graph can be made again; "" if calls can."""
    for node in module.graph.nodes:
        place = str(getattr(node.target, "__module__", ""))
        if "c10d" in str(node.target) or place.startswith("torch.distributed"):
            return "it communicates with other processes"
    if settings.get("triton.cudagraphs"):
        return "it runs as a CUDA graph"
    return ""
