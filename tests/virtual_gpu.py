"""A GPU that is not there, for programs under test: import this before torch.

Inductor then takes its CUDA path down to Triton source and, with `triton` installed, to machine
code; tensors on cuda:0 are fake ones, launches do nothing, and benchmarks return made-up times. So
a stall of a real compiler (ptxas, LLVM) can be had on a machine without a GPU.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

assert "torch" not in sys.modules, "torch asks for CUDA when it is imported"

CAPABILITY = (9, 0)

# torch without CUDA has neither a device guard nor hooks for it; these do nothing.
_STAND_INS = r"""
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

static const Device only(DeviceType::CUDA, 0);
static const Stream stream(Stream::DEFAULT, only);

struct Guard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return DeviceType::CUDA; }
  Device exchangeDevice(Device) const override { return only; }
  Device getDevice() const override { return only; }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  Stream getStream(Device) const noexcept override { return stream; }
  Stream getDefaultStream(Device) const override { return stream; }
  Stream getNewStream(Device, int) const override { return stream; }
  Stream exchangeStream(Stream) const noexcept override { return stream; }
  DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const Stream&, const DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const DeviceIndex) const noexcept override {}
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
};
static c10::impl::DeviceGuardImplRegistrar guard(DeviceType::CUDA, new Guard());

struct Hooks : at::CUDAHooksInterface {
  Hooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return false; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex current_device() const override { return 0; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(DeviceIndex) const override {}
  DeviceIndex exchangeDevice(DeviceIndex) const override { return 0; }
  DeviceIndex maybeExchangeDevice(DeviceIndex) const override { return 0; }
  int getNumGPUs() const override { return 1; }
  void deviceSynchronize(DeviceIndex) const override {}
};
namespace at {
C10_REGISTER_TYPED_CLASS(CUDAHooksRegistry, "CUDAHooks", ::Hooks)
}
"""


def _load_stand_ins() -> None:
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.submodule_search_locations
    root = spec.submodule_search_locations[0]
    name = f"stand_ins_{importlib.metadata.version('torch')}_{os.getuid()}"
    library = Path(tempfile.gettempdir(), f"{name}.so")
    if not library.exists():
        with tempfile.TemporaryDirectory() as folder:
            source, built = Path(folder, "stand_ins.cpp"), Path(folder, "stand_ins.so")
            source.write_text(_STAND_INS)
            command = ["g++", "-shared", "-fPIC", "-std=c++20", "-O1", str(source)]
            command += [f"-I{root}/include", f"-L{root}/lib", "-lc10", "-ltorch_cpu"]
            subprocess.run([*command, f"-Wl,-rpath,{root}/lib", "-o", str(built)], check=True)
            half = library.with_suffix(f".{os.getpid()}")
            half.write_bytes(built.read_bytes())
            half.replace(library)
    ctypes.CDLL(str(library))


_load_stand_ins()

import torch  # noqa: E402

_PROPERTIES = SimpleNamespace(
    name="not there",
    major=CAPABILITY[0],
    minor=CAPABILITY[1],
    multi_processor_count=132,
    total_memory=80 << 30,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    warp_size=32,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472,
    L2_cache_size=50 << 20,
    gcnArchName="",
    is_integrated=0,
    clock_rate=1755000,
    memory_clock_rate=2619000,
    memory_bus_width=5120,
    uuid="none",
)


def _pretend_in_torch() -> None:
    generator = torch.zeros(16, dtype=torch.uint8)
    answers = {
        "is_available": lambda: True,
        "is_initialized": lambda: False,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "get_device_properties": lambda device=None: _PROPERTIES,
        "get_device_capability": lambda device=None: CAPABILITY,
        "get_device_name": lambda device=None: _PROPERTIES.name,
        "get_arch_list": lambda: ["sm_{}{}".format(*CAPABILITY)],
        "is_bf16_supported": lambda including_emulation=True: True,
        "synchronize": lambda device=None: None,
        "mem_get_info": lambda device=None: (80 << 30, 80 << 30),
        "memory_allocated": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 0,
        "empty_cache": lambda: None,
        "get_rng_state": lambda device=0: generator,
        "set_rng_state": lambda state, device=0: None,
        "_lazy_init": lambda: None,
        "_exchange_device": lambda device: 0,
        "_maybe_exchange_device": lambda device: 0,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    inner = {
        "_cuda_getCurrentRawStream": lambda device: 0,
        "_cuda_getDevice": lambda: 0,
        "_cuda_setDevice": lambda device: None,
        "_cuda_exchangeDevice": lambda device: 0,
        "_cuda_maybeExchangeDevice": lambda device: 0,
        "_cuda_getDeviceCount": lambda: 1,
        "_cuda_synchronize": lambda: None,
        "_cuda_isCurrentStreamCapturing": lambda: False,
    }
    for name, answer in inner.items():
        if not hasattr(torch._C, name):
            setattr(torch._C, name, answer)
    torch.version.cuda = torch.version.cuda or "13.0"
    _pretend_in_copies({**answers, "get_raw_stream": inner["_cuda_getCurrentRawStream"]})


def _pretend_in_copies(answers: dict[str, object]) -> None:
    """torch's own interface to devices keeps copies of such functions, if it is loaded already."""
    interface = getattr(sys.modules.get("torch._dynamo.device_interface"), "CudaInterface", None)
    for name, answer in answers.items():
        if hasattr(interface, name.lstrip("_")):
            setattr(interface, name.lstrip("_"), staticmethod(answer))


def _pretend_in_fake_tensors() -> None:
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


def _pretend_in_triton() -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.driver import CudaDriver

    target = GPUTarget("cuda", CAPABILITY[0] * 10 + CAPABILITY[1], 32)

    class Driver(CudaDriver):
        def __init__(self) -> None:
            pass

        @staticmethod
        def is_active() -> bool:
            return True

        def get_current_target(self) -> GPUTarget:
            return target

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, index: int = 0) -> int:
            return 0

        def get_active_torch_device(self) -> torch.device:
            return torch.device("cuda", 0)

    backend = triton.backends.backends["nvidia"]
    triton.backends.backends["nvidia"] = type(backend)(compiler=backend.compiler, driver=Driver)
    triton.runtime.driver.set_active(Driver())
    from torch._inductor.runtime import triton_helpers

    triton_helpers.set_driver_to_gpu = lambda: None


def _launch_nothing() -> None:
    from torch._inductor.runtime import triton_heuristics

    def make_launcher(result: object) -> object:
        def launcher(*args: object, **kwargs: object) -> None:
            return None

        kernel = result.kernel  # type: ignore[attr-defined]
        about = {"config": result.config, "shared": kernel.metadata.shared, "bin": kernel}  # type: ignore[attr-defined]
        launcher.__dict__.update(
            about,
            n_regs=None,
            n_spills=0,
            store_cubin=False,
            cache_hash=None,
            def_args=[],
            call_args=[],
            fn=None,
        )
        return launcher

    heuristics = triton_heuristics
    heuristics.StaticTritonCompileResult.can_statically_launch = staticmethod(lambda *a, **k: None)
    heuristics.TritonCompileResult.make_launcher = make_launcher
    heuristics.CachingAutotuner.bench = lambda self, launcher, *a, **k: 1.0


def _time_nothing(*, precompiles: bool) -> None:
    from torch._inductor import select_algorithm
    from torch._inductor.codegen import triton as triton_codegen

    def make_benchmark_fn(cls: type, *args: object, **kwargs: object) -> object:
        return lambda choices: {
            choice: (1.0 if "Triton" in type(choice).__name__ else 9.0) + number * 1e-3
            for number, choice in enumerate(choices)
        }

    select_algorithm.AlgorithmSelectorCache.make_benchmark_fn = classmethod(make_benchmark_fn)
    triton_codegen.TritonScheduling.benchmark_codegened_module = lambda self, module, *a, **k: (
        1.0,
        module.__file__,
    )
    if precompiles:
        # Python up to 3.11.8 has a bug for which torch compiles no choices ahead of timing them.
        version = type("Version", (tuple,), {"major": 3, "minor": 12, "micro": 0})((3, 12, 0))
        select_algorithm.sys = SimpleNamespace(**{**vars(sys), "version_info": version})


def install(*, precompiles: bool = True) -> None:
    """Pretend; to be called once, before anything is compiled."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # Workers would not pretend.
    _pretend_in_torch()
    _pretend_in_fake_tensors()
    _pretend_in_triton()
    _launch_nothing()
    _time_nothing(precompiles=precompiles)


def tensor(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """A tensor on the device that is not there; inside of `tensors()`."""
    return torch.empty(*shape, dtype=dtype, device="cuda")


def tensors() -> object:
    """Where such tensors live: `with tensors(): …`."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)
