"""A guide's commands, run again: they still print what the guide shows."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

from guide_pages import guides, kept, run_guide


def stable(output: Sequence[str]) -> str:
    """An output without what differs from run to run: numbers and how lines are wrapped."""
    words = " ".join(" ".join(output).split())
    return re.sub(r"\d+(?:[.,]\d+)*", "N", words)


def test_the_commands_of_a_guide_print_what_it_shows(tmp_path: Path) -> None:
    text = guides()["fusion"].read_text("utf-8")
    shown = kept("fusion")
    # The last command compiles the graph five times over.
    wanted = len(shown) - 1
    again = list(itertools.islice(run_guide(text, tmp_path, say=lambda line: None), wanted))
    assert [one.command for one in again] == list(shown)[:wanted]
    for one in again:
        assert one.exit_code == shown[one.command].exit_code, one.output
        assert stable(one.output) == stable(shown[one.command].output)
