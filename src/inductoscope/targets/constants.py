"""Constants of a graph on a device that is not there: `torch.tensor([…], device=x.device)`.

torch computes with constants while it compiles: with real tensors, because it wants their values.
Where it would do so on the device, it does so on the CPU, or with tensors that have no memory.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

TORCH_NAMES = {
    "torch._inductor.fx_passes.joint_graph": ("UniformValueConstantFolder",),
    "torch._inductor.graph": ("GraphLowering.constant_name",),
    "torch._subclasses.fake_tensor": ("FakeTensorMode",),
    "torch.fx.experimental.proxy_tensor": ("unset_fake_temporarily",),
    "torch.utils._python_dispatch": ("TorchDispatchMode",),
    "torch.utils._pytree": ("tree_map_only",),
}


def keep_constants_off_the_device() -> None:
    """From now on, in this process."""
    with contextlib.suppress(ImportError, AttributeError):
        _fold_on_the_cpu()
    with contextlib.suppress(ImportError, AttributeError):
        _propagate_on_the_cpu()
    with contextlib.suppress(ImportError, AttributeError):
        _copy_without_memory()


def _fold_on_the_cpu() -> None:
    """A pass makes small tensors to learn what uniform ones hold."""
    from torch._inductor.fx_passes import joint_graph

    folder, on_the_cpu = joint_graph.UniformValueConstantFolder, _on_the_cpu()
    folder.__init__ = _inside(folder.__init__, on_the_cpu)
    folder.run = _inside(folder.run, on_the_cpu)


def _inside(function: Any, context: Callable[[], Any]) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with context():
            return function(*args, **kwargs)

    return call


def _propagate_on_the_cpu() -> None:
    """While it traces, torch follows the values of tensors with one element, for `.item()`."""
    from torch.fx.experimental import proxy_tensor

    unset, on_the_cpu = proxy_tensor.unset_fake_temporarily, _on_the_cpu()

    @contextlib.contextmanager
    def unset_fake_temporarily() -> Iterator[Any]:
        with unset() as mode, on_the_cpu():
            yield mode

    proxy_tensor.unset_fake_temporarily = unset_fake_temporarily


def _on_the_cpu() -> Callable[[], Any]:
    """A context in which operations on real tensors that name the device stay on the CPU."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_map_only

    class OnTheCpu(TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
        ) -> Any:
            given = (arguments, keywords or {})
            arguments, keywords = tree_map_only(torch.device, _cpu_instead, given)
            return function(*arguments, **keywords)

    return OnTheCpu


def _cpu_instead(device: Any) -> Any:
    import torch

    return torch.device("cpu") if device.type == "cuda" else device


def _copy_without_memory() -> None:
    """Inductor copies a constant to the device on which a kernel reads it."""
    from torch._inductor.graph import GraphLowering
    from torch._subclasses.fake_tensor import FakeTensorMode

    original = GraphLowering.constant_name
    fakes = FakeTensorMode()

    def constant_name(self: Any, name: str, device_override: Any) -> str:
        held = self.constants[name]
        if device_override is None or device_override.type != "cuda":
            return str(original(self, name, device_override))
        self.constants[name] = fakes.from_tensor(held)
        try:
            return str(original(self, name, device_override))
        finally:
            self.constants[name] = held

    GraphLowering.constant_name = constant_name
