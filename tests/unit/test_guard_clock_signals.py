"""The clock of guards: what it cannot time is left out, and the program's signals pass through."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from inductoscope.inside.hooks.dynamo import time_guards


@pytest.fixture
def time_limit() -> Iterator[None]:
    """A program that gives itself a time limit."""

    def time_is_up(number: int, frame: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGUSR1, time_is_up)
    yield
    signal.signal(signal.SIGUSR1, before)


def guards(check: Callable[[Any], bool]) -> tuple[Any, Any]:
    root = SimpleNamespace(check=check, get_child_managers=list)
    built = SimpleNamespace(guard_manager=SimpleNamespace(root=root))
    return built, SimpleNamespace(local_scope={})


@pytest.mark.usefixtures("time_limit")
def test_a_time_limit_of_the_program_is_not_swallowed() -> None:
    def check(values: Any) -> bool:
        signal.raise_signal(signal.SIGUSR1)
        return True

    with pytest.raises(TimeoutError):
        time_guards(*guards(check))


def test_guards_that_fail_are_not_timed() -> None:
    def check(values: Any) -> bool:
        raise AttributeError("a value that is gone")

    assert time_guards(*guards(check)) == (None, ())
    assert time_guards(*guards(lambda values: True))[0] is not None
