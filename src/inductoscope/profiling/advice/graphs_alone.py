"""What a setting should save, before the program is run with it.

The recorded graphs are compiled alone in a child, as the program compiled them and with the
setting, and called in turns with the program's own arguments, or made-up ones where those are not
known. What is left of their time should be left of the program's compiled calls.
"""

from __future__ import annotations

import ast
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from inductoscope.capture import private_cache
from inductoscope.model.entities import Compile, Recording
from inductoscope.processes.limited import ChildLimits, ChildProgram, run_child
from inductoscope.profiling.advice.flip import Flip
from inductoscope.profiling.statistics import quantile
from inductoscope.targets.recompile.work_list import captured_graphs

_SECONDS = 180.0
_PREFIX = "torch._inductor.config."


def predicted_alone(recording: Recording, flips: Sequence[Flip], inputs: Path) -> tuple[Flip, ...]:
    """The flips; those that change settings with what is left of the time of the graphs alone.

    The program's own arguments lie in the folder `inputs`.
    """
    asked = [flip for flip in flips if _can_be_asked(flip)]
    timed = iter(_timed_alone(recording, asked, inputs) if asked else ())
    return tuple(
        _with_prediction(flip, next(timed, None)) if _can_be_asked(flip) else flip for flip in flips
    )


@dataclass(frozen=True)
class _TimedAlone:
    """Seconds of all graphs with a change, as the program compiles them, and in eager."""

    changed: float
    whole: float
    eager: float


def _with_prediction(flip: Flip, timed: _TimedAlone | None) -> Flip:
    """What was measured is better than what was computed before.

    An operation that is left to eager takes as long as there. How long that is in the program is
    known, and may differ from here: much of it can be the memory that the operation has to get.
    """
    if timed is None:
        return flip
    if flip.leaves_to_eager:
        times = timed.changed / timed.eager
        text = f"alone, the graphs take {times:.2f} times as long with it as in eager"
        return replace(flip, of_eager=times, prediction=text)
    left = timed.changed / timed.whole
    text = f"alone, the graphs take {left:.2f} of their time with it"
    return replace(flip, left=left, prediction=text)


def _can_be_asked(flip: Flip) -> bool:
    is_settings = bool(flip.settings) and not flip.code and not flip.variables
    return flip.leaves_to_eager or (
        is_settings and not flip.avoids_compiles and not flip.changes_eager
    )


def _timed_alone(
    recording: Recording, flips: Sequence[Flip], inputs: Path
) -> list[_TimedAlone | None]:
    """The graphs with each flip, in turns with the graphs as they are and in eager."""
    orders = list(captured_graphs(recording))
    if not orders:
        return [None for _ in flips]
    compiles = {compile_.id: compile_ for compile_ in recording.compiles}
    order: dict[str, Any] = {
        "graphs": [asdict(each) for each in orders],
        "settings": [_settings_of(compiles[each.compile]) for each in orders],
        "changes": [{"settings": dict(flip.settings), "code": flip.code} for flip in flips],
        "inputs": str(inputs),
    }
    with tempfile.TemporaryDirectory(prefix="inductoscope-prediction-") as folder:
        order["environment"] = {
            **private_cache.environment(Path(folder) / "cache"),
            # Statements change what is compiled without changing the keys of a cache.
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
            "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
        }
        path = Path(folder) / "order.json"
        path.write_text(json.dumps(order), "utf-8")
        program = ChildProgram(Path(__file__).with_name("prediction_child.py"), (str(path), "0"))
        limits = ChildLimits(_SECONDS, memory_gib=1024.0)
        ended = run_child(program, limits, Path(folder), lambda event: None)
    timed = [event["variants"] for event in ended.events if event.get("event") == "timed"]
    if len(timed) < len(orders):
        return [None for _ in flips]  # Not all graphs are known: then nothing is predicted.
    seconds = [[quantile(times, 0.5) for times in variants] for variants in timed]
    eager, whole, *changed = map(sum, zip(*seconds, strict=True))
    return [_TimedAlone(each, whole, eager) if whole and eager else None for each in changed]


def _settings_of(compile_: Compile) -> dict[str, Any]:
    """What the program set for Inductor, where it is plain data."""
    given: Mapping[str, str] = compile_.settings.config if compile_.settings else {}
    found = {}
    for name, text in given.items():
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            continue
        if name.startswith(_PREFIX):
            found[name.removeprefix(_PREFIX)] = value
    return found
