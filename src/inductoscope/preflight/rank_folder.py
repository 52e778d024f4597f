"""File names of a pretended rank. Also imported in the user's process."""

from __future__ import annotations

CALLS = "collectives.jsonl"
TRACE = "trace"
OUTPUT = "output.txt"
# Below the folder of the job: what rank 0 hands out.
OBJECTS = "objects"
# More calls of collectives than this are not compared.
MOST_CALLS = 20_000
# Which way a message goes, and the sender of one that may come from anybody.
SEND, RECEIVE = "send", "recv"
ANY_RANK = -1
