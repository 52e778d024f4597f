"""Signs of life from the stages that record nothing else for long: those that trace a program.

What is watched calls nothing that is watched, so that no stack becomes deeper: a deep one may
reach Python's limit.
"""

from __future__ import annotations

import time

from inductoscope.capture.observe import glance
from inductoscope.capture.scope import SCOPE
from inductoscope.recording.events.compiling import TracingContinues
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.torch_names import Hook, TorchName, Wrap

_SECONDS = 1.0


def _continues() -> None:
    # The beginning of a stage is a sign of life, too.
    is_new = SCOPE.stages and time.perf_counter() - SCOPE.stages[-1].started < _SECONDS
    if SCOPE.stage in (stages.DYNAMO, stages.AOT) and not is_new:
        SCOPE.emit(TracingContinues())


def _signs(stage: str, records: str, name: TorchName) -> Hook:
    return Hook(stage, records, wraps=(Wrap(name, glance(_SECONDS, _continues)),))


LINES = _signs(
    stages.DYNAMO,
    "that Dynamo gets on with a long function",
    TorchName("torch._dynamo.symbolic_convert", "InstructionTranslatorBase.starts_line"),
)
NODES = _signs(
    stages.AOT,
    "that AOTAutograd gets on with a large graph",
    TorchName("torch.fx.interpreter", "Interpreter.fetch_args_kwargs_from_env"),
)
