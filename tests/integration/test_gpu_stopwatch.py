"""Time of a call on a GPU: needs one."""

from __future__ import annotations

import time

import pytest

from inductoscope.inside.profiling.alternating_calls import (
    NOT_MEASURED,
    AlternatingClock,
    GpuStopwatch,
)
from inductoscope.profiling.timings import FUNCTION, IN_EAGER

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

# Cycles of some milliseconds on any GPU.
LONG = 20_000_000


def _costs(work, times=9):  # type: ignore[no-untyped-def]
    watch = GpuStopwatch(time.perf_counter_ns)
    found = []
    for _ in range(times):
        call = watch.start("work")
        work()
        found.append(watch.stop(call, "work"))
    return [each / 1e6 for each in found if each != NOT_MEASURED]


def test_work_of_the_gpu_counts_although_the_call_returns_at_once() -> None:
    costs = _costs(lambda: torch.cuda._sleep(LONG))
    assert min(costs) > 5
    assert max(costs) < 60


def test_many_launches_count_as_long_as_they_take_to_be_enqueued() -> None:
    tiny = torch.zeros(1, device="cuda")

    def launches() -> None:
        for _ in range(300):
            tiny.add_(1)

    launches()
    torch.cuda.synchronize()
    plain = time.perf_counter_ns()
    launches()
    enqueuing = (time.perf_counter_ns() - plain) / 1e6
    assert 0.3 < sorted(_costs(launches))[2] / enqueuing < 3


def test_a_call_that_waits_for_the_gpu_is_timed_from_beginning_to_end() -> None:
    def waits() -> None:
        torch.cuda._sleep(LONG)
        torch.cuda.synchronize()

    costs = _costs(waits)
    # The first few calls show that it waits.
    assert 3 <= len(costs) < 9
    assert min(costs) > 5


class SlowBackward(torch.autograd.Function):  # type: ignore[misc, name-defined]
    """Its backward pass keeps the GPU busy, and returns at once."""

    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        torch.cuda._sleep(LONG)
        return gradient


@pytest.mark.parametrize("is_other_stream", [False, True])
def test_a_backward_pass_counts_although_it_returns_at_once(is_other_stream: bool) -> None:
    clock = AlternatingClock()
    function = clock.timed(SlowBackward.apply, "f")
    x = torch.ones(4, device="cuda", requires_grad=True)
    stream = torch.cuda.Stream() if is_other_stream else torch.cuda.current_stream()
    with torch.cuda.stream(stream):
        for _ in range(30):
            function(x).sum().backward()
    steps = [calls for calls in clock.as_data(1).calls if "backward" in calls.group]
    assert {calls.kind for calls in steps} == {FUNCTION, IN_EAGER}
    for calls in steps:
        assert len(calls.sample) >= 5
        assert 5e6 < min(calls.sample) <= max(calls.sample) < 6e7
