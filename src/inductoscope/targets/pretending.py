"""Makes this process, which must not have imported torch yet, believe that a device exists."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable
from typing import Any

from inductoscope.capture.program_settings import set_by_the_tool
from inductoscope.errors import ToolFailure
from inductoscope.kernels.target import Target
from inductoscope.targets.architectures import architecture
from inductoscope.targets.stand_in import StandIn, load_stand_in

_OWN_SETTINGS = ("compile_threads", "shape_padding")


def has_triton() -> bool:
    """Whether kernels can be compiled, without importing anything."""
    return importlib.util.find_spec("triton") is not None


def pretend(target: Target, *, machine_code: bool = True) -> None:
    """Load torch with the device. Called once per process, and only in our own processes."""
    stand_in = prepare(target)
    import torch  # noqa: F401

    take_over(stand_in, target)
    if not machine_code:
        from inductoscope.targets.source_only import write_kernels_only

        write_kernels_only()


def prepare(target: Target) -> StandIn:
    """What must happen before torch is imported."""
    if "torch" in sys.modules:
        raise ToolFailure(
            "torch looks for devices when it is imported, and it has been imported already."
        )
    architecture(target)
    set_by_the_tool(*(f"torch._inductor.config.{name}" for name in _OWN_SETTINGS))
    # Workers are other processes, which would not see the device.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    # torch would time matrix products to see whether padding pays off.
    os.environ["TORCHINDUCTOR_SHAPE_PADDING"] = "0"
    return load_stand_in()


def take_over(stand_in: StandIn, target: Target, *, precompiles: bool = True) -> None:
    """What must happen once torch has been imported. Without Triton, it stops at source."""
    from inductoscope.targets import source_only, torch_side, triton_side

    stand_in.take_over()
    torch_side.pretend_in_torch(target)
    if has_triton():
        triton_side.pretend_in_triton(target)
        triton_side.launch_nothing()
        triton_side.time_nothing(precompiles=precompiles)
    else:
        source_only.write_kernels_only()


def devices(graphs: Iterable[Any]) -> dict[str, str]:
    """Where recorded devices go: everything that computed moves to the device that exists.

    Graphs of a program on a GPU keep what they have on the CPU there; graphs of a program on the
    CPU go as a whole.
    """
    kinds = {kind for graph in graphs for kind in _kinds(graph.graph)}
    accelerators = kinds - {"cpu", "meta"}
    return dict.fromkeys(accelerators or {"cpu"}, "cuda:0")


def _kinds(data: Any) -> Iterable[str]:
    if isinstance(data, list):
        for item in data:
            yield from _kinds(item)
    elif isinstance(data, dict):
        device = data.get("device")
        if "dtype" in data and isinstance(device, str):
            yield device.partition(":")[0]
        for item in data.values():
            yield from _kinds(item)
