"""Facts about a package that ran: each says how it was established."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from inductoscope.packages.crash_stack import crash_place
from inductoscope.packages.package import PackagedModel
from inductoscope.packages.running import RunOutcome, first_lines
from inductoscope.vocabulary.counting import count_of

_NO_OPERATOR = re.compile(r"Could not find schema for ([\w:]+)")


_HINTS = {
    "SIGILL": " The processor met an instruction that it does not have: the package was built for "
    "another one.",
    "SIGKILL": " The system may have ended it for want of memory.",
}


@dataclass(frozen=True)
class PackageFinding:
    """One fact."""

    name: str
    text: str
    established: str
    confidence: str = "proven"  # or likely, unknown
    is_problem: bool = True


def findings_of_run(run: RunOutcome, model: PackagedModel) -> Iterator[PackageFinding]:
    """What a single run shows."""
    for item in run.broken:
        how = "compared the given inputs with the checks in the package's C++ wrapper"
        if run.message:
            how = "raised by the package's own check (AOTI_RUNTIME_CHECK_INPUTS=1)"
        name = "broken_guard" if item.is_about_inputs else "operator_result"
        yield PackageFinding(name, item.text, how, is_problem=not item.is_harmless)
    if run.outcome == "fails" and not run.broken:
        yield _error(run)
    if run.outcome == "dies":
        yield _death(run, model)
    if run.outcome == "does not end":
        text = f"It did not end in time; it was stopped {run.where}."
        yield PackageFinding("no_end", text, "seen in a child process")
    yield from _values(run)


def _error(run: RunOutcome) -> PackageFinding:
    lacking = _NO_OPERATOR.search(run.message)
    if lacking is not None:
        text = (
            f"The custom operator {lacking[1]} is not defined. Give the file that defines it: "
            "--ops FILE, a library (.so) or a Python file (.py)."
        )
        return PackageFinding("missing_operator", text, f"torch raised an error {run.where}")
    text = f"An error was raised {run.where}: {first_lines(run.message)}"
    return PackageFinding("error", text, "the child process raised it")


def _death(run: RunOutcome, model: PackagedModel) -> PackageFinding:
    how = f"of {run.signal}" if run.signal else f"with exit code {run.exit_code}"
    hint = _HINTS.get(run.signal, "")
    calls = model.wrapper.calls if model.wrapper else ()
    place = crash_place(run.printed, [call.name for call in calls])
    where = f", {place.text}" if place is not None else ""
    if place is not None and place.kernel:
        hint += " A kernel that dies need not be the guilty one: an earlier one may have given it"
        hint += " wrong values."
    text = f"The child process died {how} {run.where}{where}.{hint}"
    established = "seen in a child process"
    if place is not None:
        established += ", which printed its native stack"
    return PackageFinding("death", text, established)


def _values(run: RunOutcome) -> Iterator[PackageFinding]:
    for number, output in enumerate(run.outputs):
        if output["nan"]:
            text = f"output {number} holds {count_of(output['nan'], 'NaN')}"
            how = "counted in the output of the run"
            yield PackageFinding("nan_output", text, how, is_problem=False)
