"""Settings as a user types them: `max_autotune`, `cpp.simdlen=1`; checked against torch's own."""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from inductoscope.errors import ToolFailure, UsageError
from inductoscope.processes.limited import ChildLimits, ChildProgram, run_child
from inductoscope.profiling.turns import Variant
from inductoscope.recording.values import members
from inductoscope.vocabulary.spelling import did_you_mean

TORCH_NAMES = {
    "torch._inductor.config": (),
}

_SECONDS = 120.0
_WHERE = "torch._inductor.config"


def known_settings() -> Mapping[str, Mapping[str, Any]]:
    """Every setting of the installed torch, with its default."""
    program = ChildProgram(Path(__file__).with_name("child.py"), ())
    with tempfile.TemporaryDirectory(prefix="inductoscope-settings-") as folder:
        ended = run_child(
            program, ChildLimits(_SECONDS, _SECONDS), Path(folder), lambda event: None
        )
    for answer in ended.events:
        if answer.get("event") == "settings":
            return members(answer.get("names"))
        if answer.get("event") == "error":
            raise ToolFailure(f"torch does not say what its settings are: {answer.get('message')}")
    raise ToolFailure(f"torch does not say what its settings are: {ended.output[-300:].strip()}")


def variants_of(texts: Sequence[str], known: Mapping[str, Mapping[str, Any]]) -> list[Variant]:
    """One variant for each text; several settings in one are separated by commas."""
    found: list[Variant] = []
    for text in dict.fromkeys(texts):
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if not parts:
            raise UsageError("--try needs a setting, as in --try max_autotune or cpp.simdlen=1.")
        found.append(Variant(text, dict(read_setting(part, known) for part in parts)))
    return found


def read_setting(text: str, known: Mapping[str, Mapping[str, Any]]) -> tuple[str, Any]:
    """The name and value of one setting; refuses what torch does not have."""
    name, equals, written = (part.strip() for part in text.partition("="))
    name = name.removeprefix(f"{_WHERE}.")
    if name not in known:
        raise UsageError(f"{_WHERE} has no setting {name!r}.{did_you_mean(name, known)}")
    if "type" in known[name]:
        raise UsageError(
            f"--try {name}: its value is a {known[name]['type']}, which cannot be typed here."
        )
    default = known[name].get("default")
    if not equals:
        if not isinstance(default, bool):
            raise UsageError(f"--try {name} needs a value, as in --try {name}=1.")
        return name, True
    value = _value(written)
    if isinstance(default, bool) and not isinstance(value, bool):
        raise UsageError(f"--try {name}={written}: the value has to be True or False.")
    if isinstance(default, (int, float)) and isinstance(value, str):
        raise UsageError(f"--try {name}={written}: the value has to be a number.")
    return name, value


def _value(written: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if written.lower() in words:
        return words[written.lower()]
    try:
        value = ast.literal_eval(written)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return written
    return value if isinstance(value, (bool, int, float, str, type(None))) else written
