"""Makes torch believe that a device exists. Names missing from this torch are skipped."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

from inductoscope.kernels.target import Target
from inductoscope.targets.architectures import Architecture, architecture
from inductoscope.targets.constants import keep_constants_off_the_device
from inductoscope.targets.differences import note_difference
from inductoscope.vocabulary.pretended_device import PROPERTIES_NAME

TORCH_NAMES = {
    "torch._C._dynamo.guards": (),
    "torch._dynamo.device_interface": ("CudaInterface",),
    "torch._inductor.cudagraph_utils": ("check_lowering_disable_cudagraph",),
    "torch._subclasses.fake_tensor": ("FakeTensorMode.avoid_device_init", "init_gpu_context"),
}

_CUDA_VERSION, _HIP_VERSION = "13.0", "7.0"


def pretend_in_torch(target: Target) -> None:
    """Called right after torch has been imported: Inductor's settings depend on the version."""
    import torch

    about = architecture(target)
    if target.kind == "hip":
        torch.version.hip = torch.version.hip or _HIP_VERSION
        torch.version.cuda = None
    else:
        torch.version.cuda = torch.version.cuda or _CUDA_VERSION
        torch.version.hip = None
    answers = _answers(about, str(target.architecture))
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    inner = _inner_answers()
    for name, answer in inner.items():
        setattr(torch._C, name, answer)
    raw_stream = inner["_cuda_getCurrentRawStream"]
    pretend_in_copies({**answers, "get_raw_stream": raw_stream})
    _pretend_in_fake_tensors()
    keep_constants_off_the_device()
    _choose_no_attention_kernel()
    _capture_no_cuda_graphs()


def _answers(about: Architecture, arch: str) -> dict[str, Any]:
    import torch

    properties = type(PROPERTIES_NAME, (SimpleNamespace,), {})(**asdict(about))
    generator = torch.zeros(16, dtype=torch.uint8)
    free = about.total_memory
    listed = arch if about.gcnArchName else f"sm_{arch}"
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: False,
        "_is_compiled": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: about.capability,
        "get_device_name": lambda device=None: about.name,
        "get_arch_list": lambda: [listed],
        "is_bf16_supported": lambda including_emulation=True: True,
        "synchronize": lambda device=None: None,
        "mem_get_info": lambda device=None: (free, free),
        "memory_allocated": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 0,
        "memory_reserved": lambda device=None: 0,
        "max_memory_reserved": lambda device=None: 0,
        "reset_peak_memory_stats": lambda device=None: None,
        "empty_cache": lambda: None,
        "get_rng_state": lambda device=0: generator,
        "set_rng_state": lambda state, device=0: None,
        "_lazy_init": lambda: None,
        "_exchange_device": lambda device: 0,
        "_maybe_exchange_device": lambda device: 0,
    }


def _inner_answers() -> dict[str, Any]:
    return {
        "_cuda_getCurrentRawStream": lambda device: 0,
        "_cuda_getDevice": lambda: 0,
        "_cuda_setDevice": lambda device: None,
        "_cuda_exchangeDevice": lambda device: 0,
        "_cuda_maybeExchangeDevice": lambda device: 0,
        "_cuda_getDeviceCount": lambda: 1,
        "_cuda_synchronize": lambda: None,
        "_cuda_isCurrentStreamCapturing": lambda: False,
        "_cuda_cudaCachingAllocator_is_enabled": lambda: True,
    }


def pretend_in_copies(answers: dict[str, Any]) -> None:
    """Dynamo's interface to devices, if it is loaded already, keeps copies of such functions."""
    interface = getattr(sys.modules.get("torch._dynamo.device_interface"), "CudaInterface", None)
    for name, answer in answers.items():
        if hasattr(interface, name.lstrip("_")):
            setattr(interface, name.lstrip("_"), staticmethod(answer))


def _pretend_in_fake_tensors() -> None:
    """Fake tensors would initialise the device, and generated wrappers bypass them."""
    import torch
    import torch._subclasses.fake_tensor as fake_tensor

    fake_tensor.init_gpu_context = lambda device: None
    fake_tensor.FakeTensorMode.avoid_device_init = property(lambda self: True)
    guards = torch._C._dynamo.guards
    guards._empty_strided_cuda = lambda size, stride, dtype: torch.empty_strided(
        size, stride, dtype=dtype, device="cuda"
    )
    guards._reinterpret_tensor = lambda tensor, size, stride, offset=0: torch.as_strided(
        tensor, size, stride, tensor.storage_offset() + offset
    )


def _choose_no_attention_kernel() -> None:
    """torch asks the device which fused attention kernel to call; without one it decomposes."""
    import torch

    for name in ("enable_flash_sdp", "enable_mem_efficient_sdp", "enable_cudnn_sdp"):
        with contextlib.suppress(AttributeError, RuntimeError):
            getattr(torch.backends.cuda, name)(False)


def _capture_no_cuda_graphs() -> None:
    """mode="reduce-overhead" and "max-autotune": torch leaves CUDA graphs out, and says why."""

    def why_not(device_node_mapping: Any) -> str:
        note_difference("CUDA graphs are left out: there is no GPU to capture them on")
        return "the GPU being pretended by inductoscope"

    with contextlib.suppress(ImportError, AttributeError):
        from torch._inductor import cudagraph_utils

        cudagraph_utils.check_lowering_disable_cudagraph = why_not
