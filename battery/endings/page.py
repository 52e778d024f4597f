"""Results of all endings, as docs/endings.md."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence

from battery.endings.catalogue import ENDINGS
from battery.endings.ending import COMMANDS, SHOW_EXAMINED, ProgramEnding
from battery.endings.trial import Heard
from battery.markdown import plain, row

_NAMES = {name: f"`{name}`" for name in COMMANDS} | {SHOW_EXAMINED: "`show` after `doctor`"}
_WRONG = " **(wrong)**"
_SECTION = re.compile(r"^## (?P<title>.*)\n\n(?P<table>(?:\|.*\n)+)", re.MULTILINE)

_INTRODUCTION = (
    "Each cell is the exit code and the first line of what the command printed in a terminal of "
    "80 columns. `show` and `report` read the recording that `run` made, `show` after `doctor` the "
    "one that the doctor made; `logs` reads what the program printed with "
    "`TORCH_LOGS=+inductor`; `attach` looks at the program while it runs, or after its end where "
    "it ends by itself.",
    "One ending is not here: a GPU that runs out of memory. These programs run on a machine "
    "without a GPU, and no recording of such an ending is kept here.",
)


def render_page(heard: Sequence[Heard], before: str = "") -> str:
    """The whole page; what was not tried now is taken from the page as it was before."""
    tables = {found["title"]: found["table"].strip() for found in _SECTION.finditer(before)}
    for ending in ENDINGS:
        mine = {one.command: one for one in heard if one.ending == ending.name}
        if mine:
            tables[_title(ending)] = "\n".join(_rows(ending, mine))
    known = [(_title(one), tables[_title(one)]) for one in ENDINGS if _title(one) in tables]
    tried = [line for _, table in known for line in table.splitlines() if _is_tried(line)]
    wrong = sum(_WRONG in line for line in tried)
    parts = [
        "# What is said in every ending",
        f"Written by `make endings`, on {datetime.date.today().isoformat()}: {len(known)} programs,"
        f" {len(tried)} commands; {len(tried) - wrong} of them say what they have to.",
        *_INTRODUCTION,
        *(f"## {title}\n\n{table}" for title, table in known),
    ]
    return "\n\n".join(parts) + "\n"


def _title(ending: ProgramEnding) -> str:
    return f"{ending.what[0].upper()}{ending.what[1:]}"


def _is_tried(line: str) -> bool:
    return re.match(r"\| `.*?\| -?\d+ \|", line) is not None


def _rows(ending: ProgramEnding, mine: dict[str, Heard]) -> list[str]:
    rows = [row(["command", "exit code", "first line"]), row(["---"] * 3)]
    for command in COMMANDS:
        if command in mine:
            one = mine[command]
            mark = "" if one.is_right else _WRONG
            rows.append(row([_NAMES[command], str(one.exit_code), plain(one.first_line) + mark]))
        elif command in ending.without:
            rows.append(row([_NAMES[command], "", f"(none: {ending.without[command]})"]))
    return rows
