"""What a Python process runs, for people: its script, its module, or that it is code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

# Options of Python whose value is the next word.
OPTIONS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


def what_runs(argv: Sequence[str]) -> str:
    """A short name; empty where there is none to give.

    >>> what_runs(["/usr/bin/python3", "-u", "/home/me/train.py", "--epochs", "1"])
    'train.py'
    >>> what_runs(["python", "-m", "package.train"])
    '-m package.train'
    """
    rest = list(argv[1:])
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        value = rest[0] if rest else ""
        if option in OPTIONS_WITH_VALUE:
            del rest[:1]
        elif not option.startswith("--") and option.endswith("c"):
            return "multiprocessing" if value.startswith("from multiprocessing") else "python -c"
        elif not option.startswith("--") and option.endswith("m"):
            return f"-m {value}"
    return PurePath(rest[0]).name if rest else ""
