"""Cost of profiling, and whether its times and floors hold: make bench-profile.

Three questions, each on kernels that take more than 100 µs:

- overhead: the compiled call with its kernels timed against the same call as it is, in one process,
  in turns, call by call;
- agreement: the time of each kernel by the rewritten wrapper against torch.profiler's in the same
  calls (for generated C++ kernels torch records its own range, for library calls ATen's operator);
- floor: a compiled copy of data beyond the caches, whose floor is its bytes over the bandwidth that
  was measured in another process.

Everything runs in one child per question. Figures are medians; the quartiles stand beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from battery.workplace import workplace

GOALS = {"overhead": 1.10, "agreement": 0.05, "floor": 0.10}
LEAST = 100e-6
_CALLS = 60


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """The lower quartile, the median and the upper one."""
    low, middle, high = statistics.quantiles(values, n=4)
    return low, middle, high


# --- inside a child -------------------------------------------------------------------------------


def _compiled() -> tuple[Callable[[], Any], Any]:
    """A compiled function with C++ kernels and a product, and its inputs."""
    import torch

    def step(x: Any, w: Any) -> Any:
        y = torch.softmax((x @ w).relu(), -1)
        return (y * x).sum(-1), torch.tanh(y) + x

    x, w = torch.randn(1024, 1024), torch.randn(1024, 1024)
    function = torch.compile(step)
    return lambda: function(x, w), function


class _Exchanged:
    """Wrappers loaded in this process, with and without the clock in their code."""

    def __init__(self) -> None:
        from torch._inductor.codecache import PyCodeCache

        self.loaded: list[tuple[Any, str]] = []
        original = PyCodeCache.load_by_key_path

        def load(key: str, path: str, *args: Any, **kwargs: Any) -> Any:
            module = original(key, path, *args, **kwargs)
            if hasattr(module, "Runner"):
                self.loaded.append((module, path))
            return module

        PyCodeCache.load_by_key_path = load

    def timed(self) -> list[Any]:
        """Put the clock in; returns the timed graphs with what undoes it."""
        from inductoscope.inside.profiling.kernel_clock import KernelClock, TimedGraph
        from inductoscope.torch_facts.python_wrappers import exchange, timed_wrapper

        found = []
        for module, path in self.loaded:
            wrapper = timed_wrapper(path, Path(path).read_text("utf-8"))
            assert wrapper is not None
            graph = TimedGraph(0, path, wrapper)
            names = KernelClock().names_for(graph)
            found.append((graph, exchange(module, wrapper.code, names)))
        return found


def _swap(functions: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    found = [(function, function.__code__) for function, _ in functions]
    for function, code in functions:
        function.__code__ = code
    return found


def overhead(calls: int) -> dict[str, Any]:
    """Seconds of a call with the clock in its wrapper and without, call by call in turns."""
    exchanged = _Exchanged()
    call, _ = _compiled()
    for _ in range(3):
        call()
    (_, functions), *_ = exchanged.timed()
    times: tuple[list[float], list[float]] = ([], [])
    is_timed = True
    for number in range(2 * calls):
        begun = time.perf_counter()
        call()
        times[is_timed].append(time.perf_counter() - begun)
        functions, is_timed = _swap(functions), number % 2 == 1
    ratios = [b / a for a, b in zip(*times, strict=True)]
    return {"plain": quartiles(times[0]), "timed": quartiles(times[1]), "ratio": quartiles(ratios)}


def agreement(calls: int) -> dict[str, Any]:
    """The time of each kernel by the wrapper and by torch.profiler, in the same calls."""
    import torch
    from torch._inductor import config

    config.cpp.enable_kernel_profile = True  # Generated kernels then record a range.
    exchanged = _Exchanged()
    call, _ = _compiled()
    for _ in range(3):
        call()
    (graph, _), *_ = exchanged.timed()
    call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(calls):
            call()
    seen: dict[str, list[float]] = {}
    for event in profiler.events():
        seen.setdefault(event.name, []).append(event.cpu_time_total / 1e6)
    (times,) = graph.as_data()
    return {
        site.kernel: {"wrapper": seconds.median, "profiler": statistics.median(found)}
        for site, seconds in zip(times.sites, times.seconds_of_sites, strict=True)
        for name in [_name_in_trace(site.kernel, seen)]
        if name and (found := seen[name])
    }


def _name_in_trace(kernel: str, seen: dict[str, list[float]]) -> str:
    """torch.profiler's name: of the graph and the kernel for C++, of the operator else."""
    if kernel.startswith("extern_kernels."):
        return next((n for n in seen if n == f"aten::{kernel.rpartition('.')[2]}"), "")
    return next((name for name in seen if name.endswith(kernel)), "")


def floor(calls: int) -> dict[str, Any]:
    """A compiled copy beyond the caches, against the floor that the profiler would give it."""
    import torch

    from inductoscope.profiling.kernel_work import FUNCTIONS
    from inductoscope.profiling.machine import known_limits, memory_seconds

    size = 1 << 27
    # Into memory that is there: fresh pages of a new result would cost more than the copy.
    given, result = torch.ones(size // 4), torch.ones(size // 4)
    exchanged = _Exchanged()
    compiled = torch.compile(lambda out, x: out.copy_(x))

    def function() -> None:
        compiled(result, given)

    for _ in range(3):
        function()
    (graph, _), *_ = exchanged.timed()
    for _ in range(calls):
        function()
    (times,) = graph.as_data()
    threads = torch.get_num_threads()
    machine, note = known_limits(
        "cpu", threads, torch.__version__, FUNCTIONS, anew=True, say=lambda text: None
    )
    assert machine is not None, note
    least = memory_seconds(machine, size, size)
    return {
        "kernel": quartiles(times.seconds_of_sites[0].values),
        "fastest": min(times.seconds_of_sites[0].values),
        "floor": least,
        "rounds_apart": machine.spread,
    }


QUESTIONS = {"overhead": overhead, "agreement": agreement, "floor": floor}


# --- outside --------------------------------------------------------------------------------------


def ask(question: str, calls: int) -> Any:
    """The answer of a child, which leaves the limits that are kept of this machine alone."""
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [sys.executable, "-m", "bench.profile", "--ask", question, "--calls", str(calls)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
            text=True,
            cwd=Path(__file__).resolve().parents[1],
            env={**os.environ, "XDG_CACHE_HOME": cache},
        )
    return json.loads(done.stdout.splitlines()[-1])


def print_answers(found: dict[str, Any]) -> None:
    """All figures beside their goals."""
    low, middle, high = found["overhead"]["ratio"]
    goal = GOALS["overhead"]
    print(f"overhead    {middle:.3f} ({low:.3f} to {high:.3f}) of the call as it is; goal {goal}")
    for name, item in found["agreement"].items():
        apart = item["wrapper"] / item["profiler"] - 1
        remark = "" if item["profiler"] >= LEAST else " (under 100 µs, no goal)"
        print(
            f"agreement   {apart:+.1%} {name}: {item['wrapper'] * 1e6:.0f} µs, torch.profiler "
            f"{item['profiler'] * 1e6:.0f} µs; goal {GOALS['agreement']:.0%}{remark}"
        )
    answer = found["floor"]
    least, fastest = answer["floor"], answer["fastest"]
    print(
        f"floor       {least * 1e3:.1f} ms for a copy of 128 MiB; the kernel's fastest call took "
        f"{fastest * 1e3:.1f} ms, the median {answer['kernel'][1] * 1e3:.1f} ms: the floor is "
        f"{fastest / least - 1:+.1%} off; goal {GOALS['floor']:.0%}"
    )
    apart = answer["rounds_apart"]
    print(f"            (the rounds in which the machine was measured were {apart:.0%} apart)")


def main() -> None:
    """Ask, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ask", choices=list(QUESTIONS))
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--calls", type=int, default=_CALLS, help="of each kind; a few only show that it works"
    )
    given = parser.parse_args()
    if given.ask:
        print(json.dumps(QUESTIONS[given.ask](given.calls)))
        return
    with workplace("bench-profile"):
        found = {question: ask(question, given.calls) for question in QUESTIONS}
    print_answers(found)
    if given.json:
        given.json.parent.mkdir(exist_ok=True)
        given.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
