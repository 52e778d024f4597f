"""A package brings a copy of libstdc++, which gets in the way of the one that torch uses.

When it applies: The program ends well under the tool, which had torch's own come before a copy, and
does not take long.

What it runs: The program without the tool and, if it fails, with libstdc++.so.6 loaded first and
nothing else changed; then both once more, because a program may fail now and then.

What it concludes: That the copy makes it fail, if it fails both times and ends well both times with
that library loaded first.

How sure: Proven by those runs if it fails both times in the same way, while it loads a package;
otherwise likely.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from inductoscope import verdicts as v
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.common_verdicts import nothing_found
from inductoscope.doctor.finding_verdict import relative_place
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.instructions import Instructions
from inductoscope.doctor.program_run import ProgramRun
from inductoscope.doctor.verdict import Culprit, Verdict, Workaround
from inductoscope.packages import cpp_library
from inductoscope.processes.stacks import StackFrame, threads_in
from inductoscope.recording.layout import signal_name
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.frames import frames_in
from inductoscope.torch_facts.messages import last_lines

# What the verdict blames.
STATIC = "libstdc++ linked statically"
# Where only the library was seen, before it was packaged.
_COMPILED_HERE = "a package that was compiled here"
# What torch calls so in the error that it raises.
_CREATE, _CREATE_FAILED = "AOTInductorModelContainerCreateWithDevice", "create_func_("
# How Python begins the stack of the thread that a signal ended.
_ENDED = "Current thread "
_LOADING = re.compile(r"torch/(_inductor/package/package|export/pt2_archive/_package|_export/)")


def _applies(case: ProgramCase) -> bool:
    return case.ends_well and bool(case.recording.copies_of_cpp_library) and not case.takes_long


def _examine(case: ProgramCase) -> Verdict | None:
    plain = case.runs.without_tool_once()
    if not plain.failed or not _preloaded(case).ended_well:
        return None
    traced = Instructions(inside=False, variables={"PYTHONFAULTHANDLER": "1"})
    again = case.runs.again(traced, "running it once more without the tool, to see where it fails")
    if not again.failed or not _preloaded(case).ended_well:
        return None  # It fails now and then.
    return _verdict(case, plain, again)


def _preloaded(case: ProgramCase) -> ProgramRun:
    first = Instructions(inside=False, variables=cpp_library.preloaded())
    return case.runs.again(first, f"running it without the tool, {cpp_library.NAME} loaded first")


def _stack(run: ProgramRun) -> tuple[StackFrame, ...]:
    """Where a signal ended it, the latest call first."""
    _, begin, rest = run.output.rpartition(_ENDED)
    return next((thread.frames for _, thread in threads_in(begin + rest)), ()) if begin else ()


def _fails_in_loading(run: ProgramRun) -> bool:
    if not run.ending.signal:
        return _CREATE_FAILED in run.output
    return any(_LOADING.search(frame.file) for frame in _stack(run)[:3])


def _fail_alike(plain: ProgramRun, again: ProgramRun) -> bool:
    """Whether both runs fail in the same way, while a package is loaded."""
    signal = plain.ending.signal
    # Only the second run says where a signal ended it.
    return (
        signal == again.ending.signal
        and _fails_in_loading(again)
        and (bool(signal) or _fails_in_loading(plain))
    )


def _loaded_there(case: ProgramCase, run: ProgramRun) -> tuple[list[str], list[str]]:
    """The packages that may be to blame, and the lines that load them.

    Those that are loaded at a line on the way to the failure; all of them if none is.
    """
    copies = dict.fromkeys(case.recording.copies_of_cpp_library)
    frames = _stack(run) if run.ending.signal else frames_in(run.output)
    lines = {f"{frame.file}:{frame.line}" for frame in frames}
    there = [copy for copy in copies if copy[1] in lines] or list(copies)
    names, places = (sorted({item for item in items if item}) for items in zip(*there, strict=True))
    return names, places


def _bring(names: Sequence[str]) -> str:
    """Packages as a subject, with the verb."""
    if len(names) > 1:
        return f"{', '.join(names)} each bring"
    return f"{names[0] if names else _COMPILED_HERE} brings"


def _verdict(case: ProgramCase, plain: ProgramRun, again: ProgramRun) -> Verdict:
    names, places = _loaded_there(case, again)
    how = f"dies of {signal_name(plain.ending.signal)}" if plain.ending.signal else "fails"
    result = Verdict(
        v.CRASH,
        stages.CPP_COMPILE,
        f"The program {how} because {_bring(names)} a copy of libstdc++, beside "
        "the one that torch uses: the C++ compiler linked it statically. It is how the package is "
        "linked, not what it computes.",
        "proven" if _fail_alike(plain, again) else "likely",
        Culprit(
            function=_CREATE if _CREATE_FAILED in plain.output else None,
            config=STATIC,
            source=relative_place(places[0]) if len(places) == 1 else None,
        ),
    )
    _add_evidence(result, case, plain, again)
    result.workaround = Workaround(
        f"start the program with {cpp_library.PRELOAD}",
        verified=True,
        code=f"export LD_PRELOAD={shlex.quote(cpp_library.preloaded()['LD_PRELOAD'])}",
    )
    return result


def _add_evidence(result: Verdict, case: ProgramCase, plain: ProgramRun, again: ProgramRun) -> None:
    codes = f"{plain.ending.exit_code} and {again.ending.exit_code}"
    result.add(
        f"exit codes {codes}, and both times 0 with {cpp_library.NAME} loaded first",
        f"four runs of the program without this tool, every other one with {cpp_library.PRELOAD}",
    )
    if again.ending.signal and _fails_in_loading(again):
        stack = "\n".join(frame.text for frame in _stack(again)[:3])
        result.add(stack, "where it dies, as Python says: it loads the package")
    else:
        result.add("\n".join(last_lines(plain.output, 3)), "what the program printed last")
    result.add(
        nothing_found(case).summary,
        f"the run under this tool, which does {cpp_library.CODE} once torch is imported and "
        "before the package is loaded; a program can do the same",
    )
    result.add(
        "to cure it, build the package with a compiler that links libstdc++ dynamically. "
        f"{cpp_library.advice()}",
        "the compilers were asked with -Wl,--trace; no other package was built",
    )


def note_copies(result: Verdict, case: ProgramCase) -> None:
    """Say that the tool came between, where the verdict is about something else."""
    copies = case.recording.copies_of_cpp_library
    names = sorted({name for name, _ in copies if name})
    if copies and result.culprit.config != STATIC:
        result.add(
            f"{_bring(names)} a copy of libstdc++, so {cpp_library.NAME} was loaded "
            "first; otherwise loading it can end in a segmentation fault or std::bad_cast",
            "done in every run under this tool; see: inductoscope aoti MODEL.pt2",
        )


HYPOTHESIS = Hypothesis(_applies, _examine)
