"""Kernels of C++ wrappers in a trace of torch.profiler, and the lines that call them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from inductoscope.inside.profiling.kernel_traces import (
    CallRange,
    TracedCall,
    TracedKernel,
    TraceEvent,
    traced_calls,
    with_kernels,
)
from inductoscope.model.fold import load
from inductoscope.model.wrapper_lines import kernels_by_call
from inductoscope.profiling.timings import PROFILER, WHOLE, GraphTimes

MM, FUSED = "aoti_torch_cpu_mm_out", "cpp_fused_add_0"


def cpu(name: str, start: int, duration: int, correlation: int = 0, thread: int = 1) -> TraceEvent:
    return TraceEvent(name, start, duration, correlation, on_device=False, thread=thread)


def gpu(name: str, start: int, duration: int, correlation: int) -> TraceEvent:
    return TraceEvent(name, start, duration, correlation, on_device=True)


def test_kernels_are_the_outermost_ranges_of_torch_in_a_call() -> None:
    found = traced_calls(
        [
            cpu(CallRange(0, 3).name, 100, 50),
            cpu(MM, 105, 10),
            cpu("aten::resolve_conj", 106, 1),
            cpu(f"graph_0_{FUSED}", 120, 5),
            cpu(f"graph_0_{FUSED}", 130, 7),
            cpu("graph_1_cpp_fused_inside_1", 131, 2),
            cpu(MM, 140, 3, thread=2),  # Another thread's call.
            cpu(MM, 200, 10),  # After the call.
        ]
    )
    kernels = (
        TracedKernel(MM, 0, 5, 10),
        TracedKernel(FUSED, 0, 20, 5),
        TracedKernel(FUSED, 1, 30, 7),
    )
    assert found == {CallRange(0, 3): TracedCall(50, on_device=False, kernels=kernels)}


def test_on_a_gpu_a_kernel_takes_as_long_as_what_it_launched() -> None:
    (found,) = traced_calls(
        [
            cpu(CallRange(2, 0).name, 100, 50),
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
    ).values()
    assert found.on_device
    assert found.duration == 550
    assert [(k.name, k.start, k.duration) for k in found.kernels] == [
        ("triton_poi_fused_add_0", 0, 300),
        ("aoti_torch_cuda_mm_out", 400, 150),
    ]


class CountedEvent(TraceEvent):
    """Counts how often someone asks when an event begins."""

    reads = 0

    def __getattribute__(self, name: str) -> Any:
        CountedEvent.reads += name == "start"
        return super().__getattribute__(name)


def reads_for(calls: int) -> int:
    """How often events are looked at in a trace of so many calls, each with two kernels."""
    events = [
        event
        for n in range(calls)
        for event in (
            cpu(CallRange(0, n).name, 100 * n, 90),
            cpu(MM, 100 * n + 10, 10),
            cpu("cudaLaunchKernel", 100 * n + 12, 2, correlation=n + 1),
            cpu(FUSED, 100 * n + 30, 10),
            gpu("gemm", 100 * n + 50, 10, n + 1),
        )
    ]
    CountedEvent.reads = 0
    found = traced_calls(
        CountedEvent(e.name, e.start, e.duration, e.correlation, e.on_device, e.thread)
        for e in events
    )
    assert len(found) == calls
    assert all(len(call.kernels) == 1 for call in found.values())
    return CountedEvent.reads


def test_a_trace_of_twice_as_many_calls_costs_twice_as_much() -> None:
    assert reads_for(calls=200) < 2.2 * reads_for(calls=100)


def call(*durations: int) -> TracedCall:
    kernels = tuple(TracedKernel(FUSED, n, 0, took) for n, took in enumerate(durations))
    return TracedCall(sum(durations) + 5, on_device=False, kernels=kernels)


def test_the_first_traced_call_counts_only_if_there_is_no_other() -> None:
    times = GraphTimes("m.pt2", how=WHOLE, sample=(90, 95))
    found = with_kernels(times, [call(900, 900), call(10, 20), call(12, 22)])
    assert [(s.occurrence, s.count, s.sample) for s in found.sites] == [
        (0, 2, (10, 12)),
        (1, 2, (20, 22)),
    ]
    assert (found.how, found.sample, found.between) == (PROFILER, (90, 95), (5, 5))
    only = with_kernels(replace(times, sample=()), [call(900, 900)])
    assert [(s.count, s.sample) for s in only.sites] == [(0, (900,)), (0, (900,))]
    assert only.sample == (1805,)


def test_a_wrapper_compiled_without_ranges_stays_as_it_was_timed() -> None:
    times = GraphTimes("m.pt2", how=WHOLE, sample=(90, 95))
    assert with_kernels(times, [call(), call()]) is times


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
    from inductoscope.model.entities import InductorGraph, Kernel
    from support.examples import stored

    recording = load(stored("relu_add_sum"))
    kernels = tuple(
        Kernel(name, language, "", (), (), (), (written,))
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
