"""Rules about CUDA graphs, guards, reductions and autotuning, each with one that is healthy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.analysis.rules import SLOWNESS, diagnose
from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.fold import load
from support.examples import write_recording

ABOUT: dict[str, Any] = {"compile": "0/0", "graph": "0/0 inference"}
NODES = f"{1:032x}"


def found_in(
    folder: Path, *events: dict[str, Any], payloads: dict[str, Any] | None = None
) -> list[Finding]:
    """Causes of a slow compiled function, by these events."""
    path = write_recording(
        folder,
        {"kind": "compile-start", "compile": "0/0", "function": "f", "file": "/model.py"},
        {"kind": "inductor-start", "phase": "inference", **ABOUT},
        *events,
        payloads=payloads or {},
    )
    return [finding for finding in diagnose(load(path)) if finding.rule in SLOWNESS]


# --- CUDA graphs ----------------------------------------------------------------------------------

SKIPPED = """skipping cudagraphs due to cpu device (arg1_1). Found from :
   File "/model.py", line 7, in f
    return x + scale
"""


def test_why_torch_does_without_cuda_graphs(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    skipped = {"kind": "cudagraphs-skipped", "reason": SKIPPED, **ABOUT}
    (finding,) = found_in(tmp_path / "r", skipped, skipped)
    assert finding.title == snapshot
    assert finding.source == "/model.py:7"
    assert "on the GPU" in finding.advice


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("skipping cudagraphs due to mutated inputs (1 instances)", "clone the input"),
        ("skipping cudagraphs due to multiple devices: cuda:0, cuda:1", "on one GPU"),
        ("something that torch says from 2.16 on", "on its own"),
    ],
)
def test_each_reason_has_a_remedy(tmp_path: Path, reason: str, advice: str) -> None:
    (finding,) = found_in(tmp_path / "r", {"kind": "cudagraphs-skipped", "reason": reason, **ABOUT})
    assert advice in finding.advice


# --- guards ---------------------------------------------------------------------------------------


def guards(microseconds: float | None) -> dict[str, Any]:
    """Guards that were built, and how long they take."""
    costly = [["L['self']", 180.0], ["L['x']", 20.0]] if microseconds else []
    return {"kind": "guards", "compile": "0/0", "count": 748, "payload": NODES,
            "microseconds": microseconds, "costly": costly}  # fmt: skip


def test_guards_that_take_long(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    (finding,) = found_in(tmp_path / "r", guards(201.4))
    assert finding.title == snapshot
    assert finding.evidence == snapshot


@pytest.mark.parametrize("microseconds", [None, 3.0, 99.0])
def test_many_guards_that_are_fast_are_no_finding(
    tmp_path: Path, microseconds: float | None
) -> None:
    assert found_in(tmp_path / "r", guards(microseconds)) == []


# --- reductions -----------------------------------------------------------------------------------


def reduction(name: str, reads: str, size: int, device: str = "cuda:0") -> dict[str, Any]:
    """A kernel that reduces one buffer."""
    return {"name": name, "kind": "SchedulerNode", "loops": "Reduction", "device": device,
            "reads": [reads], "writes": [f"buf{name[2:]}"], "origins": ["sum_1"],
            "bytes": {reads: size}}  # fmt: skip


def scheduled() -> dict[str, Any]:
    """The nodes of a graph after fusion."""
    return {"kind": "scheduler", "when": "after", "payload": NODES, **ABOUT}


@pytest.mark.parametrize(
    ("size", "device", "is_found"),
    [(400_000, "cuda:0", True), (64 << 20, "cuda:0", False), (400_000, "cpu", False)],
)
def test_a_small_reduction_in_two_kernels(
    tmp_path: Path, size: int, device: str, is_found: bool
) -> None:
    nodes = [reduction("op0", "arg0_1", size, device), reduction("op1", "buf0", 512, device)]
    found = found_in(tmp_path / "r", scheduled(), payloads={NODES: nodes})
    titles = [f"A reduction of {size:,} bytes is computed in two kernels"] if is_found else []
    assert [finding.title for finding in found] == titles


def test_two_reductions_of_their_own_are_not_one_that_was_split(tmp_path: Path) -> None:
    nodes = [reduction("op0", "arg0_1", 4000), {**reduction("op1", "buf0", 512), "origins": ["b"]}]
    assert found_in(tmp_path / "r", scheduled(), payloads={NODES: nodes}) == []


@pytest.mark.parametrize(
    ("results", "reduced", "titles"),
    [
        (
            [],
            "67108864",
            ["A reduction of 67,108,864 elements is computed by one block of the GPU"],
        ),
        (
            ["8"],
            "2097152",
            ["A reduction of 2,097,152 elements is computed by 8 blocks of the GPU"],
        ),
        (["512"], "2097152", []),
        ([], "1024", []),
        ([], "s0", []),
    ],
    ids=["one result", "few results", "many results", "small", "not known"],
)
def test_a_large_reduction_that_is_not_split(
    tmp_path: Path, results: list[str], reduced: str, titles: list[str]
) -> None:
    node = {**reduction("op0", "arg0_1", 4 << 20), "sizes": [results, [reduced]]}
    found = found_in(tmp_path / "r", scheduled(), payloads={NODES: [node]})
    assert [finding.title for finding in found] == titles


# --- autotuning -----------------------------------------------------------------------------------


def tuned(seconds: float, **milliseconds: float) -> list[dict[str, Any]]:
    """One search that took so long, with the time of each choice."""
    winner = min(milliseconds, key=lambda name: milliseconds[name])
    choices = [{"name": name, "class": "", "description": ""} for name in milliseconds]
    return [
        {"kind": "autotune", "operation": "mm", "choices": choices, **ABOUT},
        {"kind": "autotune-timed", "operation": "mm", "milliseconds": milliseconds,
         "winner": winner, **ABOUT},
        {"kind": "autotune-chosen", "operation": "mm", "choice": winner, **ABOUT},
        {"kind": "stage", "stage": "autotune", "detail": "mm", "seconds": seconds, **ABOUT},
    ]  # fmt: skip


def test_tuning_that_gained_little(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    (finding,) = found_in(tmp_path / "r", *tuned(42.0, mm=1.02, triton_mm_3=1.0))
    assert finding.title == snapshot


@pytest.mark.parametrize(
    ("seconds", "milliseconds"),
    [
        (42.0, {"mm": 2.0, "triton_mm_3": 1.0}),  # Twice as fast: worth it.
        (0.5, {"mm": 1.0, "triton_mm_3": 1.01}),  # It cost next to nothing.
        (42.0, {"triton_mm_3": 1.0, "triton_mm_4": 1.3}),  # No library to compare with.
    ],
)
def test_tuning_that_was_worth_it(
    tmp_path: Path, seconds: float, milliseconds: dict[str, float]
) -> None:
    assert found_in(tmp_path / "r", *tuned(seconds, **milliseconds)) == []
