"""A table of choices that fits the terminal: varying parameters are columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_MOST_ROWS = 40
_NAME_WIDTH = 16
# The parameters that people look for first.
_FIRST = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "XBLOCK", "YBLOCK", "RBLOCK", "num_warps", "num_stages")


@dataclass(frozen=True)
class Table:
    """The lines of the table, and the parameters that all choices share."""

    lines: tuple[str, ...]
    same: str


def choices_table(choices: list[dict[str, Any]], others: list[dict[str, Any]], width: int) -> Table:
    """Format the choices; `others` help to tell which parameters vary."""
    values = [choice["configuration"] for choice in (*choices, *others)]
    names = list(dict.fromkeys(name for value in values for name in value))
    fixed = [n for n in names if len({str(value.get(n)) for value in values}) == 1]
    columns = _fitting([n for n in _ordered(names) if n not in fixed], choices, width)
    widths = [(name, _width(name, choices)) for name in columns]
    lines = [_line("kernel", widths), *(_row(choice, widths) for choice in choices[:_MOST_ROWS])]
    if len(choices) > _MOST_ROWS:
        lines.append(f"… and {len(choices) - _MOST_ROWS} more; --json lists all")
    same = ", ".join(f"{n}={values[0][n]}" for n in fixed if n in values[0]) if values else ""
    return Table(tuple(lines), same)


def _ordered(names: list[str]) -> list[str]:
    return [n for n in _FIRST if n in names] + [n for n in names if n not in _FIRST]


def _fitting(names: list[str], choices: list[dict[str, Any]], width: int) -> list[str]:
    """Return as many columns as fit beside the name."""
    left = width - _NAME_WIDTH
    found = []
    for name in names:
        left -= _width(name, choices) + 2
        if left < 0:
            break
        found.append(name)
    return found


def _width(name: str, choices: list[dict[str, Any]]) -> int:
    return max([len(name), *(len(_text(choice, name)) for choice in choices)])


def _text(choice: dict[str, Any], name: str) -> str:
    return str(choice["configuration"].get(name, "-"))


def _row(choice: dict[str, Any], columns: list[tuple[str, int]]) -> str:
    cells = [(_text(choice, name), width) for name, width in columns]
    return _line(shortened(choice["short_name"] or choice["kind"]), cells)


def _line(name: str, cells: list[tuple[str, int]]) -> str:
    return (
        name.ljust(_NAME_WIDTH) + "".join(f"  {text.rjust(width)}" for text, width in cells)
    ).rstrip()


def shortened(name: str) -> str:
    """Shorten a long name in the middle."""
    if len(name) <= _NAME_WIDTH:
        return name
    return f"{name[: _NAME_WIDTH - 4]}…{name[-3:]}"
