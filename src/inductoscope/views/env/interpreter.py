"""Asks the torch of another Python, in a process with a time limit.

torch is never imported here: the installed version may crash or hang on import, and the Python that
runs the user's script is often not the one that runs inductoscope.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from inductoscope.processes.ending import end_child
from inductoscope.views.env.machine import CACHE_VARIABLE

SECONDS = 120.0

_PROBE = Path(__file__).with_name("probe.py")


@dataclass(frozen=True)
class Question:
    """What the other Python is asked, besides its versions and devices."""

    names: Sequence[tuple[str, str]] = ()  # module and dotted path of private names
    settings: Sequence[tuple[str, str]] = ()  # module and dotted path of config keys
    artifacts: Sequence[str] = ()


def ask(python: str, question: Question, *, seconds: float = SECONDS) -> dict[str, Any]:
    """The answer of `python`, as `probe.py` gives it.

    If there is no answer, "problem" says why, and there are no other keys.
    """
    # Importing Inductor creates its cache folder; we must not create the user's.
    with tempfile.TemporaryDirectory(prefix="inductoscope-env-") as cache:
        try:
            process = subprocess.Popen(
                [python, str(_PROBE)],
                env=_environment(cache),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            return {"problem": f"it cannot be started: {error.strerror}"}
        return _converse(process, json.dumps(asdict(question)), seconds)


def _environment(cache: str) -> dict[str, str]:
    environment = {**os.environ, CACHE_VARIABLE: cache}
    # A trace of this process would end up among those of the user's program.
    environment.pop("TORCH_TRACE", None)
    return environment


def _converse(process: subprocess.Popen[str], question: str, seconds: float) -> dict[str, Any]:
    try:
        output, errors = process.communicate(question, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"problem": f"importing torch did not end within {seconds:g} s"}
    finally:
        end_child(process)
    try:
        answer = json.loads(output)
    except ValueError:
        return {"problem": _ending(process.returncode, errors)}
    return answer if isinstance(answer, dict) else {"problem": "its answer is not valid"}


def _ending(returncode: int, errors: str) -> str:
    last = next((line for line in reversed(errors.splitlines()) if line.strip()), "")
    how = f"signal {-returncode}" if returncode < 0 else f"exit code {returncode}"
    return f"it ended with {how} before it could answer" + (f": {last}" if last else "")
