"""Triton really compiles for the device; nothing is loaded, launched or timed."""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from inductoscope.kernels.resources import Resources, amd_resources, nvidia_resources
from inductoscope.kernels.target import Target
from inductoscope.targets.differences import note_difference
from inductoscope.vocabulary.pretended_device import DRIVER_NAME

TORCH_NAMES = {
    "torch._inductor.codegen.triton": ("TritonScheduling.benchmark_codegened_module",),
    "torch._inductor.runtime.triton_helpers": ("set_driver_to_gpu",),
    "torch._inductor.runtime.triton_heuristics": (
        "CachingAutotuner.bench",
        "StaticTritonCompileResult",
        "TritonCompileResult.make_launcher",
    ),
    "torch._inductor.select_algorithm": ("AlgorithmSelectorCache.make_benchmark_fn", "sys"),
    "triton.backends": ("backends",),
    "triton.backends.compiler": ("GPUTarget",),
    "triton.backends.driver": ("GPUDriver",),
    "triton.compiler": ("CompiledKernel.__init__",),
    "triton.knobs": ("compilation.listener", "nvidia.cuobjdump.path"),
    "triton.runtime": ("driver.set_active",),
}

_BACKENDS = {"cuda": "nvidia", "hip": "amd"}
_DISASSEMBLY_SECONDS = 60
# Triton counts spills in registers of four bytes.
_SPILL = 4


def pretend_in_triton(target: Target) -> None:
    """Triton's driver answers for the target and reports what each kernel uses."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.driver import GPUDriver

    name = _BACKENDS[target.kind]
    gpu = GPUTarget(target.kind, target.architecture, target.warp_size)
    driver = _driver(GPUDriver, gpu)
    for other, backend in list(triton.backends.backends.items()):
        used = driver if other == name else _absent(backend.driver)
        triton.backends.backends[other] = type(backend)(compiler=backend.compiler, driver=used)
    triton.runtime.driver.set_active(driver())
    with contextlib.suppress(ImportError, AttributeError):
        from torch._inductor.runtime import triton_helpers

        triton_helpers.set_driver_to_gpu = lambda: None
    _disassemble_what_is_compiled()


def _driver(base: Any, gpu: Any) -> Any:
    import torch

    def driver_init(self: Any) -> None:
        pass  # The real one loads the vendor's library.

    methods = {
        "__init__": driver_init,
        "is_active": staticmethod(lambda: True),
        "get_current_target": lambda self: gpu,
        "get_current_device": lambda self: 0,
        "get_current_stream": lambda self, index=0: 0,
        "get_active_torch_device": lambda self: torch.device("cuda", 0),
        "get_device_interface": lambda self: torch.cuda,
        "get_device_capability": lambda self, device=0: torch.cuda.get_device_capability(device),
        "set_current_device": lambda self, device: None,
        "get_benchmarker": lambda self: lambda *args, **kwargs: 1.0,
        "map_python_to_cpp_type": lambda self, kind: kind,
    }
    made: Any = type(DRIVER_NAME, (base,), methods)
    made.__abstractmethods__ = frozenset()
    return made


def _absent(driver: Any) -> Any:
    made: Any = type("OtherDriver", (driver,), {"is_active": staticmethod(lambda: False)})
    made.__abstractmethods__ = frozenset()
    return made


# --- nothing is launched --------------------------------------------------------------------------


def launch_nothing() -> None:
    """Compiled kernels get a launcher that does nothing, and know what they use."""
    from torch._inductor.runtime import triton_heuristics as heuristics

    heuristics.TritonCompileResult.make_launcher = _make_launcher
    heuristics.CachingAutotuner.bench = lambda self, launcher, *args, **kwargs: 1.0
    with contextlib.suppress(AttributeError):
        static = heuristics.StaticTritonCompileResult
        static.can_statically_launch = staticmethod(lambda *args, **kwargs: None)


def _make_launcher(result: Any) -> Any:
    def launcher(*args: Any, **kwargs: Any) -> None:
        return None

    kernel = result.kernel
    launcher.__dict__.update(
        config=result.config,
        shared=getattr(kernel.metadata, "shared", 0),
        bin=kernel,
        n_regs=getattr(kernel, "n_regs", None),
        n_spills=getattr(kernel, "n_spills", 0) or 0,
        store_cubin=False,
        cache_hash=None,
        def_args=[],
        call_args=[],
        fn=None,
    )
    return launcher


# --- what a kernel uses ---------------------------------------------------------------------------


def _disassemble_what_is_compiled() -> None:
    """Triton asks the driver for registers and spills when it loads a kernel; we read its file."""
    import triton
    from triton.compiler import CompiledKernel

    original = CompiledKernel.__init__

    @functools.wraps(original)
    def compiled(self: Any, source: Any, metadata_group: Any, *args: Any, **kwargs: Any) -> None:
        original(self, source, metadata_group, *args, **kwargs)
        with contextlib.suppress(Exception):
            found = _resources(self)
            self.n_regs = found.registers
            self.n_spills = None if found.local is None else found.local // _SPILL

    CompiledKernel.__init__ = compiled
    triton.knobs.compilation.listener = _Disassembler(triton.knobs.compilation.listener)


class _Disassembler:
    """Called after each compile: adds the disassembled machine code to the kernel's files."""

    def __init__(self, previous: Any) -> None:
        self._previous = previous

    def __call__(self, **report: Any) -> None:
        if self._previous is not None:
            self._previous(**report)
        files = report.get("metadata_group")
        if isinstance(files, dict):
            with contextlib.suppress(Exception):
                _add_machine_code(files)


def _add_machine_code(files: dict[str, Any]) -> None:
    for name, path in list(files.items()):
        if not name.endswith(".cubin"):
            continue
        sass = Path(path).with_suffix(".sass")
        if not sass.exists():
            sass.write_text(_cuobjdump("-sass", path), "utf-8")
        files[sass.name] = str(sass)


def _cuobjdump(option: str, cubin: Any) -> str:
    """What NVIDIA's tool, which comes with Triton, prints about a compiled kernel."""
    import triton

    made = subprocess.run(
        [triton.knobs.nvidia.cuobjdump.path, option, str(cubin)],
        capture_output=True,
        text=True,
        timeout=_DISASSEMBLY_SECONDS,
        check=True,
    )
    return made.stdout


def _resources(kernel: Any) -> Resources:
    shared = getattr(kernel.metadata, "shared", None)
    if "amdgcn" in kernel.asm:
        return amd_resources(kernel.asm["amdgcn"], shared)
    cubin = next(path for name, path in kernel.metadata_group.items() if name.endswith(".cubin"))
    return nvidia_resources("", _cuobjdump("-res-usage", cubin), shared)


# --- nothing is timed -----------------------------------------------------------------------------


def time_nothing(*, precompiles: bool = True) -> None:
    """Where torch would choose by timing, the first Triton choice wins."""
    from torch._inductor import select_algorithm
    from torch._inductor.codegen import triton as triton_codegen

    cache = select_algorithm.AlgorithmSelectorCache
    cache.make_benchmark_fn = classmethod(_made_up_times)
    triton_codegen.TritonScheduling.benchmark_codegened_module = _made_up_time
    if precompiles:
        # Python up to 3.11.8 has a bug for which torch compiles no choices ahead of timing them.
        version = type("Version", (tuple,), {"major": 3, "minor": 12, "micro": 0})((3, 12, 0))
        select_algorithm.sys = SimpleNamespace(**{**vars(sys), "version_info": version})


def _made_up_times(cls: type, *args: Any, **kwargs: Any) -> Any:
    def times(choices: Any) -> dict[Any, float]:
        made_up = {
            choice: (1.0 if "Triton" in type(choice).__name__ else 9.0) + number * 1e-3
            for number, choice in enumerate(choices)
        }
        if len(made_up) > 1:
            taken = min(made_up, key=lambda choice: made_up[choice])
            note_difference(
                f"{len(made_up)} choices could not be timed: {getattr(taken, 'name', 'the first')} "
                "was taken, and every time in milliseconds is made up"
            )
        return made_up

    return times


def _made_up_time(self: Any, module: Any, *args: Any, **kwargs: Any) -> tuple[float, Any]:
    return 1.0, module.__file__
