"""`run --values`: how much is saved, by all processes of a run together."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from inductoscope.inside.doctor import kernel_values_agent
from inductoscope.recording.kernel_values import (
    FOLDER,
    INDEX,
    MOST_CALLS,
    MOST_GIB,
    WANTED,
    has_room,
    read_values,
)

# One rank of several: they all begin at the same time, and each wants to save 300 tensors.
RANK = """
import sys
from pathlib import Path
from inductoscope.recording.kernel_values import has_room
sys.stdin.readline()
print(sum(has_room(Path(sys.argv[1]), 10, most=6000) for _ in range(300)))
"""


def test_ranks_that_save_at_the_same_time_share_one_limit(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    command = [sys.executable, "-c", RANK, str(tmp_path)]
    pipe = subprocess.PIPE
    ranks = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(4)]
    for rank in ranks:
        assert rank.stdin is not None
        rank.stdin.write("go\n")
        rank.stdin.flush()
    assert sum(int(rank.communicate()[0]) for rank in ranks) == 600


def test_what_does_not_fit_leaves_its_room_to_smaller_tensors(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    asked = [has_room(tmp_path, size, most=100) for size in (60, 50, 40, 1, 0)]
    assert asked == [True, False, True, False, True]


def test_a_second_process_saves_no_more_than_the_first_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / FOLDER).mkdir()
    monkeypatch.setattr(kernel_values_agent, "has_room", functools.partial(has_room, most=600))
    for _process in range(2):
        kernel_values_agent.ValueSaver(tmp_path, "*").take(
            "cpp_fused_relu_0", {"buf0": torch.ones(100)}
        )
    first, second = read_values(tmp_path)
    assert (tmp_path / first.file).is_file()
    assert (second.file, second.why_not) == ("", "more than 4 GiB would be saved")


def test_the_docs_name_the_files_and_the_limits() -> None:
    docs = Path(__file__).resolve().parents[2] / "docs"
    limits = f"of the first {MOST_CALLS} calls of each kernel", f"at most {MOST_GIB} GiB"
    files = f"{FOLDER}/{INDEX}", f"{FOLDER}/{WANTED}", f"{FOLDER}/PID-N-KERNEL-BUFFER.pt"
    for name, texts in (("run.md", limits), ("recording-format.md", files)):
        page = " ".join((docs / name).read_text("utf-8").split())
        assert [text for text in texts if text not in page] == []
