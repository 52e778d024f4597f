"""A profile recorded on an H200, beside its figures in docs/profile.md."""

from __future__ import annotations

from pathlib import Path

from bench.gpu_agreement import moved, table, times, within

DOCS = Path(__file__).parents[2] / "docs" / "profile.md"


def test_times_on_a_gpu_agree_with_torchs_profiler() -> None:
    assert len(times()) == within(times(), 0.05) == 7


def test_reads_of_a_floor_are_those_that_the_memory_saw() -> None:
    reads = moved(reads_alone=True)
    assert (len(reads), within(reads, 0.005)) == (10, 9)
    (other,) = [row for row in reads if row.apart > 0.005]
    assert "index" in other.kernel


def test_the_docs_show_the_recorded_figures() -> None:
    text = DOCS.read_text("utf-8")
    assert table(times(), "µs", 1e6) in text
    assert table(moved(), "MB", 1e-6) in text
