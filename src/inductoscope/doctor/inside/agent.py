"""The doctor inside a process of the user's program.

It records like `inductoscope run`, and replaces every graph that Dynamo's backend compiles by one
that also runs in eager and compares.
"""

from __future__ import annotations

import functools
import gc
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inductoscope.capture import private_cache
from inductoscope.capture.hooks import HOOKS
from inductoscope.capture.install import Installer
from inductoscope.capture.program_settings import set_by_the_tool
from inductoscope.capture.scope import SCOPE
from inductoscope.capture.uncaught import record_until_exit
from inductoscope.doctor.inside.package_hooks import package_hooks
from inductoscope.doctor.inside.threads import ThreadLimit
from inductoscope.doctor.inside.wrapper_hooks import KEEPING_WRAPPERS
from inductoscope.doctor.instructions import (
    FOLDER,
    Instructions,
    instructions_from,
)
from inductoscope.processes.stack_signal import answer_with_stacks
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.torch_names import Hook, TorchName, Wrap

TORCH_NAMES = {
    "torch._inductor.config": ("fallback_random",),
}


def start(folder: str) -> Installer:
    """Start recording and checking. Called when torch is imported."""
    instructions = instructions_from()
    place = Path(folder) / FOLDER
    place.mkdir(exist_ok=True)
    threads = ThreadLimit()
    on_import = {
        **private_cache.on_import(),
        **threads.on_import(),
        **_settings(instructions, threads, collects=gc.isenabled()),
    }
    hooks = (*HOOKS, *checking_hooks(instructions, place))
    installer = Installer(hooks, on_import=on_import)
    if SCOPE.active:
        return installer
    # While torch is imported there are ever more objects to go through, and none to free.
    gc.disable()
    SCOPE.open(Path(folder))
    installer.start()
    record_until_exit()
    answer_with_stacks(Path(folder), on_crash=True)
    return installer


def _settings(
    instructions: Instructions, threads: ThreadLimit, *, collects: bool
) -> dict[str, Callable[[], None]]:
    """What to set once torch's settings exist."""

    def settle() -> None:
        # The same random numbers in eager and compiled, so that only the compiler can differ.
        if instructions.random_as_eager:
            set_by_the_tool("torch._inductor.config.fallback_random")
            sys.modules["torch._inductor.config"].fallback_random = True  # type: ignore[attr-defined]

    def begin() -> None:
        if collects:
            gc.enable()
        gc.freeze()
        threads.apply()
        # Where a user would put it: first.
        exec(f"import torch\n{instructions.workaround}", {})

    return {"torch": begin, "torch._inductor.config": settle}


def _copying_first(original: Callable[[], None]) -> Callable[[], None]:
    @functools.wraps(original)
    def lazy_init() -> None:
        # Imported here, because torch itself is still being imported when it is hooked.
        from inductoscope.doctor.inside.program_copy import take_copy

        take_copy()
        original()

    return lazy_init


# Torch's C++ code calls the first of these, too.
_MODULES_OF_CUDA = ("torch.cuda", "torch.cuda.memory", "torch.cuda.random")
_COPYING = Hook(
    stage=stages.RUNTIME,
    records="a copy of the program before it uses the GPU, in which candidates are tried",
    wraps=tuple(
        Wrap(TorchName(module, "_lazy_init"), _copying_first) for module in _MODULES_OF_CUDA
    ),
)


def checking_hooks(instructions: Instructions, place: Path) -> tuple[Hook, ...]:
    """The hooks around Dynamo's backend and around compiled functions."""

    def replacement(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call_user_compiler(output: Any, module: Any, examples: Any) -> Any:
            if not SCOPE.active or SCOPE.is_redirected:
                return original(output, module, examples)
            from inductoscope.doctor.inside.graph_compiler import checked_graph

            return checked_graph(original, output, module, examples, instructions, place)

        return call_user_compiler

    def for_functions(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def compile_function(context: Any, function: Any) -> Any:
            compiled = original(context, function)
            is_function = isinstance(compiled, types.FunctionType)
            if not SCOPE.active or not is_function or type(context).__name__ != "OptimizeContext":
                return compiled
            from inductoscope.doctor.inside.checked_function import checked_function

            return checked_function(compiled, function, context, place)

        return compile_function

    name = TorchName("torch._dynamo.output_graph", "OutputGraph.call_user_compiler")
    context = TorchName("torch._dynamo.eval_frame", "_TorchDynamoContext.__call__")
    return (
        *((KEEPING_WRAPPERS,) if instructions.investigate else ()),
        Hook(
            stage=stages.DYNAMO,
            records="each compiled function, compared with the same Python code in eager",
            wraps=(Wrap(context, for_functions),),
        ),
        Hook(
            stage=stages.DYNAMO,
            records="each compiled graph, compared with the same graph in eager",
            wraps=(Wrap(name, replacement),),
        ),
        *package_hooks(instructions, place),
        *((_COPYING,) if instructions.investigate else ()),
    )
