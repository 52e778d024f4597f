"""Hooks around AOTInductor: what it compiles, which package holds it, and who calls that.

Nothing here imports torch, which is still being imported when they are installed. What is done in
the place of each function stands in `checked_packages`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from inductoscope.doctor.instructions import Instructions
from inductoscope.inside.observe import instead
from inductoscope.torch_facts import private_names as hooked
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.torch_names import Hook, TorchName, Wrap

# What a program calls that does without AOTICompiledModel.
_LOADER, _RUN, _BOXED_RUN = (
    TorchName("torch._C", f"_aoti.AOTIModelPackageLoader.{name}")
    for name in ("__init__", "run", "boxed_run")
)
# By the device that it runs libraries on: how a runner is made, and called.
_RUNNERS = {
    device: tuple(
        TorchName("torch._C", f"_aoti.AOTIModelContainerRunner{device}.{name}")
        for name in ("__init__", "run")
    )
    for device in ("Cpu", "Cuda")
}


def package_hooks(instructions: Instructions, place: Path) -> tuple[Hook, ...]:
    """The hooks that have calls of packages compared with the programs they were made from."""
    compiling = instead(lambda: _torch_side().compile_ahead_of_time, instructions, place)
    running = instead(lambda: _torch_side().run_flat)
    loading = instead(lambda: _torch_side().load_package)
    return (
        Hook(
            stage=stages.AOT,
            records="what AOTInductor compiles, so that calls of it can be compared with eager",
            wraps=(Wrap(hooked.COMPILE_FX_AOT, compiling),),
        ),
        Hook(
            stage=stages.RUNTIME,
            records="packages of AOTInductor: written, loaded and called",
            wraps=(
                Wrap(hooked.PACKAGE_AOTI, instead(lambda: _torch_side().write_package)),
                Wrap(hooked.LOAD_PACKAGE, loading),
                Wrap(hooked.AOTICOMPILED_MODEL_CALL, instead(lambda: _torch_side().call_model)),
            ),
        ),
        Hook(
            stage=stages.RUNTIME,
            records="packages of AOTInductor that load_pt2 loads",
            wraps=(Wrap(hooked.LOAD_AOTI, loading),),
        ),
        Hook(
            stage=stages.RUNTIME,
            records="packages of AOTInductor that the program loads with torch's own loader",
            wraps=(
                Wrap(_LOADER, instead(lambda: _torch_side().make_loader)),
                Wrap(_RUN, running),
                Wrap(_BOXED_RUN, running),
            ),
        ),
        Hook(
            stage=stages.RUNTIME,
            records="libraries of AOTInductor: loaded and called",
            wraps=(Wrap(hooked.AOT_LOAD, instead(lambda: _torch_side().load_library)),),
        ),
        *(
            Hook(
                stage=stages.RUNTIME,
                records=f"libraries of AOTInductor that the program runs with torch's own {device} "
                "runner",
                wraps=(
                    Wrap(made, instead(lambda: _torch_side().make_runner)),
                    Wrap(called, running),
                ),
                is_optional=device != "Cpu",
            )
            for device, (made, called) in _RUNNERS.items()
        ),
    )


def _torch_side() -> Any:
    from inductoscope.inside.doctor import checked_packages

    return checked_packages
