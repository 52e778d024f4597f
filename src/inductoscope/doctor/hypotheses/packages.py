"""The program calls packages that AOTInductor has compiled."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from inductoscope import verdicts as v
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.common_verdicts import nothing_found
from inductoscope.doctor.finding import Workaround
from inductoscope.doctor.instructions import Instructions
from inductoscope.doctor.judgement import relative_place
from inductoscope.doctor.runs import ProgramRun
from inductoscope.doctor.verdict import Culprit, Verdict
from inductoscope.packages import cpp_library
from inductoscope.packages.constants import is_about_view, overflows
from inductoscope.processes.stacks import StackFrame, threads_in
from inductoscope.recording.events import OUTSIDE, REJECTED, RIGHT_WITH_COPIES, WRONG_OUTSIDE, Check
from inductoscope.recording.layout import signal_name
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.frames import frames_in
from inductoscope.torch_facts.messages import last_lines
from inductoscope.torch_facts.stages import AOT_INDUCTOR


def broken_guards(case: ProgramCase) -> Verdict | None:
    """A package is called with something that it was not made for.

    Applies: Before a call, an input broke what the package demands: a type, a size, a range, a
    stride, a device; or a constant was replaced by a tensor of another kind; and that call was
    wrong, or raised, or killed the process, or cannot be compared.
    Runs: Nothing.
    Concludes: Not a bug in torch: which input breaks what, and how to have torch say so itself. A
    constant that is a view is an exception: nothing forbids it, and torch copies the wrong memory.
    How sure: Proven: the demand is in the package's own code, the input was there. Of a view,
    proven if the same call was right with copies of the constants; likely if the process died later
    on.
    """
    # The first call with such an input that is known to be wrong, or cannot be trusted.
    outside = case.checks_that_are(OUTSIDE)
    before = next((check for check in outside if _what_came_of(case, check)), None)
    if case.finding is not None or before is None:
        return None
    broken, _, place = before.text.partition(" (called at ")
    result = _of_view(case, before, broken) or Verdict(
        v.NOT_A_BUG,
        stages.USER,
        f"The package is called with something that it was not made for: {broken}.",
        "proven",
    )
    result.culprit.source = relative_place(place.rstrip(")")) if place else None
    is_rejected = any(check.verdict == REJECTED for check in _same_call(case, before))
    checks = "and torch rejects it" if is_rejected else "which does not check it by default"
    result.add(broken, f"the package's own code, {checks}")
    result.add(_what_came_of(case, before), f"call {before.call} of {before.compile}")
    return result.add(_OF_CONSTANTS if broken.startswith(_CONSTANT) else _TO_SEE_IT)


_TO_SEE_IT = (
    "with AOTI_RUNTIME_CHECK_INPUTS=1 in the environment torch raises an error instead; to accept "
    "such an input, export the program with it as the example, or with wider dynamic_shapes"
)
_CONSTANT = "constant "
_OF_CONSTANTS = (
    "give load_constants a tensor with memory of its own and the device, type, shape and strides "
    "of the constant, such as torch.empty_like(constant).copy_(value)"
)


def _what_came_of(case: ProgramCase, before: Check) -> str:
    """Return the bad outcome of a call; empty if the call was right, or the outcome is unknown."""
    same = _same_call(case, before)
    wrong = next((c.text for c in same if c.verdict in (WRONG_OUTSIDE, "error")), "")
    if wrong:
        return wrong
    rejected = next((c.text for c in same if c.verdict == REJECTED), "")
    if rejected:
        return "" if case.ends_well else f"{rejected}, and the program then {_how(case)}"
    if any(process.call == before.compile for process in case.recording.processes):
        return f"the program then {_how(case)}" if case.first.ending.exit_code else ""
    if overflows(before.text) and case.first.ending.signal:
        return f"the program then {_how(case)}"  # Overwritten memory may show later.
    is_foreign = before.text.startswith(_CONSTANT) and any(c.verdict == "skipped" for c in same)
    is_unknown = is_foreign or before.compile in case.packages_from_elsewhere
    if is_unknown and case.first.ending.exit_code == 0:
        return "the program went on with a result that cannot be trusted"
    return f"the program then {_how(case)}" if is_foreign else ""


def _of_view(case: ProgramCase, before: Check, broken: str) -> Verdict | None:
    """Judge constants that are views of a larger storage: valid, but torch reads them wrongly."""
    said = {check.verdict for check in _same_call(case, before)}
    is_wrong, dies = WRONG_OUTSIDE in said, bool(case.first.ending.signal)
    is_view = all(is_about_view(text) for text in broken.split("; constant "))
    if not is_view or not (is_wrong or dies):
        return None
    dies_there = any(process.call == before.compile for process in case.recording.processes)
    is_proven = RIGHT_WITH_COPIES in said and (is_wrong or dies_there)
    verdict = v.WRONG_RESULT if is_wrong else v.CRASH
    why = f"because load_constants of torch takes a view wrongly: {broken}"
    summary = f"{v.headline(verdict)}, {why}."
    result = Verdict(verdict, stages.RUNTIME, summary, "proven" if is_proven else "likely")
    if is_proven:
        result.add(
            "with value.clone() in place of each of these constants, the same call is right",
            "the package was given copies and called again, in a fork",
        )
    return result


def _same_call(case: ProgramCase, before: Check) -> list[Check]:
    return [c for c in case.checks if (c.compile, c.call) == (before.compile, before.call)]


def _how(case: ProgramCase) -> str:
    ending = case.first.ending
    if ending.signal:
        return f"died of {signal_name(ending.signal)}"
    return f"ended with exit code {ending.exit_code}"


def package_from_elsewhere(case: ProgramCase) -> Verdict | None:
    """A call of a package fails, and the program that it was made from is not here.

    Applies: The program failed or died while it called such a package, and no input is known to be
    what the package does not accept.
    Runs: Nothing: there is no graph to compare with, and no run without the package.
    Concludes: Which package it is, and what to examine instead.
    How sure: That it fails there is certain; why is unknown.
    """
    name, ending = _called_last(case), case.first.ending
    if case.finding is not None or ending.exit_code == 0 or not name:
        return None
    how = f"died of {signal_name(ending.signal)}" if ending.signal else "failed"
    result = Verdict(
        v.UNKNOWN,
        stages.RUNTIME,
        f"The program {how} in a call of {name}, which was made elsewhere. Why it "
        "fails shows in the program that makes the package: examine that one, or see what is in it "
        "and what it accepts with: inductoscope aoti MODEL.pt2",
    )
    raised = next((c.text for c in case.checks_that_are("error") if c.compile == name), "")
    raised = raised.partition("\n")[0]
    said = raised or "\n".join(last_lines(case.first.output, 3)) or "nothing"
    return result.add(
        said[:1500], "what the call raised" if raised else "what the program printed last"
    )


def _called_last(case: ProgramCase) -> str:
    """Return the package that a process was in when it died, or whose call raised."""
    names = case.packages_from_elsewhere
    said = case.first.output[-4000:]
    raised = [
        check.compile
        for check in case.checks_that_are("error")
        # Otherwise the program has caught the error, and failed for another reason.
        if check.compile in names and check.text.partition("\n")[0] in said
    ]
    died = [one.call for one in case.recording.processes if one.call in names]
    return next(iter([*died, *raised]), "")


def two_cpp_libraries(case: ProgramCase) -> Verdict | None:
    """A package brings a copy of libstdc++, which gets in the way of the one that torch uses.

    Applies: The program ends well under the tool, which had torch's own come before a copy, and
    does not take long.
    Runs: The program without the tool and, if it fails, with libstdc++.so.6 loaded first and
    nothing else changed; then both once more, because a program may fail now and then.
    Concludes: That the copy makes it fail, if it fails both times and ends well both times with
    that library loaded first.
    How sure: Proven by those runs if it fails both times in the same way, while it loads a package;
    otherwise likely.
    """
    if not case.ends_well or not case.recording.copies_of_cpp_library or case.takes_long:
        return None
    plain = case.runs.without_tool_once()
    if not plain.failed or not _preloaded(case).ended_well:
        return None
    traced = Instructions(inside=False, variables={"PYTHONFAULTHANDLER": "1"})
    again = case.runs.again(traced, "running it once more without the tool, to see where it fails")
    if not again.failed or not _preloaded(case).ended_well:
        return None  # The program fails intermittently.
    return _on_copy_of_library(case, plain, again)


# The culprit of the verdict.
STATIC = "libstdc++ linked statically"
# The names of steps in torch's error messages.
_CREATE, _CREATE_FAILED = "AOTInductorModelContainerCreateWithDevice", "create_func_("
_LOADING = re.compile(r"torch/(_inductor/package/package|export/pt2_archive/_package|_export/)")


def _preloaded(case: ProgramCase) -> ProgramRun:
    first = Instructions(inside=False, variables=cpp_library.preloaded())
    return case.runs.again(first, f"running it without the tool, {cpp_library.NAME} loaded first")


def _stack(run: ProgramRun) -> tuple[StackFrame, ...]:
    _, begin, rest = run.output.rpartition("Current thread ")
    return next((thread.frames for _, thread in threads_in(begin + rest)), ()) if begin else ()


def _fails_in_loading(run: ProgramRun) -> bool:
    if not run.ending.signal:
        return _CREATE_FAILED in run.output
    return any(_LOADING.search(frame.file) for frame in _stack(run)[:3])


def _on_copy_of_library(case: ProgramCase, plain: ProgramRun, again: ProgramRun) -> Verdict:
    signal = plain.ending.signal
    # Only the second run shows where a signal ended it.
    is_alike = signal == again.ending.signal and (bool(signal) or _fails_in_loading(plain))
    names, places = _loaded_there(case, again)
    how = f"dies of {signal_name(signal)}" if signal else "fails"
    result = Verdict(
        v.CRASH,
        stages.CPP_COMPILE,
        f"The program {how} because {_bring(names)} a copy of libstdc++, beside the one that torch "
        "uses: the C++ compiler linked it statically. It is how the package is linked, not what it "
        "computes.",
        "proven" if is_alike and _fails_in_loading(again) else "likely",
        Culprit(
            function=_CREATE if _CREATE_FAILED in plain.output else None,
            config=STATIC,
            source=relative_place(places[0]) if len(places) == 1 else None,
        ),
        workaround=Workaround(
            f"start the program with {cpp_library.PRELOAD}",
            verified=True,
            code=f"export LD_PRELOAD={shlex.quote(cpp_library.preloaded()['LD_PRELOAD'])}",
        ),
    )
    result.add(
        f"exit codes {plain.ending.exit_code} and {again.ending.exit_code}, and both times 0 with "
        f"{cpp_library.NAME} loaded first",
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
    return result.add(cpp_library.CURE, "no other package was built")


def _loaded_there(case: ProgramCase, run: ProgramRun) -> tuple[list[str], list[str]]:
    """Return packages loaded at a line on the stack of the failure, or else all; and the lines."""
    copies = dict.fromkeys(case.recording.copies_of_cpp_library)
    frames = _stack(run) if run.ending.signal else frames_in(run.output)
    lines = {f"{frame.file}:{frame.line}" for frame in frames}
    there = [copy for copy in copies if copy[1] in lines] or list(copies)
    names, places = (sorted({item for item in items if item}) for items in zip(*there, strict=True))
    return names, places


def _bring(names: Sequence[str]) -> str:
    """Return packages as the subject of a sentence, with its verb."""
    if len(names) > 1:
        return f"{', '.join(names)} each bring"
    return f"{names[0] if names else 'a package that was compiled here'} brings"


def note_copies(result: Verdict, case: ProgramCase) -> None:
    """Note that the tool prevented a conflict of copies, in a verdict about something else."""
    copies = case.recording.copies_of_cpp_library
    names = sorted({name for name, _ in copies if name})
    if copies and result.culprit.config != STATIC:
        result.add(
            f"{_bring(names)} a copy of libstdc++, so {cpp_library.NAME} was loaded "
            "first; otherwise loading it can end in a segmentation fault or std::bad_cast",
            "done in every run under this tool; see: inductoscope aoti MODEL.pt2",
        )


def package_not_compared(case: ProgramCase) -> Verdict | None:
    """The program fails, and calls of its packages could not all be compared.

    Applies: No compiled graph is known to be wrong, and the program has AOTInductor packages.
    Runs: The program with the exported programs in the place of its packages, unless a package was
    made elsewhere: that can neither be compared nor left out.
    Concludes: That a package is wrong, if the program ends well without them and compiles nothing
    else; otherwise nothing about the cause.
    How sure: Likely: the call that is wrong was not seen.
    """
    has_packages = case.runs.uses_packages or bool(case.packages_from_elsewhere)
    if not case.fails_unexplained or not has_packages:
        return None
    result = _from_elsewhere(case) if case.packages_from_elsewhere else _made_here(case)
    if result is not None:
        result.add("\n".join(last_lines(case.first.output, 3)), "what the program printed last")
        for check in case.checks_that_are("skipped")[:2]:
            result.add(f"not compared: {check.text}", f"call {check.call} of {check.compile}")
    return result


def _from_elsewhere(case: ProgramCase) -> Verdict:
    names = ", ".join(case.packages_from_elsewhere)
    return Verdict(
        v.UNKNOWN,
        stages.NO_STAGE,
        f"The program fails, and it calls {names}, which was made elsewhere. Whether that computes "
        "what it should shows only beside the program that makes it: examine that one.",
    )


def _made_here(case: ProgramCase) -> Verdict | None:
    eager = case.runs.in_eager_once("running it with exported programs in the place of packages")
    if eager.failed:
        return None
    what = (
        f"The program fails with what {AOT_INDUCTOR} has compiled, and ends well with the exported"
    )
    if all(each.flow for each in case.recording.compiles):
        text = f"{what} program in its place."
        was_called = any(check.compile for check in case.checks) and not case.first.ending.signal
        kind = v.WRONG_RESULT if was_called else v.CRASH
        result = Verdict(kind, stages.NO_STAGE, text, "likely")
        result.culprit.source = case.last_compiled
        return result
    text = f"{what} program, and everything that torch.compile compiles, in eager."
    return Verdict(v.UNKNOWN, stages.NO_STAGE, text)
