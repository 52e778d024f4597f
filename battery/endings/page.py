"""What was heard, as docs/endings.md."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from battery.endings.catalogue import ENDINGS
from battery.endings.ending import COMMANDS, SHOW_EXAMINED, ProgramEnding
from battery.endings.trial import Heard
from battery.markdown import plain, row

_NAMES = {name: f"`{name}`" for name in COMMANDS} | {SHOW_EXAMINED: "`show` after `doctor`"}

_INTRODUCTION = """\
Each cell is the exit code and the first line of what the command printed in a terminal of 80
columns. `show` and `report` read the recording that `run` made, `show` after `doctor` the one
that the doctor made; `logs` reads what the program printed with `TORCH_LOGS=+inductor`; `attach`
looks at the program while it runs, or after its end, where it ends by itself.

One ending is not here: the memory of a GPU runs out. These programs run on a machine without one,
and no recording of it from a machine with one is kept here."""


def render_page(heard: Sequence[Heard]) -> str:
    """The whole page; endings that were not tried are left out."""
    right = sum(one.is_right for one in heard)
    names = {one.ending for one in heard}
    parts = [
        "# What is said in every ending",
        f"Written by `make endings`, on {datetime.date.today().isoformat()}: {len(names)} programs,"
        f" {len(heard)} commands; {right} of them say what they have to.",
        " ".join(_INTRODUCTION.split("\n")).replace("  ", "\n\n"),
    ]
    for ending in ENDINGS:
        if ending.name in names:
            mine = {one.command: one for one in heard if one.ending == ending.name}
            parts.append(f"## {ending.what[0].upper()}{ending.what[1:]}")
            parts.append("\n".join(_rows(ending, mine)))
    return "\n\n".join(parts) + "\n"


def _rows(ending: ProgramEnding, mine: dict[str, Heard]) -> list[str]:
    rows = [row(["command", "exit code", "first line"]), row(["---"] * 3)]
    for command in COMMANDS:
        if command in mine:
            one = mine[command]
            mark = "" if one.is_right else " **(wrong)**"
            rows.append(row([_NAMES[command], str(one.exit_code), plain(one.first_line) + mark]))
        elif command in ending.without:
            rows.append(row([_NAMES[command], "", f"(none: {ending.without[command]})"]))
    return rows
