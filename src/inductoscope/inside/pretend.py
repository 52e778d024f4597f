"""Pretends an absent GPU to torch and Triton; must be started before torch is imported."""

from __future__ import annotations

import contextlib
import functools
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import ModuleType, SimpleNamespace, TracebackType
from typing import Any, NoReturn

from inductoscope.errors import ToolFailure
from inductoscope.inside.observe import current_compile_id
from inductoscope.inside.program_settings import set_by_the_tool
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.stand_in import StandIn, load_stand_in
from inductoscope.inside.start import InsidePart
from inductoscope.inside.triton_kernels import cuobjdump
from inductoscope.launch.environment import TARGET_VARIABLE
from inductoscope.recording.events import TargetNoted
from inductoscope.torch_facts.gpu_targets import (
    Architecture,
    Target,
    architecture,
    has_triton,
    parse_target,
)
from inductoscope.torch_facts.messages import (
    DRIVER_NAME,
    PROPERTIES_NAME,
    asked_in_vain,
    wants_a_value,
)
from inductoscope.torch_facts.triton_kernels import Resources, amd_resources, nvidia_resources

_OWN_SETTINGS = ("compile_threads", "shape_padding")


def pretend(target: Target, *, machine_code: bool = True) -> None:
    """Import torch with a pretended device; called once, and only in the tool's own processes."""
    stand_in = prepare(target)
    import torch  # noqa: F401

    take_over(stand_in, target)
    if not machine_code:
        write_kernels_only()


def prepare(target: Target) -> StandIn:
    """Prepare the process before torch is imported."""
    if "torch" in sys.modules:
        raise ToolFailure(
            "torch looks for devices when it is imported, and it has been imported already."
        )
    architecture(target)
    set_by_the_tool(*(f"torch._inductor.config.{name}" for name in _OWN_SETTINGS))
    # Compile workers are other processes, which would not see the device.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    # torch would time matrix products to see whether padding pays off.
    os.environ["TORCHINDUCTOR_SHAPE_PADDING"] = "0"
    return load_stand_in()


def take_over(stand_in: StandIn, target: Target, *, precompiles: bool = True) -> None:
    """Pretend the device once torch is imported. Without Triton, kernels stop at their source."""

    stand_in.take_over()
    pretend_in_torch(target)
    if has_triton():
        pretend_in_triton(target)
        launch_nothing()
        time_nothing(precompiles=precompiles)
    else:
        write_kernels_only()


# --- Notes in the recording on what torch does differently than on a real device ------------------


def note_difference(text: str) -> None:
    """Record a difference from a real device for the graph being compiled. Never raises."""
    SCOPE.guard(_emit, text)


def _emit(text: str) -> None:
    SCOPE.emit(TargetNoted(compile=current_compile_id(), note=text))


# --- Constants of a graph on a device that is not there: `torch.tensor([…], device=x.device)` -----
#
# torch evaluates constants while it compiles, with real tensors, because it needs their values. For
# a pretended device, it evaluates them on the CPU, or uses tensors without memory.


def keep_constants_off_the_device() -> None:
    """Patch torch to compute constants of graphs on the CPU, for the rest of this process."""
    for keep in (_fold_on_the_cpu, _propagate_on_the_cpu, _copy_without_memory):
        with contextlib.suppress(ImportError, AttributeError):
            keep()


def _fold_on_the_cpu() -> None:
    """Fold uniform constants on the CPU; the joint-graph pass does it with small real tensors."""
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
    """Propagate constants on the CPU: tracing tracks one-element tensors for `.item()`."""
    from torch.fx.experimental import proxy_tensor

    unset, on_the_cpu = proxy_tensor.unset_fake_temporarily, _on_the_cpu()

    @contextlib.contextmanager
    def unset_fake_temporarily() -> Iterator[Any]:
        with unset() as mode, on_the_cpu():
            yield mode

    proxy_tensor.unset_fake_temporarily = unset_fake_temporarily


def _on_the_cpu() -> Callable[[], Any]:
    """Return a context that runs operations on real tensors on the CPU if they name the device."""
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
    """Let Inductor's copies of constants to the device be fake tensors."""
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


# --- Makes torch believe that a device exists. Names missing from this torch are skipped ----------

_CUDA_VERSION, _HIP_VERSION = "13.0", "7.0"


def pretend_in_torch(target: Target) -> None:
    """Patch torch to report the device; called right after the import of torch."""
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
    """Patch Dynamo's device interface too: once loaded, it holds copies of these functions."""
    interface = getattr(sys.modules.get("torch._dynamo.device_interface"), "CudaInterface", None)
    for name, answer in answers.items():
        if hasattr(interface, name.lstrip("_")):
            setattr(interface, name.lstrip("_"), staticmethod(answer))


def _pretend_in_fake_tensors() -> None:
    """Keep fake tensors from initializing the device; make generated wrappers respect them."""
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
    """Disable fused attention kernels, which torch chooses by device; attention then decomposes."""
    import torch

    for name in ("enable_flash_sdp", "enable_mem_efficient_sdp", "enable_cudnn_sdp"):
        with contextlib.suppress(AttributeError, RuntimeError):
            getattr(torch.backends.cuda, name)(False)


def _capture_no_cuda_graphs() -> None:
    """Have torch skip CUDA graphs in mode="reduce-overhead" and "max-autotune", with a reason."""

    def why_not(device_node_mapping: Any) -> str:
        note_difference("CUDA graphs are left out: there is no GPU to capture them on")
        return "the GPU being pretended by inductoscope"

    with contextlib.suppress(ImportError, AttributeError):
        from torch._inductor import cudagraph_utils

        cudagraph_utils.check_lowering_disable_cudagraph = why_not


# --- Several pretended devices, of which the program chooses the current one ----------------------


# torch's value for "no device": setting it leaves the current device unchanged.
_NO_DEVICE = -1


def pretend_devices(stand_in: StandIn, count: int) -> None:
    """Pretend `count` devices; called after `take_over`, which pretends one."""
    import torch

    stand_in.have_devices(count)
    answers, inner = _answers_of_several(stand_in, count), _answers_of_several(stand_in, count)
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    for name, inner_name in _INNER_NAMES.items():
        setattr(torch._C, inner_name, inner[name])
    pretend_in_copies(answers)
    _put_tensors_on_the_current_device(stand_in)


_INNER_NAMES = {
    "device_count": "_cuda_getDeviceCount",
    "current_device": "_cuda_getDevice",
    "set_device": "_cuda_setDevice",
    "_exchange_device": "_cuda_exchangeDevice",
    "_maybe_exchange_device": "_cuda_maybeExchangeDevice",
}


def _answers_of_several(stand_in: StandIn, count: int) -> dict[str, Any]:
    """Return replacements for functions of torch.cuda; Dynamo distinguishes them by identity."""
    from torch.cuda._utils import _get_device_index

    def set_device(device: Any) -> None:
        stand_in.exchange_device(_get_device_index(device))

    return {
        "device_count": lambda: count,
        "current_device": lambda: stand_in.exchange_device(_NO_DEVICE),
        "set_device": set_device,
        "_exchange_device": lambda device: stand_in.exchange_device(device),
        "_maybe_exchange_device": lambda device: stand_in.exchange_device(device),
    }


def _put_tensors_on_the_current_device(stand_in: StandIn) -> None:
    """Put fake tensors on "cuda" on the current device; torch would use the first one."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    original = getattr(FakeTensor, "_normalize_fake_device", None)
    if original is None:
        return

    def normalized(device: torch.device) -> torch.device:
        if device.type == "cuda" and device.index is None:
            return torch.device("cuda", stand_in.exchange_device(_NO_DEVICE))
        return original(device)

    FakeTensor._normalize_fake_device = staticmethod(normalized)


# --- Triton really compiles for the device; nothing is loaded, launched or timed ------------------

_BACKENDS = {"cuda": "nvidia", "hip": "amd"}
# Triton counts spills in registers of this many bytes.
_SPILL = 4


def pretend_in_triton(target: Target) -> None:
    """Replace Triton's driver by one that reports the target and the resources of each kernel."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.driver import GPUDriver

    name = _BACKENDS[target.kind]
    gpu = GPUTarget(target.kind, target.architecture, target.warp_size)
    driver = _driver(GPUDriver, gpu)
    absent = {"is_active": staticmethod(lambda: False)}
    for other, backend in list(triton.backends.backends.items()):
        used = driver if other == name else _made(backend.driver, "OtherDriver", absent)
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
    return _made(base, DRIVER_NAME, methods)


def _made(base: Any, name: str, methods: dict[str, Any]) -> Any:
    made: Any = type(name, (base,), methods)
    made.__abstractmethods__ = frozenset()
    return made


# --- nothing is launched --------------------------------------------------------------------------


def launch_nothing() -> None:
    """Give compiled kernels a launcher that does nothing, and their register and spill counts."""
    from torch._inductor.runtime import triton_heuristics as heuristics

    heuristics.TritonCompileResult.make_launcher = _make_launcher
    heuristics.CachingAutotuner.bench = lambda self, launcher, *args, **kwargs: 1.0
    with contextlib.suppress(AttributeError):
        static = heuristics.StaticTritonCompileResult
        static.can_statically_launch = staticmethod(lambda *args, **kwargs: None)


def _make_launcher(result: Any) -> Any:
    def launcher(*args: Any, **kwargs: Any) -> None:
        pass

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
    """Read registers and spills from compiled files; Triton would get them by loading a kernel."""
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
    previous = triton.knobs.compilation.listener

    def listener(**report: Any) -> None:
        """Add the disassembled machine code to a kernel's files after each compile."""
        if previous is not None:
            previous(**report)
        with contextlib.suppress(Exception):
            _add_machine_code(report["metadata_group"])

    triton.knobs.compilation.listener = listener


def _add_machine_code(files: dict[str, Any]) -> None:
    for name, path in list(files.items()):
        if not name.endswith(".cubin"):
            continue
        sass = Path(path).with_suffix(".sass")
        if not sass.exists():
            sass.write_text(cuobjdump("-sass", path), "utf-8")
        files[sass.name] = str(sass)


def _resources(kernel: Any) -> Resources:
    shared = getattr(kernel.metadata, "shared", None)
    if "amdgcn" in kernel.asm:
        return amd_resources(kernel.asm["amdgcn"], shared)
    cubin = next(path for name, path in kernel.metadata_group.items() if name.endswith(".cubin"))
    return nvidia_resources("", cuobjdump("-res-usage", cubin), shared)


# --- nothing is timed -----------------------------------------------------------------------------


def time_nothing(*, precompiles: bool = True) -> None:
    """Replace autotuning benchmarks: the first Triton choice wins."""
    from torch._inductor import select_algorithm
    from torch._inductor.codegen import triton as triton_codegen

    cache = select_algorithm.AlgorithmSelectorCache
    cache.make_benchmark_fn = classmethod(_made_up_times)
    scheduling = triton_codegen.TritonScheduling
    scheduling.benchmark_codegened_module = lambda self, module, *a, **k: (1.0, module.__file__)
    if precompiles:
        # Because of a bug in Python up to 3.11.8, torch precompiles no choices there.
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


# --- Stops at Triton source: kernels are generated and not compiled -------------------------------
#
# For a machine without Triton, and for users who only want to see the decisions.


def write_kernels_only() -> None:
    """Stop this process from compiling Triton kernels: only their source is generated."""
    from torch._inductor import async_compile

    # The stand-in for a compiled kernel; launching it does nothing.
    written = SimpleNamespace(run=_nothing, precompile=_nothing)
    async_compile.AsyncCompile.triton = lambda *args, **kwargs: written
    if importlib.util.find_spec("triton") is None:
        _do_without_triton()


def _nothing(*args: Any, **kwargs: Any) -> None:
    pass


def _do_without_triton() -> None:
    """Make Inductor's checks for Triton succeed: it generates the source without Triton."""
    import torch.utils._triton as presence
    from torch._inductor import codecache, scheduler, utils
    from torch._inductor.codegen import triton_utils
    from torch._inductor.runtime import triton_helpers

    scheduler.has_triton = lambda *args, **kwargs: True
    # torch asks Triton's backend to choose among configurations, and has its own default.
    triton_helpers.get_backend_options = dict
    presence.triton_hash_with_backend = lambda: ""
    with contextlib.suppress(AttributeError):
        # The form of every Triton since 3.3; without Triton, torch would write an older one.
        newest = utils.TritonAttrsDescriptorVersion.V4_DICT
        utils.get_triton_attrs_descriptor_version = lambda: newest
        triton_utils.AttrsDescriptorWrapper = _descriptor
    load = codecache.PyCodeCache.load_by_key_path

    def load_without_triton(*args: Any, **kwargs: Any) -> Any:
        with _empty_triton():
            return load(*args, **kwargs)

    codecache.PyCodeCache.load_by_key_path = load_without_triton


def _descriptor(
    divisible_by_16: Any = None, equal_to_1: Any = None, pointer_range_32: Any = None
) -> dict[Any, Any]:
    """Return the attributes of a kernel's arguments in the form that Inductor writes."""
    found: dict[Any, Any] = {(n,): [["tt.divisibility", 16]] for n in divisible_by_16 or ()}
    for number in pointer_range_32 or ():
        found.setdefault((number,), []).append(["tt.pointer_range", 32])
    return found


@contextlib.contextmanager
def _empty_triton() -> Iterator[None]:
    """Provide empty Triton modules for generated wrappers, which import Triton only to launch."""
    names = ("triton", "triton.language")
    made = {name: ModuleType(name) for name in names}
    for name, module in made.items():
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    made["triton"].language = made["triton.language"]  # type: ignore[attr-defined]
    sys.modules.update(made)
    try:
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)


# --- Fake tensors from the start, for whole programs on a pretended device ------------------------


def make_every_tensor_fake() -> Any:
    """Make every tensor of this process fake. Return the modes, which must be kept alive."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    mode.__enter__()
    torch.nn.Module._apply = _apply
    return mode


def _apply(module: Any, function: Callable[[Any], Any], recurse: bool = True) -> Any:
    """Apply `model.to("cuda")` by replacing tensors; fake ones cannot be swapped in place."""
    import torch

    for child in module.children() if recurse else ():
        _apply(child, function)
    for name, parameter in module._parameters.items():
        if parameter is not None:
            with torch.no_grad():
                moved = function(parameter)
            module._parameters[name] = torch.nn.Parameter(moved, parameter.requires_grad)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = function(buffer)
    return module


# --- a whole program that is to see the device ----------------------------------------------------
#
# Everything the program computes is fake from its first tensor on: it has shapes and no values.

_KEPT: list[Any] = []


def pretended_device(folder: Path) -> InsidePart:
    """Make the part that pretends a device to the program; called before torch is imported."""
    target = parse_target(os.environ[TARGET_VARIABLE])
    try:
        stand_in = prepare(target)
    except Exception as error:
        _give_up(error)
    return InsidePart(on_import={"torch": lambda: _begin(stand_in, target)})


def _begin(stand_in: StandIn, target: Target) -> None:
    """Pretend the device and make every tensor fake; called once torch has been imported."""
    try:
        take_over(stand_in, target)
        _KEPT.append(make_every_tensor_fake())
    except Exception as error:
        _give_up(error)
    sys.excepthook = _say_what_cannot_be_had


def _give_up(error: Exception) -> NoReturn:
    """End the process: without the pretended device, the program would take other paths."""
    sys.stderr.write(f"inductoscope: cannot pretend that the device exists: {error}\n")
    sys.stderr.flush()
    os._exit(3)


def _say_what_cannot_be_had(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    sys.__excepthook__(kind, error, trace)
    target = os.environ.get(TARGET_VARIABLE, "")
    if wants_a_value(kind.__name__, str(error)):
        sys.stderr.write(
            f"inductoscope: the program asked for a value that was computed on {target}, but "
            "nothing ran there: with --pretend, tensors have shapes and no values. Everything "
            "compiled so far is recorded. Remove the line that asks (.item(), an 'if' on a "
            "tensor, .numpy()), or run only the part that compiles.\n"
        )
        return
    asked = asked_in_vain(str(error))
    if asked:
        sys.stderr.write(
            f"inductoscope: this is a limit of --pretend, not a fault of the program: torch asked "
            f"for {asked}, which only a real GPU has. Everything compiled so far is recorded.\n"
        )
