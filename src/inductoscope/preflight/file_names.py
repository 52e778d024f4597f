"""Names of the files in the folder of a pretended rank. Also read in the user's process."""

from __future__ import annotations

CALLS = "collectives.jsonl"
TRACE = "trace"
OUTPUT = "output.txt"
# Below the folder of the job: what rank 0 hands out.
OBJECTS = "objects"
# More calls of collectives than this are not compared.
MOST_CALLS = 20_000
