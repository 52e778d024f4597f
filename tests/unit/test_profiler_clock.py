"""Which calls are traced on a GPU: the choice, and what is left out, need no GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from inductoscope.inside.profiling.call_clock import CallClock
from inductoscope.inside.profiling.kernel_clock import KernelClock
from inductoscope.inside.profiling.kernel_traces import SiteRange
from inductoscope.inside.profiling.profiler_clock import ProfilerClock
from inductoscope.profiling.timings import EVENTS, WHOLE

F, G = ("function", "f", "a.py:1"), ("function", "g", "a.py:2")
WRAPPER = """\
class Runner:
    def call(self, args):
        (s77, ) = args
        stream0 = get_raw_stream(0)
        triton_poi_fused_add_0.run(args, stream=stream0)
        return ()

runner = Runner()
call = runner.call
"""


class ChoosingClock(ProfilerClock):
    """Chooses calls as ever, and traces nothing."""

    def _start(self) -> bool:
        return True


def traced(clock: ProfilerClock, thing: tuple[str, str, str], *graphs: int, calls: int) -> int:
    """How many of so many calls, in which these graphs run, are traced."""
    found = 0
    for _ in range(calls):
        if clock.call_begins(thing):
            found += 1
            for graph in graphs:
                assert clock.notes_call(graph)
            clock.call_ended()
        else:
            assert not any(clock.notes_call(graph) for graph in graphs)
    return found


def test_each_function_has_its_own_calls_traced() -> None:
    clock = ChoosingClock()
    assert traced(clock, F, 0, calls=100) == 21
    assert traced(clock, G, 1, 2, calls=100) == 21


def test_a_graph_that_is_compiled_later_is_traced_as_often() -> None:
    clock = ChoosingClock()
    traced(clock, F, 0, calls=100)
    clock.wrappers += 1
    assert traced(clock, F, 1, calls=100) == 21


def test_a_graph_that_never_comes_back_does_not_have_everything_traced() -> None:
    clock = ChoosingClock()
    traced(clock, F, 0, calls=100)
    clock.wrappers += 1
    traced(clock, F, 1, calls=3)
    assert traced(clock, F, 0, calls=1000) < 200


def test_the_programs_own_profiler_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    clock = ProfilerClock()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
        assert not clock.call_begins(F)
        torch.ones(3).sum()
    assert any(event.name == "aten::sum" for event in own.events())
    assert "own torch.profiler" in clock.note


def test_a_call_that_is_interrupted_while_its_trace_is_read_does_not_end_tracing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A time limit of the program's may strike there; the next call is timed again."""

    def time_is_up() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    clock = ProfilerClock()
    assert clock.call_begins(F)
    with monkeypatch.context() as interrupted:
        interrupted.setattr(torch.cuda, "synchronize", time_is_up)
        with pytest.raises(KeyboardInterrupt):
            clock.call_ended()
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    assert not torch.autograd._profiler_enabled(), "no trace goes on"
    assert clock.call_begins(F)
    clock.call_ended()


def refused(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")


def cpp_module(clock: KernelClock, tmp_path: Path) -> Any:
    """A wrapper in C++, as torch loads it."""
    import types

    path = tmp_path / "wrapper.py"
    path.write_text("inductor_entry = CppWrapperCodeCache.load('int main() {}')\n")
    module: Any = types.ModuleType("wrapper")
    module.call = lambda args: torch.ones(3).sum()
    clock.note_module(module, str(path))
    return module


def test_without_a_profiler_events_are_used_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.profiler, "profile", refused)
    clock = ProfilerClock()
    assert clock.call_begins(F)
    assert (clock.how, clock.has_trace) == (EVENTS, False)
    assert "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES): kernels are timed between CUDA" in clock.note


def test_a_profiler_that_sees_nothing_on_a_gpu_is_exchanged_for_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without permission for CUPTI torch.profiler works, and is blind: here there is no GPU."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    clock = ProfilerClock()
    assert clock.call_begins(F)
    assert clock.has_trace
    where = SiteRange(0, 0, 0)
    clock.before(where)
    clock.after(where)
    clock.call_ended()
    assert clock.how == EVENTS
    assert "CUPTI may not be permitted): kernels are timed between CUDA events" in clock.note
    assert clock.call_begins(F), "the next calls are timed so"


def test_without_a_profiler_a_cpp_wrapper_is_timed_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.profiler, "profile", refused)
    clock = KernelClock()
    module = cpp_module(clock, tmp_path)
    for _ in range(4):
        assert not clock.call_begins(F)
        module.call([])
    clock.finish()
    (times,) = clock.as_data()
    assert (times.how, len(times.sample)) == (WHOLE, 3)
    (note,) = clock.notes
    assert "of C++ wrappers and packages only whole calls are timed" in note


def test_calls_of_a_cpp_wrapper_are_traced_by_the_real_profiler(tmp_path: Path) -> None:
    clock = KernelClock()
    module = cpp_module(clock, tmp_path)
    module.call([])
    for _ in range(3):
        assert clock.call_begins(F)
        module.call([])
        clock.call_ended()
    assert clock.profiler is not None
    (calls,) = clock.profiler.in_cpp.values()
    assert len(calls) == 3
    assert all(call.duration > 0 and not call.kernels for call in calls)
    (times,) = clock.as_data()
    assert times.how == WHOLE, "it was compiled without ranges around its kernels"


def test_a_call_that_is_traced_and_compiles_is_still_known_to_have_compiled() -> None:
    clock = CallClock(clock=iter(range(100)).__next__)
    clock.disturbs = lambda thing: True
    compiles = [True, False, True]

    def work() -> None:
        if compiles.pop(0):
            clock.compile_begins()

    call = clock.timed(work, "f")
    for _ in range(3):
        call()
    (times,) = clock.as_data(1).calls
    assert (len(times.compiling), len(times.warming), times.count) == (2, 1, 0)


def kernels_of(tmp_path: Path, calls: int) -> Any:
    """The only kernel of a wrapper after so many traced calls: 9 ms in the first, then 10 µs."""
    import types

    path = tmp_path / "wrapper.py"
    path.write_text(WRAPPER)
    clock = KernelClock()
    clock.profiler = ChoosingClock()
    module: Any = types.ModuleType("wrapper")
    module.triton_poi_fused_add_0 = types.SimpleNamespace(run=lambda args, stream: None)
    module.get_raw_stream = lambda device: 0
    exec(compile(WRAPPER, str(path), "exec"), module.__dict__)
    clock.profiler.before = clock.profiler.after = lambda where: None  # type: ignore[method-assign]
    clock.note_module(module, str(path))
    for number in range(calls):
        assert clock.call_begins(F)
        module.call([4])
        clock.call_ended()
        clock.profiler.times.busy[SiteRange(0, number, 0)] = 10_000 if number else 9_000_000
    ((kernel,),) = (graph.sites for graph in clock.as_data())
    return kernel


def test_the_first_traced_call_is_left_out(tmp_path: Path) -> None:
    kernel = kernels_of(tmp_path, calls=4)
    assert (kernel.count, kernel.sample) == (3, (10_000,) * 3)


def test_an_only_call_is_given_and_said_to_be_no_more(tmp_path: Path) -> None:
    kernel = kernels_of(tmp_path, calls=1)
    assert (kernel.count, kernel.sample) == (0, (9_000_000,))
