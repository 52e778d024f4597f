"""What a second run shows, with the C++ library that torch uses loaded before the package.

Both runs are the same but for that, so that the second one shows what the copy does to the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from inductoscope.packages import cpp_library
from inductoscope.packages.cpp_program import every_compiler, installed_compiler
from inductoscope.packages.execution import (
    STEPS,
    PackageFinding,
    RunOutcome,
    findings_of_run,
    first_lines,
)
from inductoscope.packages.package import PackagedModel
from inductoscope.wording import count_of

_BAD = ("fails", "dies", "does not end")
_COPY = "The package brings a copy of the C++ library libstdc++, beside the one that torch uses."
SAID = f"running it again with {cpp_library.NAME} loaded first"
_BOTH_RUNS = f"two runs in child processes, the second with {cpp_library.NAME} loaded first"


def is_worth_it(first: RunOutcome, model: PackagedModel) -> bool:
    """Whether the copy may be why the first run did not end well."""
    return first.outcome in _BAD and cpp_library.brings_own(model.library)


def findings_of_both(
    first: RunOutcome, second: RunOutcome, model: PackagedModel
) -> Iterator[PackageFinding]:
    """What the second run says about the first."""
    if not _gets_further(first, second):
        text = f"{_COPY} {_both_fail(first, second)}"
        yield PackageFinding("cpp_library", text, _BOTH_RUNS, is_problem=False)
        return
    # What loads the package does the same every time. A model may also fail now and then, and a
    # busy machine may be slow once.
    is_proven = first.step == "load" and first.outcome != "does not end"
    why = f"{_COPY} The two {'' if is_proven else 'seem to '}get in each other's way: "
    if second.outcome == "runs":
        how = f"ends well, with {count_of(len(second.outputs), 'output')}"
    else:
        how = f"goes further, and then {_in_words(second)}"
    text = f"{why}with {cpp_library.NAME} loaded first, the same run {how}."
    confidence = "proven" if is_proven else "likely"
    yield PackageFinding("cpp_library", text, _BOTH_RUNS, confidence)
    yield from findings_of_run(second, model)
    yield _remedy(model)


def _gets_further(first: RunOutcome, second: RunOutcome) -> bool:
    steps = list(STEPS)
    return second.outcome == "runs" or steps.index(second.step) > steps.index(first.step)


def _both_fail(first: RunOutcome, second: RunOutcome) -> str:
    """How the second run ends, which gets no further than the first."""
    if _end(second) == _end(first):
        return f"That is not why: with {cpp_library.NAME} loaded first it ends the same."
    said = second.signal or first_lines(second.message)
    how = f"{_in_words(second)}{f' ({said})' if said else ''}"
    return (
        f"With {cpp_library.NAME} loaded first it {how}. Both runs fail, so that this does not "
        "show whether the copy has to do with it."
    )


def _end(run: RunOutcome) -> tuple[str, str, str, str]:
    """What two runs that end the same have in common: addresses are new every time."""
    message = re.sub(r"0x[0-9a-fA-F]+", "0x", first_lines(run.message))
    return run.outcome, run.step, run.signal, message


def _in_words(run: RunOutcome) -> str:
    if run.outcome == "broken guards":
        return "breaks a demand of the package"
    return f"{run.outcome} {run.where}"


def _remedy(model: PackagedModel) -> PackageFinding:
    command = model.wrapper.link_command if model.wrapper else ""
    linked = f"It was linked by {command.split()[0]}. " if command.split() else ""
    advice = cpp_library.advice(installed_compiler(), every_compiler())
    text = (
        f"To load it as it is: after import torch, run {cpp_library.CODE}, or start the program "
        f"with {cpp_library.PRELOAD}. Better, build it again with a compiler that links libstdc++ "
        f"dynamically. {linked}{advice}"
    )
    how = f"{_BOTH_RUNS}; the compiler was asked with -Wl,--trace"
    return PackageFinding("remedy", text, how, is_problem=False)
