"""What the user asked for on pytest's command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_CALLS = 4


@dataclass(frozen=True)
class SuiteOptions:
    """How to check a test suite."""

    # Whether a test in which compiled code is wrong fails.
    fails: bool
    # How many calls of each graph are checked in each test.
    calls: int
    # How the doctor examines what is found: 'full' or 'quick'; empty if it does not.
    doctor: str
    # Where to write everything as JSON; empty for nowhere.
    json: str


def options_of(config: pytest.Config) -> SuiteOptions:
    """The options, or a UsageError that says what is wrong with them."""
    calls: Any = config.getoption("inductoscope_calls")
    path = config.getoption("inductoscope_json") or ""
    if calls is not None and calls < 1:
        raise pytest.UsageError(f"--inductoscope-calls {calls} checks nothing. Give at least 1.")
    whole = Path(config.invocation_params.dir, path) if path else None
    if whole is not None and (whole.is_dir() or not whole.parent.is_dir()):
        wrong = "is a folder" if whole.is_dir() else "is in a folder that does not exist"
        raise pytest.UsageError(f"--inductoscope-json {path} {wrong}. Name a file to write.")
    return SuiteOptions(
        fails=config.getoption("inductoscope_mode") != "report",
        calls=calls or _CALLS,
        doctor=str(config.getoption("inductoscope_doctor") or ""),
        json=str(whole or ""),
    )
