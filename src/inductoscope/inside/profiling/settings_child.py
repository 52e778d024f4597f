"""Runs in a child process: names every setting of Inductor with its default.

    python bounded.py LIMITS file child.py EVENTS_FD

A value that JSON has no word for is given as the name of its type.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> None:
    """Report all names."""
    os.write(int(sys.argv[1]), json.dumps(_answer()).encode() + b"\n")


def _answer() -> dict[str, Any]:
    try:
        from torch._inductor import config

        found: dict[str, Any] = {}
        for name in config._config:
            value = getattr(config, name, None)
            simple = value is None or isinstance(value, (bool, int, float, str))
            found[name] = {"default": value} if simple else {"type": type(value).__name__}
        return {"event": "settings", "names": found}
    except BaseException as error:
        return {"event": "error", "message": f"{type(error).__name__}: {error}"[:2000]}


if __name__ == "__main__":
    main()
