"""What was compared with eager inside a run of the program."""

from __future__ import annotations

from inductoscope.doctor.outside.program import ProgramRun
from inductoscope.model.checks import CallableCheck
from inductoscope.model.entities import Recording
from inductoscope.model.fold import load


def functions_that_differ(recording: Recording) -> list[CallableCheck]:
    """Compiled functions that gave a different result from their Python code."""
    return [check for check in recording.callable_checks if check.verdict == "differs"]


def every_check_passed(run: ProgramRun) -> bool:
    """Whether a run ended well with every check passed; a long one may have been ended early."""
    if run.stalled or not (run.over_time or run.calls_done or run.ending.exit_code == 0):
        return False
    recording = load(run.folder)
    broken = any(process.hook_errors for process in recording.processes)
    if broken or functions_that_differ(recording):
        return False  # A workaround itself may be what failed, or something else is wrong too.
    said = {check.verdict for check in recording.checks}
    return bool(said & {"right", "within-rounding"}) and not said & {"wrong", "error"}
