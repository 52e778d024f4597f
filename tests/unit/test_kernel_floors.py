"""Kernels timed and held against the machine's limits: the parts that need no torch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inductoscope.inside.profiling.kernel_clock import KernelClock, TimedGraph
from inductoscope.inside.profiling.kernel_traces import (
    SiteRange,
    TraceEvent,
    device_times,
    times_of_sites,
)
from inductoscope.model.entities import Ending
from inductoscope.model.fold import load
from inductoscope.model.fx import FxGraph, FxNode
from inductoscope.model.join import GraphJoin
from inductoscope.profiling.kernel_profile import (
    EagerTimes,
    KernelProfile,
    Profile,
    ProfiledRun,
    build_profile,
    regions_of,
)
from inductoscope.profiling.kernel_work import GraphWork, operand_bytes
from inductoscope.profiling.machine import (
    FUNCTIONS,
    MATRIX,
    MEMORY,
    Bandwidths,
    MachineLimits,
    floor_of,
    memory_seconds,
)
from inductoscope.profiling.statistics import Sample
from inductoscope.profiling.timings import (
    FUNCTION,
    MOST_SIZES,
    WHOLE,
    CallTimes,
    GraphTimes,
    KernelTimes,
    ProcessTimes,
    SiteTimes,
    read_kernel_times,
    write_kernel_times,
)
from inductoscope.torch_facts import python_wrappers
from inductoscope.torch_facts.python_wrappers import exchange, timed_wrapper
from inductoscope.views.report.profile import headline, profile_view
from inductoscope.views.report.times import seconds_text
from support.examples import stored
from support.json_schema import violations

WRAPPER = """\
class Runner:
    def call(self, args):
        arg0_1, arg1_1 = args
        s77 = arg0_1
        buf0 = empty_strided_cpu((s77,), (1,), 'float32')
        cpp_fused_add_0(arg1_1, buf0, s77)
        with torch_guard:
            buf1 = extern_kernels.mm(buf0, buf0)
        return (buf1, )

runner = Runner()
call = runner.call
"""

GB = 1e9
MACHINE = MachineLimits(
    "cpu",
    "a test",
    2,
    "2.13",
    (
        Bandwidths(1 << 15, 80 * GB, 100 * GB, 50 * GB),
        Bandwidths(1 << 20, 90 * GB, 60 * GB, 50 * GB),
        Bandwidths(1 << 28, 20 * GB, 10 * GB, 40 * GB),
    ),
    {"float32": 100 * GB, "bfloat16": 1 * GB},
    {"exp": 1 * GB},
)


# --- the wrapper ----------------------------------------------------------------------------------


class Clock:
    """A clock that kernels of a test move."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


class Guard:
    def __enter__(self) -> None: ...

    def __exit__(self, *details: object) -> None: ...


def loaded(text: str, clock: Clock, graph_path: str = "wrapper.py") -> tuple[Any, TimedGraph]:
    """A wrapper as torch loads it, with its kernels timed; they take 10 and 100 nanoseconds."""
    import types

    module: Any = types.ModuleType("wrapper")

    def work(nanoseconds: int) -> str:
        clock.now += nanoseconds
        return "result"

    module.__dict__.update(
        empty_strided_cpu=lambda *layout: work(1),
        cpp_fused_add_0=lambda *arguments: work(10),
        extern_kernels=types.SimpleNamespace(mm=lambda *arguments: work(100)),
        torch_guard=Guard(),
    )
    exec(compile(text, graph_path, "exec"), module.__dict__)
    wrapper = timed_wrapper(graph_path, text)
    assert wrapper is not None
    graph = TimedGraph(graph_path, wrapper, clock)
    names = {python_wrappers.CLOCK: clock, python_wrappers.ENDED: graph.ended}
    exchange(module, wrapper.code, names)
    return module, graph


def test_a_rewritten_wrapper_returns_the_same_and_times_every_kernel() -> None:
    module, graph = loaded(WRAPPER, Clock())
    call = module.call  # Whoever holds the function already calls the rewritten one.
    assert [call([4, "x"]) for _ in range(3)] == [("result",)] * 3
    (times,) = graph.as_data()
    assert [(s.line, s.kernel, s.count, s.sample) for s in times.sites] == [
        (6, "cpp_fused_add_0", 2, (10, 10)),
        (8, "extern_kernels.mm", 2, (100, 100)),
    ]
    assert (times.calls, times.sample, times.between, times.first) == (3, (111, 111), (1, 1), 111)


def test_times_of_different_sizes_are_kept_apart_up_to_a_limit() -> None:
    module, graph = loaded(WRAPPER, Clock())
    for size in (*range(MOST_SIZES + 3), 0, 1, 0):
        module.call([size, "x"])
    found = graph.as_data()
    assert len(found) == MOST_SIZES
    assert [times.calls for times in found[:3]] == [3, 2, 1]
    assert found[0].other_sizes == 3
    # The only call there was is given, and said to be no more than that.
    assert [(site.count, len(site.sample)) for site in found[2].sites] == [(0, 1), (0, 1)]


def test_a_wrapper_in_cpp_is_timed_as_a_whole(tmp_path: Path) -> None:
    import types

    path = tmp_path / "wrapper.py"
    path.write_text("inductor_entry = CppWrapperCodeCache.load('int main() {}')\n")
    clock = Clock()
    module: Any = types.ModuleType("wrapper")
    module.call = lambda args: setattr(clock, "now", clock.now + 7)
    kernels = KernelClock(clock)
    kernels.note_module(module, str(path))
    for _ in range(3):
        module.call([])
    (times,) = kernels.as_data()
    assert (times.how, times.sites, times.sample) == (WHOLE, (), (7, 7))


def test_kernel_times_are_read_back(tmp_path: Path) -> None:
    times = KernelTimes(3, (GraphTimes("a.py", {"s0": 4}, sites=(SiteTimes(1, "k", 1, 9, (9,)),)),))
    write_kernel_times(times, tmp_path)
    (tmp_path / "4.kernels.json").write_text("[]")
    assert read_kernel_times(tmp_path) == (times,)


# --- floors ---------------------------------------------------------------------------------------


def test_a_copy_is_held_against_a_copy_and_a_sum_against_reading() -> None:
    large = 1 << 28
    assert memory_seconds(MACHINE, large // 2, large // 2) == pytest.approx(large / (10 * GB))
    assert memory_seconds(MACHINE, large, 4) == pytest.approx(large / (20 * GB), rel=1e-3)
    assert memory_seconds(MACHINE, 0, large) == pytest.approx(large / (40 * GB))


def test_a_cache_is_never_slower_than_what_is_behind_it() -> None:
    nearest = MACHINE.bandwidth_at(100)
    assert nearest is not None
    assert nearest.read == 90 * GB  # Measured as 80: the cost of a call showed.
    between = MACHINE.bandwidth_at(1 << 24)
    assert between is not None
    assert 10 * GB < between.copy < 60 * GB


def test_the_floor_names_what_takes_longest() -> None:
    few = (1000, 1000)
    assert floor_of(MACHINE, (1 << 27, 1 << 27), {}, 1000, {}).limit == MEMORY  # type: ignore[union-attr]
    product = floor_of(MACHINE, few, {"float32": 10**9}, 0, {})
    assert product is not None
    assert (product.limit, product.seconds) == (MATRIX, pytest.approx(0.01))
    # Shorter numbers could be multiplied as float32, so that is the limit.
    assert floor_of(MACHINE, few, {"bfloat16": 10**9}, 0, {}) == product
    slow = floor_of(MACHINE, few, {}, 10**6, {"exp": 10**6})
    assert slow is not None
    assert (slow.limit, slow.seconds) == (FUNCTIONS, pytest.approx(1e-3))
    assert floor_of(MACHINE, None, {}, 0, {}) is None


def test_a_kernel_reads_every_input_and_writes_every_output_once() -> None:
    recording = load(stored("relu_add_sum"))
    (compile_,) = recording.compiles
    (graph,) = compile_.inductor
    works = [
        GraphWork(GraphJoin(recording, compile_, graph)).of(kernel) for kernel in graph.kernels
    ]
    # float32[10, 100] in, float32[10] out; relu, add and a sum of each element.
    assert [(work.read, work.written, work.operations) for work in works] == [(4000, 40, 3000)]


def test_a_product_of_parts_reads_those_parts_and_not_the_whole_buffers() -> None:
    def node(name: str, args: str, *shape: int) -> FxNode:
        value = {"shape": list(shape), "dtype": "torch.float32"}
        return FxNode(name, "call_function", "aten.mm.default", args, "", value, "", (), ())

    left, right = node("left", "(a,)", 200, 300), node("right", "(a,)", 300, 100)
    product, square = node("mm", "(left, right)", 200, 100), node("mm_1", "(right, right)")
    graph = FxGraph((left, right, product, square), "")
    assert operand_bytes(graph, product, int) == 4 * (200 * 300 + 300 * 100)
    assert operand_bytes(graph, square, int) == 4 * 300 * 100


def test_products_of_a_recorded_step_read_their_operands() -> None:
    recording = load(stored("training_step"))
    works = [
        GraphWork(GraphJoin(recording, compile_, graph)).of(kernel)
        for compile_ in recording.compiles
        for graph in compile_.inductor
        for kernel in graph.kernels
        if kernel.language == "extern"
    ]
    assert works
    assert all(work.read and work.written and work.matrix for work in works)


# --- what is said ---------------------------------------------------------------------------------


def profile_with(*sites: SiteTimes, functions: tuple[CallTimes, ...] = ()) -> Any:
    recording = load(stored("relu_add_sum"))
    (graph,) = recording.compiles[0].inductor
    times = GraphTimes(graph.wrapper_path, calls=4, sample=(9000, 9000, 9000), sites=sites)
    calls = (ProcessTimes(1, functions),)
    return build_profile(recording, calls, (KernelTimes(1, (times,)),), lambda device: MACHINE)


def site(name: str, *sample: int) -> SiteTimes:
    return SiteTimes(0, name, len(sample), sum(sample), sample)


def kernel_name() -> str:
    recording = load(stored("relu_add_sum"))
    return recording.compiles[0].inductor[0].kernels[0].name


def test_a_kernel_is_joined_with_its_operations_lines_and_floor() -> None:
    profile = profile_with(site(kernel_name(), 5000, 5000, 5000))
    (row,) = profile.kernels
    assert "relu" in row.operations
    assert row.places
    assert row.places[0].rpartition("/")[2].startswith("script.py:")
    assert row.floor is not None
    assert 0 < row.share < 1
    assert row.lost == pytest.approx(3 * (5e-6 - row.floor.seconds))


def test_the_json_is_as_the_schema_says() -> None:
    calls = CallTimes("f", "function", "a.py:1", 3, 27000, (9000,) * 3, (10**9,), (20000,), 1)
    profile = profile_with(site(kernel_name(), 10, 10, 10), site("unknown", 7), functions=(calls,))
    view = profile_view(ProfiledRun(profile), "folder", Ending(0, None, 1.0))
    assert violations("profile", json.loads(json.dumps({"schema": 1, **view}))) == []
    beaten = next(row for row in view["kernels"] if row["kernel"] == kernel_name())
    assert beaten["share_of_limit"] > 1
    assert "may stay in a nearer cache" in beaten["why_above_limit"]
    assert any("clock went backwards" in note for note in view["notes"])


def test_what_cannot_be_said_is_said() -> None:
    nothing = build_profile(load(stored("relu_add_sum")), (), (), lambda device: None)
    assert "no compiled call" in headline(nothing)
    called = (CallTimes("f", FUNCTION, count=9, sample=(1000,) * 9),)
    assert "ran in eager" in headline(Profile(called, (), (), has_graphs=False))
    cold = profile_with(SiteTimes(0, kernel_name(), sample=(5000,)))
    assert "cold" in headline(cold)
    noisy = profile_with(site(kernel_name(), 1000, 9000, 2000, 30000))
    assert "too noisy" in headline(noisy)


def test_ranks_are_told_apart_and_are_no_recompiles() -> None:
    recording = load(stored("relu_add_sum"))
    (graph,) = recording.compiles[0].inductor
    times = GraphTimes(graph.wrapper_path, calls=4, sample=(9000,) * 3, sites=(site("k", 5, 5),))
    calls = CallTimes("f", "function", "a.py:1", 3, 27000, (9000,) * 3, (10**9,), (20000,))
    profile = build_profile(
        recording,
        [ProcessTimes(pid, (calls,)) for pid in (1, 2)],
        [KernelTimes(pid, (times,)) for pid in (1, 2)],
        lambda device: MACHINE,
    )
    notes = profile_view(ProfiledRun(profile), "folder", Ending(0, None, 1.0))["notes"]
    assert any(note.startswith("2 processes made compiled calls") for note in notes)
    assert not any("calls compiled something" in note for note in notes)


def test_times_are_short() -> None:
    assert [seconds_text(s) for s in (2.5, 0.0123, 4.5e-5, 3e-8)] == [
        "2.5 s",
        "12.3 ms",
        "45 µs",
        "30 ns",
    ]


# --- a GPU, as its traces show it -----------------------------------------------------------------


def test_what_ran_on_the_device_is_found_by_what_launched_it() -> None:
    where, other = SiteRange(0, 3, 0), SiteRange(0, 3, 1)
    found = device_times(
        [
            TraceEvent(where.name, 100, 50, 0, on_device=False),
            TraceEvent("cuLaunchKernelEx", 120, 5, 7, on_device=False),
            TraceEvent(other.name, 200, 50, 0, on_device=False),
            TraceEvent("cudaLaunchKernel", 210, 5, 8, on_device=False),
            TraceEvent("cudaLaunchKernel", 220, 5, 9, on_device=False),
            TraceEvent("triton_poi_fused_0", 1000, 40, 7, on_device=True),
            TraceEvent("gemm", 1100, 300, 8, on_device=True),
            TraceEvent("splitK_reduce", 1400, 20, 9, on_device=True),
            TraceEvent(where.name, 1000, 40, 7, on_device=True),
            TraceEvent("elsewhere", 5000, 1, 99, on_device=True),
        ]
    )
    assert found.busy == {where: 40, other: 320}
    assert found.others == {"elsewhere": [1]}
    sites, spans, gaps = times_of_sites(found, 0, [3], ["triton_poi_fused_0", "extern_kernels.mm"])
    assert (sites, spans, gaps) == ({0: [40], 1: [320]}, [420], [60])


def test_what_a_cuda_graph_replays_is_known_by_name() -> None:
    found = device_times([TraceEvent("triton_poi_fused_0", 10, 4, 1, on_device=True)] * 2)
    names = ["triton_poi_fused_0", "extern_kernels.mm"]
    assert times_of_sites(found, 0, [], names) == ({0: [4, 4]}, [], [])


def test_a_wrapper_for_a_gpu_says_when_it_launches() -> None:
    recording = load(stored("h200_seed"))
    texts = [recording.payload(graph.wrapper) for graph in recording.graphs if graph.wrapper]
    wrappers = [timed_wrapper("wrapper.py", text) for text in texts]
    assert wrappers
    for wrapper in wrappers:
        assert wrapper is not None
        assert wrapper.on_gpu
        assert all(s.kernel.startswith(("triton_", "extern_kernels.")) for s in wrapper.sites)
        assert not any("get_raw_stream" in site.kernel for site in wrapper.sites)


# --- eager ----------------------------------------------------------------------------------------


def row_of(kernel: str, nanoseconds: int, *captured: str) -> KernelProfile:
    sample = Sample((nanoseconds / 1e9,) * 5)
    return KernelProfile(
        "0/0 inference", "f", kernel, "C++", 1, "cpu", {}, "clock", 5, sample,
        captured=captured, compile="0/0", phase="inference",
    )  # fmt: skip


def test_kernels_and_operations_of_the_same_work_are_compared_with_eager() -> None:
    rows = [
        row_of("k0", 100, "relu", "softmax"),
        row_of("k1", 50, "softmax"),
        row_of("k2", 9, "mm"),
    ]
    operations = {name: Sample((s / 1e9,) * 5) for name, s in zip(
        ("relu", "softmax", "mm"), (20, 60, 30), strict=True
    )}  # fmt: skip
    eager = EagerTimes("0/0", Sample((1e-7,)), Sample(()), operations)
    slower, faster = regions_of(rows, [eager])
    assert (slower.kernels, slower.operations) == (("k0", "k1"), ("relu", "softmax"))
    assert (slower.compiled, slower.eager) == (pytest.approx(150e-9), pytest.approx(80e-9))
    assert slower.is_slower
    assert not faster.is_slower
    # An operation that eager could not time says nothing of its region.
    assert regions_of([row_of("k3", 5, "custom")], [eager]) == ()


def test_noise_accuses_no_kernel_of_being_slower_than_eager() -> None:
    noisy = replace(row_of("k", 0, "mm"), seconds=Sample((50e-9, 300e-9, 90e-9, 200e-9)))
    eager = EagerTimes("0/0", Sample(()), Sample(()), {"mm": Sample((40e-9,) * 5)})
    (region,) = regions_of([noisy], [eager])
    assert region.compiled > 2 * region.eager
    assert not region.is_slower


def test_quartiles_that_overlap_accuse_no_kernel() -> None:
    """Medians 1.12 times apart, but a quarter of the compiled calls is as fast as eager."""
    wide = replace(row_of("k", 0, "mm"), seconds=Sample((99e-9, 100e-9, 112e-9, 113e-9, 114e-9)))
    eager = EagerTimes("0/0", Sample(()), Sample(()), {"mm": Sample((98e-9, 100e-9, 101e-9) * 2)})
    (region,) = regions_of([wide], [eager])
    assert region.compiled > 1.1 * region.eager
    assert not region.is_slower
    (narrow,) = regions_of([row_of("k", 112, "mm")], [eager])
    assert narrow.is_slower
    # Three calls are too few to have quartiles.
    few = replace(row_of("k", 0, "mm"), seconds=Sample((300e-9,) * 3))
    assert not regions_of([few], [eager])[0].is_slower
