"""Sanitizing of untrusted text, so that it cannot control a terminal."""

from __future__ import annotations

import re
from typing import Any

from inductoscope.torch_facts.printed_graphs import with_usual_names

# Control characters, bidirectional marks, other line separators, and surrogates.
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str) -> str:
    """Escape control characters in a text, except tabs and line ends.

    Operators get their usual names, whatever the source of the text.
    """
    return _UNSAFE.sub(lambda match: _escape(ord(match[0])), with_usual_names(text))


def visible_data(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, list):
        return [visible_data(item) for item in value]
    if isinstance(value, dict):
        return {visible(key): visible_data(item) for key, item in value.items()}
    return value


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
