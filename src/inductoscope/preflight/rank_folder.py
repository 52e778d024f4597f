"""File names of a pretended rank. Also imported in the user's process."""

from __future__ import annotations

from pathlib import Path

CALLS = "collectives.jsonl"
TRACE = "trace"
OUTPUT = "output.txt"
# Objects that rank 0 broadcasts, in a folder of the job.
OBJECTS = "objects"
# More calls of collectives than this are not compared.
MOST_CALLS = 20_000
# The directions of a message, and the sender of one received from any rank.
SEND, RECEIVE = "send", "recv"
ANY_RANK = -1


def rank_folder(folder: Path, rank: int) -> Path:
    return folder / f"rank_{rank}"
