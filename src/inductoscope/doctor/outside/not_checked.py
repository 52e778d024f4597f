"""What an examination that found nothing did not look at."""

from __future__ import annotations

from collections.abc import Sequence

from inductoscope.doctor.outside.program_case import ProgramCase
from inductoscope.doctor.outside.slowness import LONGEST_TO_TIME, may_be_slower
from inductoscope.model.entities import Recording
from inductoscope.model.wrapper_calls import run_function
from inductoscope.recording.events.checking import OUTSIDE
from inductoscope.vocabulary.counting import count_of

# All of them would be no help to a reader.
_MOST = 4


def what_was_not_checked(case: ProgramCase) -> list[str]:
    """One line for each gap in the checks of the first run; none if there is no gap."""
    return [
        *_later_calls(case),
        *_calls_not_compared(case),
        *_graphs_never_called(case),
        *_python_code(case),
        *_random_values(case),
        *_memory_of_cpp_wrappers(case),
        *_own_mistakes(case),
        *_run_time(case),
    ]


def _run_time(case: ProgramCase) -> list[str]:
    seconds = case.first.ending.seconds
    if not case.ends_well or seconds < LONGEST_TO_TIME or not may_be_slower(case.recording):
        return []
    return [
        f"whether compiled calls are slower than eager, as it seems: one run took {seconds:.0f} s "
        "(inductoscope profile --advise measures it)"
    ]


def _later_calls(case: ProgramCase) -> list[str]:
    graphs = case.recording.unchecked
    if not graphs:
        return []
    first = case.instructions.calls
    return [f"calls after the first {first} of {_graphs(graphs)} (--calls checks more)"]


def _calls_not_compared(case: ProgramCase) -> list[str]:
    found = case.checks_that_are("skipped", "eager-fails", "unsteady", OUTSIDE)
    lines = [f"call {check.call} of graph {check.compile}: {check.text}" for check in found]
    return _shortened(lines, "call")


def _graphs_never_called(case: ProgramCase) -> list[str]:
    checked = {check.compile for check in case.checks}
    compiled = [compile_.id for compile_ in case.recording.compiles if compile_.inductor]
    never = [name for name in dict.fromkeys(compiled) if name not in checked]
    return [f"{_graphs(never)}: compiled, but no call was compared"] if never else []


def _python_code(case: ProgramCase) -> list[str]:
    compiles = case.recording.compiles
    if case.recording.callable_checks:
        return []
    if compiles and all(one.flow for one in compiles):
        return ["whether torch.export captured what the Python code says"]
    return ["whether Dynamo captured what the Python code says: only its graphs were compared"]


def _random_values(case: ProgramCase) -> list[str]:
    # Dynamo's graphs also have dropouts that are switched off.
    operations = [name for name in case.random_operations if name.startswith(("aten.", "prims."))]
    if not operations:
        return []
    names = ", ".join(operations[:_MOST])
    return [f"the random numbers that compiled code draws by itself ({names})"]


def _memory_of_cpp_wrappers(case: ProgramCase) -> list[str]:
    """Calls of other graphs are repeated in memory where such a read shows."""
    recording = case.recording
    if any(compile_.flow for compile_ in recording.compiles):
        who, owner = "a kernel of a package", "the package"
    elif has_cpp_wrapper(recording):
        who, owner = "a kernel", "a wrapper in C++ (cpp_wrapper=True)"
    else:
        return []
    return [
        f"whether {who} reads past the end of a buffer that {owner} itself allocates, and is right "
        "by chance (see also: inductoscope bounds)"
    ]


def has_cpp_wrapper(recording: Recording) -> bool:
    """Whether a graph was compiled with a wrapper in C++."""
    wrappers = (graph.wrapper for one in recording.compiles for graph in one.inductor)
    return any(run_function(recording.payload(digest)) for digest in wrappers if digest)


def _own_mistakes(case: ProgramCase) -> list[str]:
    mistakes = [text for process in case.recording.processes for text in process.hook_errors]
    return _shortened([f"an error in inductoscope: {text}" for text in mistakes], "error")


def _graphs(names: Sequence[str]) -> str:
    listed = ", ".join(names[:_MOST]) + (", …" if len(names) > _MOST else "")
    return f"{'graph' if len(names) == 1 else f'{len(names)} graphs'} {listed}"


def _shortened(lines: Sequence[str], what: str) -> list[str]:
    more = [count_of(len(lines) - _MOST, f"more {what}")] if len(lines) > _MOST else []
    return [*lines[:_MOST], *more]
