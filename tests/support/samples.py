"""Which of the stored scripts are run today."""

from __future__ import annotations

import datetime
import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from battery.fault import Fault
from battery.judge import Result
from battery.stored import read_one

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "tests" / "cases"
# Written by `make cases`.
RESULTS = ROOT / "docs" / "cases.json"

Item = TypeVar("Item")

DATE_VARIABLE = "INDUCTOSCOPE_SAMPLE_DATE"
SIZE = 2


def sample_date() -> datetime.date:
    """Today, or the day that the environment names."""
    named = os.environ.get(DATE_VARIABLE)
    return datetime.date.fromisoformat(named) if named else datetime.date.today()


def of_the_day(items: Sequence[Item], size: int) -> list[Item]:
    """So many of them; day after day it goes on through the list."""
    begin = sample_date().toordinal() * size
    return [items[(begin + step) % len(items)] for step in range(size)]


def stored_sample() -> list[Fault]:
    """The scripts of the day, of those that the last `make cases` got right.

    Day after day it goes on through the list, so every script has its turn before one comes again.
    """
    return [read_one(CASES / name) for name in of_the_day(_candidates(), SIZE)]


def _candidates() -> list[str]:
    """The quicker half of them, shuffled; the others are left to `make cases`."""
    results = [Result(**row) for row in json.loads(RESULTS.read_text())["results"]]
    right = [r for r in results if r.named and (r.verified or not r.provable)]
    ours = sorted((r.seconds, r.name) for r in right if (CASES / r.name).is_dir())
    names = [name for _, name in ours[: max(len(ours) // 2, SIZE)]]
    random.Random(0).shuffle(names)
    return names
