"""Runs in a child process: compiles one Triton kernel, or asks torch how it would configure it."""

from __future__ import annotations

import contextlib
import runpy
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inductoscope.inside.child import Channel

_TEXTS = ("ttir", "ttgir", "llir", "ptx", "amdgcn", "spv")
_DISASSEMBLY_SECONDS = 60
_BACKENDS = {"cuda": "nvidia", "hip": "amd", "xpu": "intel"}


def torch_configs(channel: Channel, module: str) -> None:
    """Report which configurations the installed torch would try.

    The module decorates the kernel with torch's own heuristic: importing it makes torch choose
    configurations, and compiles nothing.
    """
    import torch
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner, config_to_dict

    names = runpy.run_path(module)
    tuners = [value for value in names.values() if isinstance(value, CachingAutotuner)]
    configs = [config_to_dict(config) for config in tuners[0].configs]
    channel.say("configs", torch=torch.__version__, configs=configs)


def compile_alone(channel: Channel, script: str, folder: str, device: str) -> None:
    """Run a kernel's script; `folder` receives the output of each stage of Triton.

    A stage is announced before it begins and after it has ended, so that the parent knows the
    current stage even of a process that hangs or dies.
    """
    probe = _Probe(channel, Path(folder))
    probe.watch()
    from triton.backends import backends

    if _BACKENDS.get(device, device) not in backends:
        channel.say("no backend")
        return
    module = runpy.run_path(script)  # Defines functions; `__main__` is not run.
    channel.ready()
    module["compile_alone"]()
    _disassemble(Path(folder))


class _Probe:
    """Reports the stages of Triton, and keeps their output."""

    def __init__(self, channel: Channel, folder: Path) -> None:
        self._say = channel.say
        self._folder = folder

    def watch(self) -> None:
        """Wrap the stages of all backends so that each reports when it begins and ends."""
        import triton
        from triton.backends import backends
        from triton.compiler import ASTSource

        self._say("triton", version=triton.__version__)
        for backend in backends.values():
            self._watch_stages(backend.compiler)
        ASTSource.make_ir = self._staged("source", ASTSource.make_ir)
        compile_kernel = triton.compile

        def compile_and_say(*args: Any, **kwargs: Any) -> Any:
            made = compile_kernel(*args, **kwargs)
            self._say("compiled", shared=getattr(made.metadata, "shared", None))
            return made

        triton.compile = compile_and_say

    def _watch_stages(self, compiler: Any) -> None:
        original = compiler.add_stages

        def add_stages(backend: Any, stages: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
            answer = original(backend, stages, *args, **kwargs)
            for name, function in list(stages.items()):
                stages[name] = self._staged(name, function)
            return answer

        compiler.add_stages = add_stages

    def _staged(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def stage(*args: Any, **kwargs: Any) -> Any:
            self._say("start", stage=name)
            made = function(*args, **kwargs)
            self._say("end", stage=name)
            self._keep(name, made)
            return made

        return stage

    def _keep(self, name: str, made: Any) -> None:
        path = self._folder / f"kernel.{name}"
        if name in _TEXTS:
            path.write_text(str(made), "utf-8", "backslashreplace")
        elif isinstance(made, bytes):
            path.write_bytes(made)


def _disassemble(folder: Path) -> None:
    """Disassemble the cubin and dump its register usage."""
    cubin = folder / "kernel.cubin"
    for name, option in (("sass", "-sass"), ("usage", "-res-usage")):
        with contextlib.suppress(OSError, RuntimeError, AttributeError, subprocess.SubprocessError):
            if cubin.exists():
                (folder / f"kernel.{name}").write_text(cuobjdump(option, cubin), "utf-8")


def cuobjdump(option: str, cubin: Path | str) -> str:
    """Return the output of the cuobjdump that comes with Triton for a compiled kernel."""
    from triton import knobs

    command = [knobs.nvidia.cuobjdump.path, option, str(cubin)]
    made = subprocess.run(command, capture_output=True, timeout=_DISASSEMBLY_SECONDS, check=True)
    return made.stdout.decode("utf-8", "replace")
