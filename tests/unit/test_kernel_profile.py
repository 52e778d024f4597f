"""Kernels timed, and held against the machine's limits."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

from inductoscope.inside.profiling.kernel_clock import KernelClock
from inductoscope.inside.profiling.kernel_tracer import allowed_in_tf32
from inductoscope.model.entities import Ending, Recording
from inductoscope.model.fold import load
from inductoscope.model.fx import FxGraph, FxNode
from inductoscope.model.join import GraphJoin
from inductoscope.model.wrapper_lines import kernels_by_line
from inductoscope.profiling.evidence import RecordedEvidence
from inductoscope.profiling.flips import Flip, products_in_tf32
from inductoscope.profiling.kernel_profile import (
    EagerTimes,
    GraphProfile,
    KernelProfile,
    Profile,
    build_profile,
    regions_of,
)
from inductoscope.profiling.kernel_work import GraphWork, KernelWork, floor_of, operand_bytes
from inductoscope.profiling.machine import (
    FUNCTIONS,
    MATRIX,
    MEMORY,
    Bandwidths,
    MachineLimits,
    memory_seconds,
)
from inductoscope.profiling.statistics import Sample
from inductoscope.profiling.timings import (
    CONVOLUTIONS,
    FUNCTION,
    MOST_SIZES,
    PRODUCTS,
    WHOLE,
    CallTimes,
    GraphTimes,
    KernelTimes,
    ProcessTimes,
    Site,
    TimedCall,
    read_measured,
    write_measured,
)
from inductoscope.torch_facts.python_wrappers import timed_wrapper
from inductoscope.views.report.profile import headline, print_profile, profile_view
from inductoscope.views.report.terminal import Printer
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


def loaded(folder: Path, clock: Clock) -> tuple[Any, KernelClock]:
    """A wrapper as torch loads it, with its kernels timed; they take 10 and 100 nanoseconds."""
    import types

    module: Any = types.ModuleType("wrapper")
    path = folder / "wrapper.py"
    path.write_text(WRAPPER)

    def work(nanoseconds: int) -> str:
        clock.now += nanoseconds
        return "result"

    module.__dict__.update(
        empty_strided_cpu=lambda *layout: work(1),
        cpp_fused_add_0=lambda *arguments: work(10),
        extern_kernels=types.SimpleNamespace(mm=lambda *arguments: work(100)),
        torch_guard=Guard(),
    )
    exec(compile(WRAPPER, str(path), "exec"), module.__dict__)
    kernels = KernelClock(clock)
    kernels.note_module(module, str(path))
    return module, kernels


def test_a_rewritten_wrapper_returns_the_same_and_times_every_kernel(tmp_path: Path) -> None:
    module, kernels = loaded(tmp_path, Clock())
    call = module.call  # Whoever holds the function already calls the rewritten one.
    assert [call([4, "x"]) for _ in range(3)] == [("result",)] * 3
    (times,) = kernels.as_data()
    assert times.sites == (Site("cpp_fused_add_0", 6), Site("extern_kernels.mm", 8))
    one = TimedCall(111, ((0, 1, 10), (1, 11, 100)))
    assert (times.sizes, times.first, times.count, times.kept) == ({"s77": 4}, one, 2, (one, one))
    assert times.between.values == (1e-9, 1e-9)
    assert [sample.count for sample in times.seconds_of_sites] == [2, 2]


def test_times_of_different_sizes_are_kept_apart_up_to_a_limit(tmp_path: Path) -> None:
    module, kernels = loaded(tmp_path, Clock())
    for size in (*range(MOST_SIZES + 3), 0, 1, 0):
        module.call([size, "x"])
    found = kernels.as_data()
    assert len(found) == MOST_SIZES
    assert [times.count for times in found[:3]] == [2, 1, 0]
    assert found[0].other_sizes == 3
    # The only call there was is given, and said to be no more than that.
    assert [sample.count for sample in found[2].seconds_of_sites] == [1, 1]


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
    assert (times.how, times.sites, times.kept) == (WHOLE, (), (TimedCall(7), TimedCall(7)))


def test_kernel_times_are_read_back(tmp_path: Path) -> None:
    times = KernelTimes(3, (GraphTimes("a.py", {"s0": 4}, first=TimedCall(9, ((0, 1, 2),))),))
    write_measured(times, tmp_path)
    (tmp_path / "4.KernelTimes.json").write_text("[]")
    assert read_measured(KernelTimes, tmp_path) == (times,)


@pytest.mark.parametrize(("durations", "usual"), [((9, 5, 7), 7), ((9, 5), 5), ((8, 5, 9, 6), 6)])
def test_the_usual_call_is_one_of_median_duration(durations: tuple[int, ...], usual: int) -> None:
    """It was the third of four, and the slower of two."""
    kept = tuple(TimedCall(duration, ((0, 0, 1),)) for duration in durations)
    call = GraphTimes("a.py", sites=(Site("k"),), count=len(kept), kept=kept).usual
    assert call is not None
    assert call.duration == usual


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
    few = KernelWork(1000, 1000)
    much = floor_of(KernelWork(1 << 27, 1 << 27, operations=1000), MACHINE)
    assert much is not None
    assert much.limit == MEMORY
    product = floor_of(replace(few, matrix={"float32": 10**9}), MACHINE)
    assert product is not None
    assert (product.limit, product.seconds) == (MATRIX, pytest.approx(0.01))
    # Shorter numbers could be multiplied as float32, so that is the limit.
    assert floor_of(replace(few, matrix={"bfloat16": 10**9}), MACHINE) == product
    slow = floor_of(replace(few, operations=10**6, functions={"exp": 10**6}), MACHINE)
    assert slow is not None
    assert (slow.limit, slow.seconds) == (FUNCTIONS, pytest.approx(1e-3))
    assert floor_of(KernelWork(), MACHINE) is None


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


def graph_times(path: str, *kernels: tuple[str, tuple[int, ...]], **more: Any) -> GraphTimes:
    """A graph whose calls take 9 µs, with the times of its kernels in each call."""
    calls = zip(*(times for _, times in kernels), strict=True)
    kept = tuple(TimedCall(9000, tuple((n, 0, t) for n, t in enumerate(call))) for call in calls)
    sites = tuple(Site(name) for name, _ in kernels)
    return GraphTimes(path, sites=sites, count=len(kept), kept=kept, **more)


def profile_with(
    *kernels: tuple[str, tuple[int, ...]], functions: tuple[CallTimes, ...] = (), **more: Any
) -> Any:
    recording = load(stored("relu_add_sum"))
    (graph,) = recording.compiles[0].inductor
    times = graph_times(graph.wrapper_path, *kernels, **more)
    calls = (ProcessTimes(1, functions),)
    return build_profile(recording, calls, (KernelTimes(1, (times,)),), lambda device: MACHINE)


def kernel_name() -> str:
    recording = load(stored("relu_add_sum"))
    return recording.compiles[0].inductor[0].kernels[0].name


def test_a_kernel_is_joined_with_its_operations_lines_and_floor() -> None:
    profile = profile_with((kernel_name(), (5000,) * 3))
    (row,) = profile.kernels
    assert "relu" in row.operations
    assert row.places
    assert row.places[0].rpartition("/")[2].startswith("script.py:")
    assert row.floor is not None
    assert 0 < row.share < 1
    assert row.lost == pytest.approx(3 * (5e-6 - row.floor.seconds))


def test_the_json_is_as_the_schema_says() -> None:
    calls = CallTimes("f", "function", "a.py:1", 3, 27000, (9000,) * 3, (10**9,), (20000,), 1)
    profile = profile_with((kernel_name(), (10,) * 3), ("unknown", (7,) * 3), functions=(calls,))
    view = profile_view(profile, "folder", Ending(0, None, 1.0))
    assert violations("profile", json.loads(json.dumps({"schema": 1, **view}))) == []
    beaten = next(row for row in view["kernels"] if row["kernel"] == kernel_name())
    assert beaten["share_of_limit"] > 1
    assert "may stay in a nearer cache" in beaten["why_above_limit"]


def test_what_cannot_be_said_is_said() -> None:
    nothing = build_profile(load(stored("relu_add_sum")), (), (), lambda device: None)
    assert "no compiled call" in headline(nothing)
    called = (CallTimes("f", FUNCTION, count=9, sample=(1000,) * 9),)
    assert "ran in eager" in headline(Profile(called, (), (), has_graphs=False))
    cold = profile_with((kernel_name(), ()), first=TimedCall(9000, ((0, 0, 5000),)))
    assert "cold" in headline(cold)
    noisy = profile_with((kernel_name(), (1000, 9000, 2000, 30000)))
    assert "too noisy" in headline(noisy)


def test_ranks_are_told_apart_and_are_no_recompiles() -> None:
    recording = load(stored("relu_add_sum"))
    (graph,) = recording.compiles[0].inductor
    times = graph_times(graph.wrapper_path, ("k", (5, 5)))
    calls = CallTimes("f", "function", "a.py:1", 3, 27000, (9000,) * 3, (10**9,), (20000,))
    profile = build_profile(
        recording,
        [ProcessTimes(pid, (calls,)) for pid in (1, 2)],
        [KernelTimes(pid, (times,)) for pid in (1, 2)],
        lambda device: MACHINE,
    )
    notes = profile_view(profile, "folder", Ending(0, None, 1.0))["notes"]
    assert any(note.startswith("2 processes made compiled calls") for note in notes)
    assert not any("calls compiled something" in note for note in notes)


def test_times_are_short() -> None:
    assert [seconds_text(s) for s in (2.5, 0.0123, 4.5e-5, 3e-8)] == [
        "2.5 s",
        "12.3 ms",
        "45 µs",
        "30 ns",
    ]


def test_a_wrapper_for_a_gpu_says_when_it_launches() -> None:
    recording = load(stored("h200_seed"))
    texts = [recording.payload(graph.wrapper) for graph in recording.graphs if graph.wrapper]
    wrappers = [timed_wrapper("wrapper.py", text) for text in texts]
    assert wrappers
    for wrapper in wrappers:
        assert wrapper is not None
        assert wrapper.on_gpu
        assert all(s.kernel.startswith(("triton_", "extern_kernels.")) for s in wrapper.lines)


# --- eager ----------------------------------------------------------------------------------------


def row_of(kernel: str, nanoseconds: int, *captured: str) -> KernelProfile:
    graph = GraphProfile(GraphTimes("w.py"), "0/0 inference", "f", compile="0/0")
    return KernelProfile(graph, kernel, 1, 5, Sample((nanoseconds / 1e9,) * 5), captured=captured)


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
    assert slower.slower_than_eager
    assert not faster.slower_than_eager
    # An operation that eager could not time says nothing of its region.
    assert regions_of([row_of("k3", 5, "custom")], [eager]) == []
    # Neither does a kernel that computes something unknown.
    assert regions_of([row_of("k4", 900)], [eager]) == []


def test_what_is_slower_in_one_process_is_not_said_to_be_so_in_all(
    snapshot: SnapshotAssertion,
) -> None:
    name = kernel_name()
    profile = profile_with((name, (5000,) * 9))
    operations = dict.fromkeys(profile.kernels[0].captured, Sample((1e-6,) * 9))
    times = EagerTimes("0/0", Sample((1e-6,) * 9), Sample(()), operations)
    page = io.StringIO()
    view = profile_view(replace(profile, eager=(times,)), "folder", Ending(0, None, 1.0))
    print_profile(Printer(page), view)
    text = page.getvalue().partition("the same graphs in eager")[2].partition("Limits")[0]
    assert " ".join(text.split()) == snapshot


def test_noise_accuses_no_kernel_of_being_slower_than_eager() -> None:
    noisy = replace(row_of("k", 0, "mm"), seconds=Sample((50e-9, 300e-9, 90e-9, 200e-9)))
    eager = EagerTimes("0/0", Sample(()), Sample(()), {"mm": Sample((40e-9,) * 5)})
    (region,) = regions_of([noisy], [eager])
    assert region.compiled > 2 * region.eager
    assert not region.slower_than_eager


def test_quartiles_that_overlap_accuse_no_kernel() -> None:
    """Medians 1.12 times apart, but a quarter of the compiled calls is as fast as eager."""
    wide = replace(row_of("k", 0, "mm"), seconds=Sample((99e-9, 100e-9, 112e-9, 113e-9, 114e-9)))
    eager = EagerTimes("0/0", Sample(()), Sample(()), {"mm": Sample((98e-9, 100e-9, 101e-9) * 2)})
    (region,) = regions_of([wide], [eager])
    assert region.compiled > 1.1 * region.eager
    assert not region.slower_than_eager
    (narrow,) = regions_of([row_of("k", 112, "mm")], [eager])
    assert narrow.slower_than_eager
    # Three calls are too few to have quartiles.
    few = replace(row_of("k", 0, "mm"), seconds=Sample((300e-9,) * 3))
    assert not regions_of([few], [eager])[0].slower_than_eager


# --- products of float32 on a GPU -----------------------------------------------------------------

GPU = MachineLimits(
    "cuda",
    "a test",
    2,
    "2.13",
    (Bandwidths(1 << 20, 4e12, 4e12, 4e12),),
    {"float32": 1e9, "tf32": 8e9, "bfloat16": 16e9},
)


def timed(*in_tf32: str, machine: MachineLimits = GPU, slower: float = 1.2) -> Profile:
    """A recorded training step, its products a bit slower than the machine in full precision."""
    recording = load(stored("training_step"))
    compile_ = recording.compiles[0]
    (graph,) = [graph for graph in compile_.inductor if graph.phase == "forward"]
    lines = kernels_by_line(recording, graph)
    line = next(line for line, kernel in lines.items() if kernel.language == "extern")
    place = line, lines[line].name
    plain = _profile(recording, graph.wrapper_path, place, 1.0, (), machine)
    (row,) = plain.kernels
    assert row.floor is not None
    return _profile(
        recording, graph.wrapper_path, place, row.floor.seconds * slower, in_tf32, machine
    )


def _profile(
    recording: Recording,
    path: str,
    place: tuple[int, str],
    seconds: float,
    in_tf32: tuple[str, ...],
    machine: MachineLimits,
) -> Profile:
    took = round(seconds * 1e9)
    times = GraphTimes(
        path,
        device="cuda",
        sites=(Site(place[1], place[0]),),
        count=10,
        kept=(TimedCall(took, ((0, 0, took),)),) * 10,
        in_tf32=in_tf32,
    )
    return build_profile(recording, (), (KernelTimes(1, (times,)),), lambda device: machine)


def proposed(profile: Profile) -> list[Flip]:
    return list(products_in_tf32(RecordedEvidence(load(stored("training_step")), profile)))


def test_the_floor_is_that_of_the_precision_the_program_allows() -> None:
    (full,), (less,) = timed().kernels, timed(PRODUCTS).kernels
    assert full.work.matrix.keys() == {"float32"}
    assert less.work.matrix.keys() == {"tf32"}
    assert full.floor is not None
    assert less.floor is not None
    assert full.floor.limit == less.floor.limit == MATRIX
    assert full.floor.seconds == pytest.approx(8 * less.floor.seconds)
    (other,) = timed(CONVOLUTIONS).kernels
    assert other.work.matrix.keys() == {"float32"}, "what holds for convolutions says nothing here"


def test_a_gpu_without_tensor_cores_has_the_same_floor_for_both() -> None:
    old = replace(GPU, matrix={"float32": 1e9})
    (full,), (less,) = timed(machine=old).kernels, timed(PRODUCTS, machine=old).kernels
    assert full.floor is not None
    assert less.floor is not None
    assert full.floor.seconds == less.floor.seconds


def test_tf32_is_proposed_with_what_it_should_save() -> None:
    profile = timed()
    (flip,) = proposed(profile)
    assert flip.change == 'torch.set_float32_matmul_precision("high")'
    assert flip.rule == "tensor_cores_unused"
    assert flip.changes_eager
    (row,) = profile.kernels
    assert row.floor is not None
    saved = row.total - 10 * row.floor.seconds / 8
    whole = sum(graph.times.seconds.median * graph.calls for graph in profile.graphs)
    assert flip.left == pytest.approx(1 - saved / whole, rel=0.01)
    assert flip.source == row.places[0]


def test_tf32_is_not_proposed_where_it_is_on_or_would_not_help() -> None:
    assert not proposed(timed(PRODUCTS))
    assert not proposed(timed(machine=replace(GPU, matrix={"float32": 1e9, "tf32": 1.1e9})))
    assert not proposed(timed(machine=replace(GPU, matrix={"float32": 1e9})))


def test_what_the_program_allows_is_asked_from_torch() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        assert PRODUCTS in allowed_in_tf32()
        torch.set_float32_matmul_precision("highest")
        assert PRODUCTS not in allowed_in_tf32()
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_floor_in_tf32_is_shown_as_such() -> None:
    page = io.StringIO()
    run = timed(PRODUCTS)
    print_profile(Printer(page), profile_view(run, "folder", Ending(0, None, 1.0)))
    assert "10%, matrix units in TF32" in page.getvalue()
    assert "float32 products 1 GFLOP/s, in TF32 8 GFLOP/s" in " ".join(page.getvalue().split())
