"""Tries every ending and writes docs/endings.md: make endings, or python -m battery.endings.run."""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from battery.endings.catalogue import ENDINGS, NOT_HERE
from battery.endings.ending import COMMANDS
from battery.endings.trial import Heard, try_ending
from battery.markdown import plain, row
from battery.paths import without_folders


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="NAME", help="endings that contain NAME")
    parser.add_argument("--commands", default="", metavar="NAME,NAME", help="only these commands")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    parser.add_argument("--jobs", type=int, default=2, help="endings at a time")
    chosen = parser.parse_args()
    only = [name for name in chosen.commands.split(",") if name]
    wanted = [ending for ending in ENDINGS if chosen.only in ending.name]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(chosen.jobs) as pool:
        tried = pool.map(lambda one: list(try_ending(one, Path(folder) / one.name, only)), wanted)
        heard = [one for some in tried for one in _printed(some)]
    if chosen.markdown:
        chosen.markdown.write_text(without_folders(_page(heard)), "utf-8")
    return 0 if all(one.is_right for one in heard) else 1


def _printed(heard: Sequence[Heard]) -> Sequence[Heard]:
    for one in heard:
        state = "right" if one.is_right else "WRONG"
        where = f"{one.ending:18} {one.command:7} {one.exit_code:3}"
        print(f"{state}  {where}  {one.first_line[:150]}", flush=True)
    return heard


def _page(heard: Sequence[Heard]) -> str:
    right = sum(one.is_right for one in heard)
    day = datetime.date.today().isoformat()
    parts = [
        "# What is said in every ending",
        f"Written by `make endings`, on {day}: {len(ENDINGS)} programs, {len(heard)} commands, "
        f"{right} of them say what they have to. Each cell is the exit code and the first line of "
        "what the command printed in a terminal of 80 columns.",
    ]
    for ending in ENDINGS:
        mine = {one.command: one for one in heard if one.ending == ending.name}
        if mine:
            parts.append(f"## {ending.what[0].upper()}{ending.what[1:]}")
            parts.append("\n".join(_rows(mine)))
    missing = "\n".join(f"- {what}: {why}" for what, why in NOT_HERE)
    return "\n\n".join([*parts, "## Not here", missing]) + "\n"


def _rows(mine: dict[str, Heard]) -> list[str]:
    rows = [row(["command", "exit code", "first line"]), row(["---"] * 3)]
    for command in COMMANDS:
        if command in mine:
            one = mine[command]
            mark = "" if one.is_right else " **(wrong)**"
            rows.append(row([f"`{command}`", str(one.exit_code), plain(one.first_line) + mark]))
    return rows


if __name__ == "__main__":
    sys.exit(main())
