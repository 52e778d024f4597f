"""A package brings a copy of libstdc++, which gets in the way of the one that torch uses.

When it applies: The program ends well under the tool, which had torch's own come before a copy.

What it runs: The program without the tool and, if it fails, once more with libstdc++.so.6 loaded
first and nothing else changed. If a signal ends it, once more, to see where.

What it concludes: That the copy makes it fail, if it then ends well.

How sure: Proven by those runs if it fails while it loads a package, otherwise likely: it may fail
now and then for another reason.
"""

from __future__ import annotations

import re

from inductoscope.doctor.instructions import Instructions
from inductoscope.doctor.outside.common_verdicts import nothing_found
from inductoscope.doctor.outside.finding_verdict import relative_place
from inductoscope.doctor.outside.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.outside.program import ProgramRun
from inductoscope.doctor.outside.program_case import ProgramCase
from inductoscope.doctor.verdict import Culprit, Verdict, Workaround
from inductoscope.packages import cpp_library
from inductoscope.packages.cpp_program import every_compiler, installed_compiler
from inductoscope.processes.last_words import last_lines
from inductoscope.recording.signals import signal_name
from inductoscope.vocabulary import stages
from inductoscope.vocabulary import verdicts as v

# What the verdict blames.
STATIC = "libstdc++ linked statically"
# What torch calls so in the error that it raises.
_CREATE, _CREATE_FAILED = "AOTInductorModelContainerCreateWithDevice", "create_func_("
# Of the stack that Python writes when a signal ends it, the latest call first.
_FRAMES = re.compile(r'^  File "[^"]+", line \d+ in \S+$', re.MULTILINE)
_LOADING = re.compile(r"torch/(_inductor/package/package|export/pt2_archive/_package|_export/)")


def _applies(case: ProgramCase) -> bool:
    return case.ends_well and bool(case.recording.copies_of_cpp_library)


def _examine(case: ProgramCase) -> Verdict | None:
    plain = case.runs.without_tool_once()
    if not plain.failed:
        return None
    again = Instructions(inside=False, variables=cpp_library.preloaded())
    cured = case.runs.again(again, f"running it without the tool, {cpp_library.NAME} loaded first")
    return _verdict(case, plain, cured) if cured.ended_well else None


def _where(case: ProgramCase, plain: ProgramRun) -> str:
    """The last lines of a stack that ends where a package is loaded; empty if it does not."""
    if not plain.ending.signal:
        return plain.output if _CREATE_FAILED in plain.output else ""
    again = Instructions(inside=False, variables={"PYTHONFAULTHANDLER": "1"})
    output = case.runs.again(again, "running it once more, to see where it dies").output
    stack = _FRAMES.findall(output.partition("Current thread ")[2])[:3]
    return "\n".join(stack) if any(_LOADING.search(frame) for frame in stack) else ""


def _verdict(case: ProgramCase, plain: ProgramRun, cured: ProgramRun) -> Verdict:
    package, source = max(case.recording.copies_of_cpp_library)
    where = _where(case, plain)
    how = f"dies of {signal_name(plain.ending.signal)}" if plain.ending.signal else "fails"
    result = Verdict(
        v.CRASH,
        stages.CPP_COMPILE,
        f"The program {how} because {package or 'a package'} brings a copy of libstdc++, beside "
        "the one that torch uses: the C++ compiler linked it statically. It is how the package is "
        "linked, not what it computes.",
        "proven" if where else "likely",
        Culprit(
            function=_CREATE if _CREATE_FAILED in plain.output else None,
            config=STATIC,
            source=relative_place(source) if source else None,
        ),
    )
    result.add(
        f"exit code {plain.ending.exit_code}, and {cured.ending.exit_code} with "
        f"{cpp_library.NAME} loaded first",
        f"two runs of the program without this tool, the second with {cpp_library.PRELOAD}",
    )
    if plain.ending.signal and where:
        result.add(where, "where it dies, as Python says: it loads the package")
    else:
        result.add("\n".join(last_lines(plain.output, 3)), "what the program printed last")
    result.add(nothing_found(case).summary, f"with {cpp_library.NAME} loaded first")
    result.workaround = Workaround(
        f"start the program with {cpp_library.PRELOAD}, or have it load that library before the "
        "package, as below. To cure it, build the package with a compiler that links libstdc++ "
        f"dynamically. {cpp_library.advice(installed_compiler(), every_compiler()).rstrip('.')}",
        verified=True,
        code=f"import ctypes\n{cpp_library.CODE}",
    )
    return result


def note_copies(result: Verdict, case: ProgramCase) -> None:
    """Say that the tool came between, where the verdict is about something else."""
    packages = sorted({name for name, _ in case.recording.copies_of_cpp_library if name})
    if packages and result.culprit.config != STATIC:
        result.add(
            f"{', '.join(packages)} brings a copy of libstdc++, so {cpp_library.NAME} was loaded "
            "first; otherwise loading it can end in a segmentation fault or std::bad_cast",
            "done in every run under this tool; see: inductoscope aoti MODEL.pt2",
        )


HYPOTHESIS = Hypothesis(_applies, _examine)
