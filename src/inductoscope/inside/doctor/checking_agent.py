"""The doctor inside a process of the user's program.

It records like `inductoscope run`, and replaces every graph that Dynamo's backend compiles by one
that also runs in eager and compares.
"""

from __future__ import annotations

import functools
import gc
import importlib
import operator
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inductoscope.doctor.instructions import (
    FOLDER,
    RANDOM_NUMBERS,
    THREADS,
    Instructions,
    instructions_from,
)
from inductoscope.inside.observe import instead
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.start import InsidePart
from inductoscope.processes.stack_signal import write_stacks_on_crash
from inductoscope.torch_facts import private_names as hooked
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.torch_names import Hook, Replacement, Wrap


def checker(recording: Path) -> InsidePart:
    """Check every compiled graph, function and package against eager."""
    instructions = instructions_from()
    folder = recording / FOLDER
    folder.mkdir(exist_ok=True)
    threads = ThreadLimit()
    collects = gc.isenabled()

    def begin() -> None:
        # Importing torch creates ever more objects to scan, and no garbage.
        gc.disable()
        write_stacks_on_crash(recording)

    def torch_imported() -> None:
        if collects:
            gc.enable()
        gc.freeze()
        if instructions.has(THREADS):
            threads.apply()
        # The workaround comes first, where a user would put it.
        exec(f"import torch\n{instructions.workaround}", {})

    # The same random numbers in eager and compiled, so that only the compiler can differ.
    random = {"torch._inductor.config.fallback_random": True}
    on_import = threads.on_import() if instructions.has(THREADS) else {}
    return InsidePart(
        hooks=checking_hooks(instructions, folder),
        on_import={**on_import, "torch": torch_imported},
        settings=random if instructions.has(RANDOM_NUMBERS) else {},
        begin=begin,
    )


def _copying_first(original: Callable[[], None]) -> Callable[[], None]:
    @functools.wraps(original)
    def lazy_init() -> None:
        # Imported here, because torch itself is still being imported when it is hooked.
        from inductoscope.inside.doctor.program_copy import take_copy

        take_copy()
        original()

    return lazy_init


_COPYING = Hook(
    stage=stages.RUNTIME,
    records="a copy of the program before it uses the GPU, in which candidates are tried",
    wraps=tuple(Wrap(name, _copying_first) for name in hooked.LAZY_INIT),
)


def _calls(module: str, name: str, *given: Any) -> Replacement:
    """Replace a torch function by one of this tool, imported on its first call."""

    def function() -> Callable[..., Any]:
        found = importlib.import_module(f"inductoscope.inside.{module}")
        return operator.attrgetter(name)(found)  # type: ignore[no-any-return]

    return instead(function, *given)


def _checking_functions(instructions: Instructions, folder: Path) -> Hook:
    function = _calls("doctor.checked_function", "compile_checked_function", instructions, folder)
    return Hook(
        stage=stages.DYNAMO,
        records="each compiled function, compared with the same Python code in eager",
        wraps=(Wrap(hooked.TORCH_DYNAMO_CONTEXT_CALL, function),),
    )


def checking_hooks(instructions: Instructions, folder: Path) -> tuple[Hook, ...]:
    """Return the hooks around Dynamo's backend and around compiled functions."""
    graph = _calls("doctor.checked_graph", "compile_checked_graph", instructions, folder)
    return (
        *((KEEPING_WRAPPERS,) if instructions.investigate else ()),
        # In a fork, which cannot use threads that its process has used.
        *((_checking_functions(instructions, folder),) if instructions.has(THREADS) else ()),
        Hook(
            stage=stages.DYNAMO,
            records="each compiled graph, compared with the same graph in eager",
            wraps=(Wrap(hooked.CALL_USER_COMPILER, graph),),
        ),
        *package_hooks(instructions, folder),
        *((_COPYING,) if instructions.investigate else ()),
    )


KEEPING_WRAPPERS = Hook(
    stage=stages.WRAPPER,
    records="generated wrappers, so that their kernels can be compared with eager",
    wraps=(
        Wrap(hooked.GRAPH_LOWERING_CODEGEN, _calls("compare.kernels", "KEPT_WRAPPERS.generate")),
        Wrap(hooked.LOAD_BY_KEY_PATH, _calls("compare.kernels", "KEPT_WRAPPERS.load")),
    ),
)


# --- Hooks around AOTInductor: what it compiles, which package holds it, and who calls that -------


# By the purpose of each hook: torch's functions, each with its wrapper in `checked_packages`.
_PACKAGE_HOOKS = {
    "packages of AOTInductor: written, loaded and called": {
        hooked.PACKAGE_AOTI: "write_package",
        hooked.LOAD_PACKAGE: "load_package",
        hooked.AOTICOMPILED_MODEL_CALL: "call_model",
    },
    "packages of AOTInductor that load_pt2 loads": {hooked.LOAD_AOTI: "load_package"},
    "packages of AOTInductor that the program loads with torch's own loader": {
        hooked.AOTI_MODEL["PackageLoader.__init__"]: "make_loader",
        hooked.AOTI_MODEL["PackageLoader.run"]: "run_flat",
        hooked.AOTI_MODEL["PackageLoader.boxed_run"]: "run_flat",
    },
    "libraries of AOTInductor: loaded and called": {hooked.AOT_LOAD: "load_library"},
    "libraries of AOTInductor that the program runs with torch's own Cpu runner": {
        hooked.AOTI_MODEL["ContainerRunnerCpu.__init__"]: "make_runner",
        hooked.AOTI_MODEL["ContainerRunnerCpu.run"]: "run_flat",
    },
    "libraries of AOTInductor that the program runs with torch's own Cuda runner": {
        hooked.AOTI_MODEL["ContainerRunnerCuda.__init__"]: "make_runner",
        hooked.AOTI_MODEL["ContainerRunnerCuda.run"]: "run_flat",
    },
}


def package_hooks(instructions: Instructions, folder: Path) -> tuple[Hook, ...]:
    """Return hooks that compare calls of packages with the programs they were made from."""
    module = "doctor.checked_packages"
    compiling = _calls(module, "compile_ahead_of_time", instructions, folder)
    return (
        Hook(
            stage=stages.AOT,
            records="what AOTInductor compiles, so that calls of it can be compared with eager",
            wraps=(Wrap(hooked.COMPILE_FX_AOT, compiling),),
        ),
        *(
            Hook(
                stage=stages.RUNTIME,
                records=records,
                wraps=tuple(Wrap(name, _calls(module, ours)) for name, ours in wraps.items()),
                # A torch without CUDA has no such runner.
                is_optional="Cuda" in records,
            )
            for records, wraps in _PACKAGE_HOOKS.items()
        ),
    )


# --- One thread under the doctor, and code for as many as the program has without it --------------
#
# A process that has used several OpenMP threads cannot use them in a fork, so no thread is ever
# started. What Inductor generates depends on how many threads there are: parallel loops, and even
# which lowering is used. So Inductor, like the program, is told the number that the program would
# have. Inductor's loops are right with fewer threads. Its templates of matrix products are not, and
# are told of one; nor is OpenBLAS, which divides its work by the number that was set.

_UTILS = "torch._inductor.utils"
# Templates that divide a matrix by thread number, and rely on getting all threads.
_TEMPLATES = (
    "torch._inductor.codegen.cpp_gemm_template",
    "torch._inductor.codegen.cpp_grouped_gemm_template",
)


class ThreadLimit:
    """The limit to one thread, hidden behind the number that the program would have."""

    def __init__(self) -> None:
        self._usual = 1

    def apply(self) -> None:
        """Limit libraries to one thread, right after the import of torch, before anything runs."""
        torch: Any = sys.modules["torch"]
        self._usual = torch.get_num_threads()
        _use_one_thread()
        _in_every_thread(_use_one_thread)
        torch.get_num_threads, torch.set_num_threads = self._of_the_program()

    def _of_the_program(self) -> tuple[Callable[[], int], Callable[[int], None]]:
        """Return substitutes for torch's functions, which report the program's own number."""

        def get_num_threads() -> int:
            return self._usual

        def set_num_threads(number: int) -> None:
            if not isinstance(number, int) or number < 1:
                raise RuntimeError("set_num_threads expects a positive integer")
            self._usual = number

        for function in (get_num_threads, set_num_threads):
            function.__dict__["_torchdynamo_disable"] = True  # Like torch's, not traced.
        return get_num_threads, set_num_threads

    def on_import(self) -> dict[str, Callable[[], None]]:
        """Return the callbacks to run after the import of each module."""
        templates = {name: functools.partial(_tell_of_one_thread, name) for name in _TEMPLATES}
        return {_UTILS: self._tell_inductor, **templates}

    def _tell_inductor(self) -> None:
        module: Any = sys.modules[_UTILS]
        original: Callable[[], int] | None = getattr(module, "parallel_num_threads", None)
        if original is not None:
            # A number above one is the program's own choice.
            module.parallel_num_threads = lambda: n if (n := original()) > 1 else self._usual


def _use_one_thread() -> None:
    """Limit the calling thread, since OpenMP keeps the number per thread."""
    import torch

    torch._C.set_num_threads(1)


def _in_every_thread(begin: Callable[[], None]) -> None:
    """Call `begin` first in every Python thread that is started later."""
    original = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def bootstrap_inner(thread: threading.Thread) -> None:
        SCOPE.guard(begin)
        original(thread)

    threading.Thread._bootstrap_inner = bootstrap_inner  # type: ignore[attr-defined]


def _tell_of_one_thread(template: str) -> None:
    module: Any = sys.modules[template]
    module.parallel_num_threads = lambda: 1
