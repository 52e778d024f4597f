"""Operators by the name that graphs and documentation give them."""

from __future__ import annotations

import re

# How Python shows an operator inside a tuple, a list or an exception.
_SHOWN = re.compile(r"<OpOverload(?:Packet)?\(op='([^'<>]+)'(?:, overload='(\w+)')?\)>")


def with_usual_names(text: str) -> str:
    """`aten.cat.default` in place of `<OpOverload(op='aten.cat', overload='default')>`."""
    if "<OpOverload" not in text:
        return text
    return _SHOWN.sub(lambda shown: ".".join(part for part in shown.groups() if part), text)
