"""The words that pytest was called with, for a child that is to run one test in the same way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

_HANDED_OVER = "inductoscope_words"
# They wait for somebody at a keyboard.
_ASKING = ("--pdb", "--trace")


def words_of_run(config: pytest.Config) -> list[str]:
    """All options on the command line, and none of the tests that it names."""
    handed_over = getattr(config, "workerinput", {}).get(_HANDED_OVER)
    if handed_over is not None:
        return list(handed_over)
    words = [str(word) for word in config.invocation_params.args if str(word) not in _ASKING]
    return _without_tests(words, config.getoption("file_or_dir", None) or ())


def hand_words_over(node: Any) -> None:
    """A worker of pytest-xdist is not called with them."""
    node.workerinput[_HANDED_OVER] = words_of_run(node.config)


def _without_tests(words: Sequence[str], tests: Sequence[str]) -> list[str]:
    left = list(words)
    for test in tests:
        places = [number for number, word in enumerate(left) if word == test]
        if places:
            # The value of an option may be spelt like a test, as in `-k model model`.
            del left[min(places, key=lambda number: _follows_an_option(left, number))]
    return left


def _follows_an_option(words: Sequence[str], number: int) -> bool:
    return number > 0 and words[number - 1].startswith("-")
