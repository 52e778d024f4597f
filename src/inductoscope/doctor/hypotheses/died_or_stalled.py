"""A process died, stalled or lost the GPU inside the compiler, or inside a compiled graph.

When it applies: Nothing was found inside the program, and it did not end well, nor was it ended
because all calls that were to be checked had been made.

What it runs: The program once more, up to the graph it was in; the search starts there.

What it concludes: Nothing by itself: the next hypotheses judge what is found.

How sure: As sure as those are.
"""

from __future__ import annotations

from dataclasses import replace

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.failure import (
    ERROR,
    HANG,
    SIGNAL,
    Failure,
    device_error,
)
from inductoscope.doctor.finding import read_found
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.instructions import FOLDER, Instructions
from inductoscope.doctor.last_position import LastPosition, last_position
from inductoscope.doctor.program_run import ProgramRun
from inductoscope.model.entities import Recording
from inductoscope.torch_facts import stages


def _applies(case: ProgramCase) -> bool:
    return case.found is None and case.first.ending.exit_code != 0 and not case.first.calls_done


def _examine(case: ProgramCase) -> None:
    lost = _gpu_lost_in_compile(case.recording)
    if lost is None:
        return_to_last_position(case, case.first, case.instructions)
    else:
        compile_id, failure = lost
        text = f"compile {compile_id} lost the GPU ({failure.aspect}); running it again up to there"
        _return_to(case, case.instructions, compile_id, failure, text)


def _gpu_lost_in_compile(recording: Recording) -> tuple[str, Failure] | None:
    """Inductor may run kernels while it compiles. Then no graph is called any more."""
    for compile_ in recording.compiles:
        for error in compile_.errors:
            said = device_error("\n".join((error.message, *error.causes)))
            if said and error.stage != stages.DYNAMO:
                text = f"CUDA error: {said}"
                return compile_.id, Failure(ERROR, text, error.stage, said, message=said)
    return None


def return_to_last_position(case: ProgramCase, run: ProgramRun, instructions: Instructions) -> None:
    """If a run died or hung in a graph, run the program up to that graph and investigate there."""
    position = last_position(run)
    if position is None or position.stage == stages.DYNAMO:  # There is no graph to stop at.
        return
    text = f"{position.text}; running it again up to there"
    _return_to(case, instructions, position.compile, _failure(run, position), text)
    if case.found is not None:
        found = case.found
        found.functions = found.functions or position.functions
        function = found.failure.function or position.function
        found.failure = replace(found.failure, function=function)


def _return_to(
    case: ProgramCase, instructions: Instructions, compile_id: str, failure: Failure, text: str
) -> None:
    stop = replace(instructions, stop_at=compile_id, failure=failure, calls=0)
    case.found = read_found(case.runs.again(stop, text).folder / FOLDER)


def _failure(run: ProgramRun, position: LastPosition) -> Failure:
    was_ended = run.stalled or run.over_time
    return Failure(
        HANG if was_ended else SIGNAL,
        position.text,
        stage=position.stage,
        aspect="" if was_ended else position.signal_name,
        function=position.function,
        detail=position.detail,
        functions=tuple(position.functions),
    )


HYPOTHESIS = Hypothesis(_applies, _examine)
