"""Signs of life from the stages that record nothing else for long: those that trace a program.

What is watched calls nothing that is watched, so that no stack becomes deeper: a deep one may
reach Python's limit.
"""

from __future__ import annotations

import threading
import time

from inductoscope.capture.observe import Arguments, Keywords, watch
from inductoscope.capture.scope import SCOPE
from inductoscope.recording.events.compiling import TracingContinues
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.torch_names import Hook, TorchName, Wrap

_SECONDS = 1.0
_TRACING = (stages.DYNAMO, stages.AOT)


class _Signs(threading.local):
    """When this thread last gave a sign of life."""

    last = 0.0


_signs = _Signs()


def _continues(args: Arguments, kwargs: Keywords) -> None:
    now = time.perf_counter()
    if now - _signs.last < _SECONDS or SCOPE.stage not in _TRACING:
        return
    # The beginning of a stage is a sign of life, too.
    if now - SCOPE.stages[-1].started >= _SECONDS:
        SCOPE.emit(TracingContinues(stage=SCOPE.stage))
    _signs.last = now


LINES = Hook(
    stage=stages.DYNAMO,
    records="that Dynamo gets on with a long function",
    wraps=(
        Wrap(
            TorchName("torch._dynamo.symbolic_convert", "InstructionTranslatorBase.starts_line"),
            watch(before=_continues),
        ),
    ),
)

NODES = Hook(
    stage=stages.AOT,
    records="that AOTAutograd gets on with a large graph",
    wraps=(
        Wrap(
            TorchName("torch.fx.interpreter", "Interpreter.fetch_args_kwargs_from_env"),
            watch(before=_continues),
        ),
    ),
)
