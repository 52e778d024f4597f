"""Rows of tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def row(cells: Sequence[str]) -> str:
    """One line of a table; the cells are Markdown already."""
    return f"| {' | '.join(cells)} |"


def plain(text: str) -> str:
    """Text for a cell, whatever is in it."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
