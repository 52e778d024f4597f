"""Runs in a child process: the limits of this machine, and the settings of the torch on it.

Every figure is the best of several rounds, because other load can only make it worse.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inductoscope.inside.child import Channel

# The least seconds and calls of a measurement in each round, and the number of rounds.
_SECONDS = 0.015
_LEAST_CALLS = 6
_PATIENCE = 0.2
_ROUNDS = 4
_CPU_SIZES = tuple(1 << power for power in range(15, 29))
_GPU_SIZES = tuple(1 << power for power in range(20, 32))
_MATRIX = ("float32", "tf32", "bfloat16", "float16", "float64")
# A matrix product is enlarged until it takes this many seconds.
_LONG_ENOUGH = 0.01
_LARGEST_MATRIX = 8192
# Enough elements for all threads, and few enough for the nearer caches.
_ELEMENTS = 1 << 17


def measure_machine(channel: Channel, device: str, threads: int, functions: list[str]) -> None:
    import torch

    if threads:
        torch.set_num_threads(threads)
    measuring = _Measuring(torch, device)
    rounds = [measuring.bandwidths() for _ in range(_ROUNDS)]
    channel.say(
        "limits",
        name=measuring.name(),
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        bandwidths=_best(rounds),
        spread=_spread(rounds),
        matrix=_best_rates(measuring.matrix, _MATRIX),
        functions=_best_rates(measuring.function, functions),
    )


def _best_rates(measure: Callable[[str], float | None], names: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for _ in range(_ROUNDS):
        for name in names:
            rate = measure(name)
            if rate:
                found[name] = max(found.get(name, 0.0), rate)
    return found


def _best(rounds: list[list[dict[str, float]]]) -> list[dict[str, float]]:
    return [
        {key: max(item[key] for item in same) for key in same[0]}
        for same in zip(*rounds, strict=True)
    ]


def _spread(rounds: list[list[dict[str, float]]]) -> float:
    """Return the spread of the rounds of the largest copy, relative to the best."""
    found = [items[-1]["copy"] for items in rounds]
    best = max(found, default=0.0)
    return (best - min(found)) / best if best else 0.0


class _Measuring:
    def __init__(self, torch: Any, device: str) -> None:
        self._torch, self._device = torch, device
        self._on_gpu = device.startswith("cuda")
        one = torch.zeros(1, device=device)
        # The seconds of a call that moves no data.
        self._nothing = self._seconds(one.zero_)

    def name(self) -> str:
        if self._on_gpu:
            return str(self._torch.cuda.get_device_name(self._device))
        return ""

    def _seconds(self, call: Callable[[], Any]) -> float:
        return self._seconds_on_gpu(call) if self._on_gpu else _shortest(call)

    def _seconds_on_gpu(self, call: Callable[[], Any]) -> float:
        """Time ten calls between two events, so that the GPU does not wait for Python."""
        cuda, best, ends = self._torch.cuda, float("inf"), time.perf_counter() + _SECONDS
        call()
        while time.perf_counter() < ends or best == float("inf"):
            begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(10):
                call()
            end.record()
            cuda.synchronize()
            best = min(best, begin.elapsed_time(end) / 1e4)
        return best

    def bandwidths(self) -> list[dict[str, float]]:
        sizes = _GPU_SIZES if self._on_gpu else _CPU_SIZES
        # ones() writes to the memory: untouched pages would all map to one page of zeros.
        data = self._torch.ones(sizes[-1] // 4, device=self._device)
        found = []
        for size in sizes:
            given = data[: size // 4]
            half, other = given[: size // 8], given[size // 8 :]
            read = min(self._net(given.sum), self._net(given.amax))
            copy = self._net(functools.partial(half.copy_, other))
            fill = self._net(functools.partial(given.fill_, 1.0))
            found.append(
                {"working_set": size, "read": size / read, "copy": size / copy, "fill": size / fill}
            )
        return found

    def _net(self, call: Callable[[], Any]) -> float:
        took = self._seconds(call)
        # The bandwidth is unknown if a call takes hardly longer than one that moves nothing.
        return max(took - self._nothing, took / 4)

    def matrix(self, name: str) -> float | None:
        is_tf32 = name == "tf32"
        if is_tf32 and not self._on_gpu:
            return None
        self._torch.set_float32_matmul_precision("high" if is_tf32 else "highest")
        dtype = self._torch.float32 if is_tf32 else getattr(self._torch, name)
        size, rate = 256, 0.0
        while size <= _LARGEST_MATRIX:
            try:
                a, b = (self._torch.ones(size, size, dtype=dtype, device=self._device),) * 2
                out = self._torch.empty_like(a)
                took = self._seconds(functools.partial(self._torch.mm, a, b, out=out))
            except RuntimeError:
                break
            rate = max(rate, 2 * size**3 / took)
            if took > _LONG_ENOUGH:
                break
            size *= 2
        return rate

    def function(self, name: str) -> float | None:
        """Measure elements per second of a function, on data in the nearest cache."""
        call = getattr(self._torch, name, None)
        if call is None or self._on_gpu:
            return None
        x = self._torch.rand(_ELEMENTS) * 0.8 + 0.1
        out = self._torch.empty_like(x)
        more = {"pow": (1.7,), "atan2": (x,)}.get(name, ())
        try:
            return float(_ELEMENTS / self._net(lambda: call(x, *more, out=out)))
        except (RuntimeError, TypeError):
            return None


def _shortest(call: Callable[[], Any]) -> float:
    best, calls, ends = float("inf"), 0, time.perf_counter() + _SECONDS
    call()
    while True:
        started = time.perf_counter()
        call()
        now = time.perf_counter()
        best, calls = min(best, now - started), calls + 1
        if now > ends and (calls >= _LEAST_CALLS or now > ends + _PATIENCE):
            return best


def name_settings(channel: Channel) -> None:
    """Report all settings; a value without a JSON form is given as the name of its type."""
    from torch._inductor import config

    found: dict[str, Any] = {}
    for name in config._config:
        value = getattr(config, name, None)
        simple = value is None or isinstance(value, (bool, int, float, str))
        found[name] = {"default": value} if simple else {"type": type(value).__name__}
    channel.say("settings", names=found)
