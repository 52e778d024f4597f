"""The ranks in logs and recordings: which file or line is of which rank, and what one wrote."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.analysis.ranks.reading import list_logs, place_logs
from inductoscope.analysis.ranks.report import rank_of_label, rank_of_path, ranks_text
from inductoscope.processes.cluster import ClusterWorker
from support.examples import inductoscope, write_recording
from support.json_schema import violations
from support.logged import LogText


def logged(rank: int, *, winner: str = "triton_mm_4", guard: bool = False) -> str:
    """The log of a rank without a trace."""
    log = LogText(process=100 + rank, prefix=f"[rank{rank}]:")
    log.torch(
        "torchdynamo start tracing step /home/me/train.py:12",
        module="torch/_dynamo/symbolic_convert.py",
    )
    log.torch("FX cache hit with key: fabc", module="compile_fx.py")
    if guard:
        log.torch(
            "[__recompiles]     - 0/0: tensor 'x' size mismatch at index 0. expected 4, actual 8",
            module="torch/_dynamo/guards.py",
        )
    log.raw("AUTOTUNE mm(8x8, 8x8)")
    log.raw(f"  {winner} 0.0102 ms 100.0% BLOCK_M=64, num_warps=4")
    return "\n".join(log.lines) + "\n"


def test_text_of_all_ranks_in_one_file_names_the_rank_that_tuned_otherwise(tmp_path: Path) -> None:
    text = "".join(logged(n, winner="triton_mm_9" if n == 3 else "triton_mm_4") for n in range(5))
    (tmp_path / "stderr.log").write_text(text)
    answer = inductoscope("logs", tmp_path / "stderr.log", "--json", "-")
    (odd,) = answer.data["ranks"]["odd"]
    assert (odd["ranks"], odd["kind"], odd["majority"]) == ([3], "autotune", 4)
    assert "triton_mm_9" in odd["here"]
    assert not odd["problem"]


def test_text_in_a_file_of_its_own_for_each_rank_names_the_guard_that_failed(
    tmp_path: Path,
) -> None:
    for rank in range(4):
        (tmp_path / f"rank{rank}.log").write_text(logged(rank, guard=rank == 2))
    answer = inductoscope("logs", tmp_path, "--json", "-")
    (odd,) = [one for one in answer.data["ranks"]["odd"] if one["kind"] == "guard"]
    assert odd["ranks"] == [2]
    assert "size mismatch" in odd["here"]


def test_ranks_in_standard_input_are_not_compared() -> None:
    """It cannot be read once more, and without decisions the report would say nothing true."""
    done = subprocess.run(
        [sys.executable, "-m", "inductoscope", "logs", "-"],
        input=logged(0) + logged(1),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "not compared" not in done.stdout
    assert "ranks:" not in done.stdout


def test_line_numbers_are_no_ranks(tmp_path: Path) -> None:
    for name in ("a.log", "b.log"):
        lines = (logged(0) * 8).replace("[rank0]:", "").splitlines()
        numbered = "".join(f"{number}:{line}\n" for number, line in enumerate(lines, start=1))
        (tmp_path / name).write_text(numbered)
    assert inductoscope("logs", tmp_path, "--json", "-").data["ranks"] is None


def test_a_log_of_one_rank_has_no_ranks_to_compare(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "rank0.log").write_text(logged(0))
    assert inductoscope("logs", tmp_path, "--json", "-").data["ranks"] is None
    refused = inductoscope("logs", tmp_path, "--page", tmp_path / "page.html")
    assert refused.exit_code == 2
    assert refused.stderr == snapshot


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "cut off"])
def test_the_newest_part_of_a_rotated_log_may_be_of_one_rank(
    tmp_path: Path, compressed: bool
) -> None:
    """Such as of the rank that is stuck, and logs on."""
    older = "".join(logged(n, winner="triton_mm_9" if n == 3 else "triton_mm_4") for n in range(5))
    if compressed:
        (tmp_path / "err.log.1.gz").write_bytes(gzip.compress(older.encode())[:-4])
    else:
        (tmp_path / "err.log.1").write_text(older)
    (tmp_path / "err.log").write_text(logged(3).replace("[0/0]", "[1/0]"))
    answer = inductoscope("logs", tmp_path, "--json", "-")
    tuned = [one for one in answer.data["ranks"]["odd"] if one["kind"] == "autotune"]
    assert tuned[0]["ranks"] == [3]
    assert answer.data["ranks"]["not_compared"] == []


def test_a_high_number_in_a_log_is_not_that_many_ranks(tmp_path: Path) -> None:
    (tmp_path / "err.log").write_text(logged(0) + logged(9_999_999))
    found = inductoscope("logs", tmp_path, "--json", "-").data["ranks"]
    assert (found["ranks"], found["missing"]) == ([0, 9_999_999], [])
    assert "rank 9999999 is far above" in found["notes"][0]
    (tmp_path / "err.log").write_text(logged(0) + logged(7))
    assert inductoscope("logs", tmp_path, "--json", "-").data["ranks"]["missing"] == [*range(1, 7)]


def test_with_a_world_the_log_of_one_rank_tells_which_are_missing(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "rank1.log").write_text(logged(1))
    answer = inductoscope("logs", tmp_path, "--world", "4")
    assert answer.stdout == snapshot


def test_a_log_that_grows_while_workers_look_at_it_is_one_log(tmp_path: Path) -> None:
    workers = [ClusterWorker(f"tcp://{n}", "host", 1, {}) for n in range(3)]
    log = tmp_path / "rank0.log"
    log.write_text(logged(0))
    seen = {workers[0].address: list_logs([str(tmp_path)])}
    log.write_text(logged(0) + logged(0))
    seen[workers[1].address] = list_logs([str(tmp_path)])
    (placed,) = place_logs(workers, seen)
    assert placed.workers == (workers[0], workers[1])
    # Another machine's file of this name may have the same number; its first line tells.
    log.write_text(logged(1))
    seen[workers[2].address] = list_logs([str(tmp_path)])
    assert len(place_logs(workers, seen)) == 2


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("dedicated_log_torch_trace_rank_517_ab.log", 517),
        ("/logs/none_x/attempt_0/3/stderr.log", 3),
        ("job/out.12", 12),
        ("job/out.12.gz", 12),
        ("rank-7/stderr.txt", 7),
        ("/home/frank2/train.log", None),
        ("train.log", None),
    ],
)
def test_the_name_of_a_file_tells_its_rank(path: str, rank: int | None) -> None:
    assert rank_of_path(path) == rank


@pytest.mark.parametrize(
    ("label", "rank"),
    [
        ("[rank3]:", 3),
        ("rank 12", 12),
        ("7:", 7),
        ("[default0]:[rank8]:", 8),
        ("node07", None),
        ("", None),
    ],
)
def test_the_label_of_a_line_tells_its_rank(label: str, rank: int | None) -> None:
    assert rank_of_label(label) == rank


def test_many_ranks_are_written_as_ranges(snapshot: SnapshotAssertion) -> None:
    assert ranks_text([4]) == "rank 4"
    assert ranks_text([0, 1, 2, 7]) == "ranks 0-2, 7"
    assert ranks_text(range(0, 40, 2)) == snapshot


# --- recordings -----------------------------------------------------------------------------------


def test_ranks_of_a_recording_are_compared_and_their_workers_are_not_taken_for_them(
    tmp_path: Path,
    snapshot: SnapshotAssertion,
) -> None:
    for rank in range(3):
        name = "other" if rank == 2 else "step"
        events: list[dict[str, object]] = [
            {"kind": "process", "pid": rank, "rank": str(rank)},
            {"kind": "torch", "version": "2.13.0"},
            {"kind": "compile-start", "compile": "0/0", "function": name},
            {"kind": "compile-end", "compile": "0/0", "seconds": 1.0, "outcome": "compiled"},
            {"kind": "process-end", "dropped": 0},
        ]
        write_recording(tmp_path / str(rank), *events)
        write_recording(tmp_path / f"{rank}-worker", *events[:2])
    recording = write_recording(tmp_path / "all")
    for number, path in enumerate(sorted(tmp_path.glob("[012]*/streams/*.jsonl"))):
        path.rename(recording / "streams" / f"{number}-1.jsonl")
    view = inductoscope("show", recording, "--json", "-").data
    assert violations("show", view) == []
    (odd,) = view["ranks"]["odd"]
    assert (odd["ranks"], odd["kind"], odd["majority"]) == ([2], "compile", 2)
    (note,) = [found for found in view["findings"] if found["rule"] == "ranks_differ"]
    assert note["title"] == snapshot
    assert not note["is_problem"]
