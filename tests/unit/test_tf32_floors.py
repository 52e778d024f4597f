"""Products of float32 on a GPU: the floor for the precision that the program allows, and TF32."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
import torch

from inductoscope.inside.profiling.profiler_clock import ProfilerClock
from inductoscope.model.entities import Ending, Recording
from inductoscope.model.fold import load
from inductoscope.model.wrapper_lines import kernels_by_line
from inductoscope.profiling.evidence import RecordedEvidence
from inductoscope.profiling.flips import Flip, products_in_tf32
from inductoscope.profiling.kernel_profile import Profile, ProfiledRun, build_profile
from inductoscope.profiling.machine import MATRIX, Bandwidths, MachineLimits
from inductoscope.profiling.timings import (
    CONVOLUTIONS,
    PRODUCTS,
    GraphTimes,
    KernelTimes,
    SiteTimes,
)
from inductoscope.views.report.profile import print_profile, profile_view
from inductoscope.views.report.terminal import Printer
from support.examples import stored

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
    took = (round(seconds * 1e9),) * 10
    site = SiteTimes(*place, 10, sum(took), took)
    times = GraphTimes(path, device="cuda", calls=10, sample=took, sites=(site,), in_tf32=in_tf32)
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
    whole = sum(graph.seconds.median * graph.calls for graph in profile.graphs)
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
        assert PRODUCTS in ProfilerClock().allowed_in_tf32()
        torch.set_float32_matmul_precision("highest")
        assert PRODUCTS not in ProfilerClock().allowed_in_tf32()
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_floor_in_tf32_is_shown_as_such() -> None:
    page = io.StringIO()
    run = ProfiledRun(timed(PRODUCTS))
    print_profile(Printer(page), profile_view(run, "folder", Ending(0, None, 1.0)))
    assert "10%, matrix units in TF32" in page.getvalue()
    assert "float32 products 1 GFLOP/s, in TF32 8 GFLOP/s" in " ".join(page.getvalue().split())
