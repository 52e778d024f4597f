"""The text of `fusion`, `bounds` and `diff`, whole: `pytest --snapshot-update` writes it anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from support.examples import RECORDINGS, inductoscope

COMMANDS = (
    "fusion training_step",
    "fusion training_step --outcome never",
    "fusion training_step --why op9 op11 --graph forward",
    "fusion h200_seed",
    "bounds training_step",
    "bounds exported_package",
    "diff relu_add_sum training_step",
    "diff training_step cache_hit",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_whole_text(
    command: str, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(RECORDINGS)
    words = [f"{word}/recording" if Path(word).is_dir() else word for word in command.split()]
    text = inductoscope(*words).stdout
    if words[0] == "diff":
        text = text.partition("\n\n")[2]  # Without the paths of the recordings.
    assert max(map(len, text.splitlines())) <= 80
    assert text == snapshot
