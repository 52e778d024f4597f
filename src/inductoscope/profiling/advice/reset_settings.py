"""Settings of Inductor that the program has changed, back at torch's own values.

Someone may have changed them to look for a bug, or for another version of torch. What the change
costs is not known to anybody until it is tried.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from inductoscope.profiling.advice.evidence import RecordedEvidence
from inductoscope.profiling.advice.flip import Flip
from inductoscope.vocabulary import stages

_PREFIX = "torch._inductor.config."
# Each trial takes as long as the program.
_MOST = 2
# These say where and how to compile or what to write down, not what code comes of it; or a program
# that sets them has asked for more work, or for other results.
_NOT_ABOUT_CODE = (
    "aot_inductor",
    "assert",
    stages.AUTOTUNE,
    stages.BENCHMARK,
    "cache",
    "compile_threads",
    "coordinate_descent",
    "cpp_wrapper",
    "cxx",
    "debug",
    "deterministic",
    "emulate",
    "fallback_random",
    "freezing",
    "math",
    "numerics",
    "profile",
    "trace.",
    "worker",
)


def reset_settings(evidence: RecordedEvidence) -> Iterator[Flip]:
    """The settings that may cost time, each at torch's own value."""
    found: dict[str, Flip] = {}
    for compile_ in evidence.recording.compiles:
        if (settings := compile_.settings) is None:
            continue
        for name, default in settings.defaults.items():
            flip = _reset(name, settings.config.get(name, ""), default, compile_.place)
            if flip is not None:
                found.setdefault(name, flip)
    yield from tuple(found.values())[:_MOST]


def _reset(name: str, given: str, default: str, place: str) -> Flip | None:
    short = name.removeprefix(_PREFIX)
    is_plain = _is_plain(given) and _is_plain(default)
    if short == name or not is_plain or any(word in short for word in _NOT_ABOUT_CODE):
        return None
    value: Any = ast.literal_eval(default)
    return Flip(
        f"{name} = {value!r}",
        f"the program sets {short} = {given}; torch's own value is {default}",
        source=place,
        settings={short: value},
        overrules=True,
    )


def _is_plain(text: str) -> bool:
    """Whether it is a number, True, False or None: texts and lists are names and places."""
    try:
        return isinstance(ast.literal_eval(text), (bool, int, float, type(None)))
    except (ValueError, SyntaxError):
        return False
