"""How torch's own check for NaN (`nan_asserts`) speaks.

A wrapper in Python raises a bare AssertionError, in a line that names a variable of its own; one in
C++ names the variable in its message.
"""

from __future__ import annotations

import re

_SAID = re.compile(r"At least one (?:NaN|INF) in (\w+)", re.IGNORECASE)
_ASSERTED = re.compile(r"assert not (\w+)\.is(?:nan|inf)\(\)\.any\(\)\.item\(\)")


def refused_variable(kind: str, message: str, last_frame: str) -> str:
    """The variable of the wrapper that holds NaN; "" if an exception says something else.

    `kind` is the exception's type, `last_frame` the line that raised it, as Python prints it.
    """
    if kind == "AssertionError":
        found = _ASSERTED.search(last_frame)
    else:
        found = _SAID.search(message) if kind == "RuntimeError" else None
    return found[1] if found else ""
