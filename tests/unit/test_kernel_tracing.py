"""Kernels timed by torch.profiler: which calls are traced, and how a trace is read. No GPU."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

from inductoscope.inside.profiling.call_clock import CallClock
from inductoscope.inside.profiling.kernel_clock import KernelClock
from inductoscope.inside.profiling.kernel_tracer import (
    KernelTracer,
    Trace,
    TracedCall,
    TraceEvent,
    range_name,
    read_trace,
)
from inductoscope.inside.profiling.profiled_packages import SETTING, ProfiledPackages
from inductoscope.model.entities import InductorGraph
from inductoscope.model.fold import load
from inductoscope.model.wrapper_lines import kernels_by_call
from inductoscope.profiling.timings import PROFILER, WHOLE, Site, TimedCall
from inductoscope.recording.events import Kernel
from support.examples import stored

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


class ChoosingTracer(KernelTracer):
    """Chooses calls as ever, and traces nothing."""

    def _start(self) -> bool:
        return True


def tracer(kind: type[KernelTracer] = KernelTracer) -> KernelTracer:
    return kind(lambda trace: None)


def traced(clock: KernelTracer, thing: tuple[str, str, str], *, calls: int) -> int:
    """How many of so many calls are traced."""
    found = 0
    for _ in range(calls):
        found += clock.call_begins(thing)
        clock.call_ended()
    return found


def test_each_function_has_its_own_calls_traced() -> None:
    clock = tracer(ChoosingTracer)
    assert traced(clock, F, calls=100) == 21
    assert traced(clock, G, calls=100) == 21


def test_a_graph_that_is_compiled_later_is_traced_as_often() -> None:
    clock = tracer(ChoosingTracer)
    traced(clock, F, calls=100)
    clock.wrappers += 1
    assert traced(clock, F, calls=100) == 21


def test_wrappers_that_are_loaded_again_and_again_do_not_have_everything_traced() -> None:
    clock = tracer(ChoosingTracer)
    found = 0
    for _ in range(100):
        clock.wrappers += 1
        found += traced(clock, F, calls=100)
    assert found == 200


def test_the_programs_own_profiler_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    clock = tracer()
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
    clock = tracer()
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
    path = tmp_path / "wrapper.py"
    path.write_text("inductor_entry = CppWrapperCodeCache.load('int main() {}')\n")
    module: Any = types.ModuleType("wrapper")
    module.call = lambda args: torch.ones(3).sum()
    clock.note_module(module, str(path))
    return module


def test_a_profiler_that_sees_nothing_on_a_gpu_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch,
    snapshot: SnapshotAssertion,
) -> None:
    """Without permission for CUPTI torch.profiler works, and is blind: here there is no GPU."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    clock = tracer()
    assert clock.call_begins(F)
    clock.before(0, 0, 0)
    clock.after()
    clock.call_ended()
    assert clock.note == snapshot
    assert not clock.call_begins(F)


def test_without_a_profiler_a_cpp_wrapper_is_timed_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    snapshot: SnapshotAssertion,
) -> None:
    monkeypatch.setattr(torch.profiler, "profile", refused)
    clock = KernelClock()
    module = cpp_module(clock, tmp_path)
    for _ in range(4):
        assert not clock.tracer.call_begins(F)
        module.call([])
    (times,) = clock.as_data()
    assert (times.how, times.count) == (WHOLE, 3)
    (note,) = clock.notes
    assert note == snapshot


def test_calls_of_a_cpp_wrapper_are_traced_by_the_real_profiler(tmp_path: Path) -> None:
    clock = KernelClock()
    module = cpp_module(clock, tmp_path)
    module.call([])
    for _ in range(3):
        assert clock.tracer.call_begins(F)
        module.call([])
        clock.tracer.call_ended()
    (times,) = clock.as_data()
    assert times.count == 3
    assert all(call.duration > 0 and not call.spans for call in times.kept)
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


# --- what is kept of traced calls -----------------------------------------------------------------


def timed_on_gpu(tmp_path: Path, *traces: Trace) -> Any:
    """The times of a wrapper with one kernel, each of whose calls gives such a trace."""
    path = tmp_path / "wrapper.py"
    path.write_text(WRAPPER)
    clock = KernelClock()
    clock.tracer = ChoosingTracer(clock._note_trace)
    module: Any = types.ModuleType("wrapper")
    module.triton_poi_fused_add_0 = types.SimpleNamespace(run=lambda args, stream: None)
    module.get_raw_stream = lambda device: 0
    exec(compile(WRAPPER, str(path), "exec"), module.__dict__)
    clock.tracer.before = clock.tracer.after = lambda *where: None  # type: ignore[method-assign]
    clock.note_module(module, str(path))
    for trace in traces:
        assert clock.tracer.call_begins(F)
        module.call([4])
        clock._note_trace(trace)
        clock.tracer.call_ended()
    (times,) = clock.as_data()
    return times


def in_call(number: int, nanoseconds: int) -> Trace:
    call = TracedCall(nanoseconds, ((0, 0, nanoseconds),), on_device=True)
    return Trace({(0, number): call}, ())


def test_the_first_traced_call_is_kept_apart(tmp_path: Path) -> None:
    times = timed_on_gpu(tmp_path, *(in_call(n, 10_000 if n else 9_000_000) for n in range(4)))
    assert (times.device, times.how, times.sizes) == ("cuda", PROFILER, {"s77": 4})
    assert (times.count, times.seconds_of_sites[0].values) == (3, (1e-5,) * 3)


def test_an_only_call_is_given_and_said_to_be_no_more(tmp_path: Path) -> None:
    times = timed_on_gpu(tmp_path, in_call(0, 9_000_000))
    assert (times.count, times.seconds_of_sites[0].values) == (0, (9e-3,))


def test_what_a_cuda_graph_replays_is_known_by_name(tmp_path: Path) -> None:
    works = (gpu("triton_poi_fused_add_0", 10, 4, 1), gpu("gemm", 16, 3, 2))
    times = timed_on_gpu(tmp_path, *[Trace({}, works)] * 2)
    assert times.kept == (TimedCall(9, ((0, 0, 4), (-1, 6, 3))),)
    assert times.between.values == (2e-9,)


def test_calls_that_were_timed_as_a_whole_make_way_for_traced_ones(tmp_path: Path) -> None:
    clock = KernelClock()
    module = cpp_module(clock, tmp_path)
    module.call([])
    for number in range(1, 3):
        call = TracedCall(90, (((MM, 0), 5, 10), ((FUSED, 0), 20, 5), ((FUSED, 1), 30, 7)))
        clock._note_trace(Trace({(0, number): call}, ()))
    (times,) = clock.as_data()
    assert times.sites == (Site(MM, 0, 0), Site(FUSED, 0, 0), Site(FUSED, 0, 1))
    assert (times.how, times.device, times.count) == (PROFILER, "cpu", 1)
    assert times.between.values == (68e-9,)


# --- how a trace is read --------------------------------------------------------------------------

MM, FUSED = "aoti_torch_cpu_mm_out", "cpp_fused_add_0"


def cpu(name: str, start: int, duration: int, correlation: int = 0, thread: int = 1) -> TraceEvent:
    return TraceEvent(name, start, duration, correlation, on_device=False, thread=thread)


def gpu(name: str, start: int, duration: int, correlation: int) -> TraceEvent:
    return TraceEvent(name, start, duration, correlation, on_device=True)


def test_kernels_are_the_outermost_ranges_of_torch_in_a_call() -> None:
    found = read_trace(
        [
            cpu(range_name(0, 3), 100, 50),
            cpu(MM, 105, 10),
            cpu("aten::resolve_conj", 106, 1),
            cpu(f"graph_0_{FUSED}", 120, 5),
            cpu(f"graph_0_{FUSED}", 130, 7),
            cpu("graph_1_cpp_fused_inside_1", 131, 2),
            cpu(MM, 140, 3, thread=2),  # Another thread's call.
            cpu(MM, 200, 10),  # After the call.
        ]
    )
    kernels = ((MM, 0), 5, 10), ((FUSED, 0), 20, 5), ((FUSED, 1), 30, 7)
    assert found.calls == {(0, 3): TracedCall(50, kernels)}


def test_on_a_gpu_a_kernel_takes_as_long_as_what_it_launched() -> None:
    found = read_trace(
        [
            cpu(range_name(2, 0), 100, 50),
            cpu("kernels_.triton_poi_fused_add_0", 105, 10),
            cpu("cuLaunchKernel", 107, 2, correlation=7),
            cpu("aoti_torch_cuda_mm_out", 120, 10),
            cpu("cudaLaunchKernel", 122, 2, correlation=8),
            cpu("cudaLaunchKernel", 125, 2, correlation=9),
            gpu("triton_poi_fused_add_0", 1000, 300, 7),
            gpu("gemm_1", 1400, 100, 8),
            gpu("gemm_2", 1500, 50, 9),
            gpu("of another call", 3000, 50, 10),
        ]
    )
    kernels = (("triton_poi_fused_add_0", 0), 0, 300), (("aoti_torch_cuda_mm_out", 0), 400, 150)
    assert found.calls == {(2, 0): TracedCall(550, kernels, on_device=True)}
    assert [work.name for work in found.loose] == ["of another call"]


def test_kernels_of_a_python_wrapper_are_known_by_their_sites() -> None:
    found = read_trace(
        [
            cpu(range_name(0, 3, 0), 100, 50),
            cpu("cuLaunchKernelEx", 120, 5, 7),
            cpu(range_name(0, 3, 1), 200, 50),
            cpu("cudaLaunchKernel", 210, 5, 8),
            cpu("cudaLaunchKernel", 220, 5, 9),
            gpu("triton_poi_fused_0", 1000, 40, 7),
            gpu("gemm", 1100, 300, 8),
            gpu("splitK_reduce", 1400, 20, 9),
            gpu(range_name(0, 3, 0), 1000, 40, 7),  # Ranges are shown there, too.
        ]
    )
    kernels = (0, 0, 40), (1, 100, 320)
    assert found == Trace({(0, 3): TracedCall(420, kernels, on_device=True)}, ())


class CountedEvent(TraceEvent):
    """Counts how often someone asks when an event begins."""

    reads = 0

    def __getattribute__(self, name: str) -> Any:
        CountedEvent.reads += name == "start"
        return super().__getattribute__(name)


def reads_for(calls: int) -> int:
    """How often events are looked at in a trace of so many calls, each with two kernels."""
    events = [
        CountedEvent(e.name, e.start, e.duration, e.correlation, e.on_device, e.thread)
        for n in range(calls)
        for e in (
            cpu(range_name(0, n), 100 * n, 90),
            cpu(MM, 100 * n + 10, 10),
            cpu("cudaLaunchKernel", 100 * n + 12, 2, correlation=n + 1),
            cpu(FUSED, 100 * n + 30, 10),
            gpu("gemm", 100 * n + 50, 10, n + 1),
        )
    ]
    CountedEvent.reads = 0
    found = read_trace(events).calls
    assert len(found) == calls
    assert all(len(call.kernels) == 1 for call in found.values())
    return CountedEvent.reads


def test_a_trace_of_twice_as_many_calls_costs_twice_as_much() -> None:
    assert reads_for(calls=200) < 2.2 * reads_for(calls=100)


def test_the_line_of_a_call_is_found_by_its_name_and_its_number() -> None:
    text = """\
import torch
cpp_wrapper_src = '''
void inductor_entry_impl(
    AtenTensorHandle* input_handles) {
    {
    KernelContextGuard _ctx("aoti_torch_cpu_mm_out", R"(
  y = x @ w
)");
    RAIIAtenRecordFunctionHandle record_aoti_torch_cpu_mm_out_("aoti_torch_cpu_mm_out", nullptr);
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(buf0, arg0_1, arg1_1));
    }
    cpp_fused_add_0((float*)(buf0.data_ptr()), (float*)(buf1.data_ptr()));
    cpp_fused_add_0((float*)(buf1.data_ptr()), (float*)(buf2.data_ptr()));
} // inductor_entry_impl
'''
"""
    recording = load(stored("relu_add_sum"))
    kernels = tuple(
        Kernel(name=name, language=language, writes=(written,))
        for name, language, written in (
            ("extern_kernels.mm", "extern", "buf0"),
            (FUSED, "C++", "buf1"),
            (FUSED, "C++", "buf2"),
        )
    )

    class Texts:
        def payload(self, digest: str) -> str:
            return text

    graph = replace(recording.compiles[0].inductor[0], kernels=kernels)
    assert isinstance(graph, InductorGraph)
    found = kernels_by_call(Texts(), graph)  # type: ignore[arg-type]
    assert {key: (line, kernel.writes) for key, (line, kernel) in found.items()} == {
        (MM, 0): (10, ("buf0",)),
        (FUSED, 0): (12, ("buf1",)),
        (FUSED, 1): (13, ("buf2",)),
    }


# --- packages -------------------------------------------------------------------------------------


class Model:
    """A package, loaded."""

    def __init__(self, text: str) -> None:
        self.text = text


class PlainCompiler:
    """Compiles a program into a file that holds its settings, and loads it."""

    def __init__(self, folder: Path) -> None:
        self.packages = ProfiledPackages(folder / "profile")
        compiling, loading = (hook.wraps[0].replacement for hook in self.packages.hooks())
        self.compile: Callable[..., Any] = compiling(self._compile)
        self.load: Callable[..., Any] = loading(lambda path: Model(Path(path).read_text()))
        self.refuses_profiling = False
        self.compiled: list[dict[str, Any]] = []

    def _compile(
        self, program: str, *, package_path: Any = None, inductor_configs: Any = None
    ) -> str:
        settings = inductor_configs or {}
        if program == "broken" or (self.refuses_profiling and SETTING in settings):
            raise RuntimeError("cannot be compiled")
        self.compiled.append(settings)
        Path(package_path).write_text(f"{program} {sorted(settings)}")
        return str(package_path)


@pytest.fixture
def compiler(tmp_path: Path) -> PlainCompiler:
    return PlainCompiler(tmp_path)


def test_the_package_is_as_ever_and_its_copy_is_loaded(
    compiler: PlainCompiler, tmp_path: Path
) -> None:
    path = tmp_path / "m.pt2"
    written = compiler.compile("a", package_path=path, inductor_configs={"freezing": True})
    assert written == str(path)
    assert path.read_text() == "a ['freezing']"
    model = compiler.load(written)
    assert model.text == f"a ['{SETTING}', 'freezing']"
    assert compiler.packages.path_of(model) == written
    compiler.packages.remove_copies()
    assert not list((tmp_path / "profile").iterdir())
    assert path.exists()


def test_a_package_that_the_program_exchanged_is_loaded_itself(
    compiler: PlainCompiler, tmp_path: Path
) -> None:
    path = tmp_path / "m.pt2"
    compiler.compile("a", package_path=path)
    path.write_text("of another program")
    assert compiler.load(path).text == "of another program"
    (tmp_path / "old.pt2").write_text("compiled yesterday")
    assert compiler.load(tmp_path / "old.pt2").text == "compiled yesterday"


def test_without_a_copy_the_program_goes_on(compiler: PlainCompiler, tmp_path: Path) -> None:
    compiler.refuses_profiling = True
    written = compiler.compile("a", package_path=tmp_path / "m.pt2")
    assert compiler.compiled == [{}]
    assert compiler.load(written).text == "a []"


def test_a_program_that_cannot_be_compiled_fails_as_ever(
    compiler: PlainCompiler, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError, match="cannot be compiled"):
        compiler.compile("broken", package_path=tmp_path / "m.pt2")
