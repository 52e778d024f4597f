"""What a second run shows, with the C++ library that torch uses loaded before the package.

Both runs are the same but for that, so that the second one shows what the copy does to the first.
"""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.packages import cpp_library
from inductoscope.packages.cpp_program import every_compiler, installed_compiler
from inductoscope.packages.findings import PackageFinding, findings_of_run
from inductoscope.packages.package import PackagedModel
from inductoscope.packages.running import RunOutcome, first_lines
from inductoscope.vocabulary.counting import count_of

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
    if second.outcome in _BAD and _end(second) == _end(first):
        text = f"{_COPY} That is not why: with {cpp_library.NAME} loaded first it ends the same."
        yield PackageFinding("cpp_library", text, _BOTH_RUNS, is_problem=False)
        return
    # What loads the package does the same every time. A model may also fail now and then.
    is_proven = first.step == "load" and (second.outcome == "runs" or second.step != "load")
    why = f"{_COPY} The two {'' if is_proven else 'seem to '}get in each other's way: "
    if second.outcome == "runs":
        how = f"ends well, with {count_of(len(second.outputs), 'output')}"
    else:
        how = f"{'goes further, and then ' if is_proven else ''}{_in_words(second)}"
    text = f"{why}with {cpp_library.NAME} loaded first, the same run {how}."
    confidence = "proven" if is_proven else "likely"
    yield PackageFinding("cpp_library", text, _BOTH_RUNS, confidence)
    yield from findings_of_run(second, model)
    yield _remedy(model)


def _end(run: RunOutcome) -> tuple[str, str, str, str]:
    return run.outcome, run.step, run.signal, first_lines(run.message)


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
