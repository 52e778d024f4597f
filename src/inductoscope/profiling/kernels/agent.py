"""The kernel profiler inside a process of the user's program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inductoscope.capture.install import Installer
from inductoscope.profiling.agent import Agent, start_agent
from inductoscope.profiling.kernels.kernel_clock import KernelClock
from inductoscope.profiling.kernels.kernel_times import KernelTimes, write_kernel_times
from inductoscope.profiling.kernels.profiled_wrappers import JIT_WRAPPERS, ProfiledPackages
from inductoscope.profiling.orders import Orders, orders_from
from inductoscope.vocabulary.torch_names import Hook

AGENT = "profiling.kernels.agent"


def start(folder: str) -> Installer:
    """Time compiled calls, and every kernel in them. Called on import of torch."""
    return start_agent(KernelAgent(orders_from(), Path(folder)))


class KernelAgent(Agent):
    """Times compiled calls and the kernels in them."""

    def __init__(self, orders: Orders, folder: Path) -> None:
        super().__init__(orders, folder)
        self._kernels = KernelClock()
        self._packages = ProfiledPackages(self.place)
        self.clock.disturbs = self._kernels.call_begins
        self.clock.disturbed_ended = self._kernels.call_ended

    def hooks(self) -> tuple[Hook, ...]:
        """Those of every profiler, of C++ wrappers, and of the program's own profilers."""
        return (
            *super().hooks(),
            JIT_WRAPPERS,
            *self._packages.hooks(),
            self._kernels.programs_profilers.hook,
        )

    def around_packages(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Calls of packages are timed as a whole, and some of them kernel by kernel."""

        @functools.wraps(original)
        def call(model: Any, *args: Any, **kwargs: Any) -> Any:
            path = self._packages.path_of(model)
            return self._kernels.package_call(path, lambda: original(model, *args, **kwargs))

        return super().around_packages(call)

    def graph_loaded(self, module: Any, path: str) -> None:
        """A wrapper was loaded: it takes the time of its kernels."""
        self._kernels.note_module(module, path)
        super().graph_loaded(module, path)

    def ends(self) -> None:
        """The program ends."""
        self._kernels.finish()
        self._packages.remove_copies()

    def write_files(self) -> None:
        """Write the times of calls, and of kernels."""
        super().write_files()
        graphs = self._kernels.as_data()
        if graphs or self._kernels.notes:
            self.place.mkdir(parents=True, exist_ok=True)
            found = KernelTimes(self.pid, graphs, tuple(self._kernels.notes))
            write_kernel_times(found, self.place)
