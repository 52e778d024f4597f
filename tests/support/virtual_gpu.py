"""A GPU that is not there, for programs under test: import this before torch.

Inductor then takes its CUDA path down to Triton source and, with `triton` installed, to machine
code; tensors on cuda:0 are fake ones, launches do nothing, and benchmarks return made-up times. So
a stall of a real compiler (ptxas, LLVM) can be had on a machine without a GPU. What pretends is
the package's own: see inductoscope.targets.
"""

from __future__ import annotations

from inductoscope.inside import pretend
from inductoscope.torch_facts.gpu_targets import parse_target

TARGET = parse_target("cuda:90")

_stand_in = pretend.prepare(TARGET)

import torch  # noqa: E402


def install(*, precompiles: bool = True) -> None:
    """Pretend; to be called once, before anything is compiled."""
    pretend.take_over(_stand_in, TARGET, precompiles=precompiles)


def tensor(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """A tensor on the device that is not there; inside of `tensors()`."""
    return torch.empty(*shape, dtype=dtype, device="cuda")


def tensors() -> object:
    """Where such tensors live: `with tensors(): …`."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)
