"""A compile that raised an exception.

What it finds: exceptions that left the compiler, with the stage that raised them and, if known, the
node, pass or file it was working on. An exception that Dynamo swallowed, so that the frame ran in
eager, is not an error; the rule on graph breaks reports those. What is raised only because the GPU
of `--target` is not there is a note.

Why it matters: the program stops, or runs uncompiled if errors are suppressed.

Example: a lowering that fails on one operation, a kernel that g++ rejects.

What to do: read the innermost cause; look at the stage with `inductoscope show --stage`.
"""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.analysis.rules.graph_breaks import short_reason
from inductoscope.model.entities import Compile, CompileError, Recording
from inductoscope.model.operation_trace import operations_of, source_of_node
from inductoscope.model.target import recording_target
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.messages import asked_in_vain

# Raised by whoever wants to stop the program, not by the compiler.
INTERRUPTIONS = ("KeyboardInterrupt", "SystemExit")


def was_interrupted(compile_: Compile) -> bool:
    """Whether somebody ended it from outside, most often with Ctrl-C."""
    return any(error.type in INTERRUPTIONS for error in compile_.errors)


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per exception that left the compiler."""
    for compile_ in recording.compiles:
        for error in compile_.errors:
            if not error.swallowed:
                yield _finding(recording, compile_, error)


def _interruption(compile_: Compile, error: CompileError, at: str) -> Finding:
    return Finding(
        rule="compile_error",
        title=f"The compile of {compile_.function or 'a frame'} was interrupted in stage "
        f"{error.stage}{at}",
        is_problem=False,
        confidence="proven",
        evidence=(f"{error.type} left the compiler during compile {compile_.id}",),
        advice="If you interrupted it because it made no progress, this is where it was.",
        stage=error.stage,
        source=compile_.place,
        compile=compile_.id,
    )


def _limit_of_the_target(
    target: str, asked: str, compile_: Compile, error: CompileError
) -> Finding:
    return Finding(
        rule="compile_error",
        title=f"The compile of {compile_.function or 'a frame'} ended early: torch asked for "
        f"{asked}, which only a real GPU has. This is a limit of --target {target}, not a fault of "
        "the program",
        is_problem=False,
        confidence="proven",
        evidence=(
            f"{error.type} left the compiler during compile {compile_.id}, in stage {error.stage}",
            *(f"raised in {place}" for place in error.raised_in[:1]),
        ),
        advice="What was compiled before is recorded. Choose another mode of torch.compile to get "
        "further, or run on the GPU itself.",
        stage=error.stage,
        source=compile_.place,
        compile=compile_.id,
    )


def _finding(recording: Recording, compile_: Compile, error: CompileError) -> Finding:
    operations = operations_of(recording, compile_, error.graph, error.detail)
    if error.type in INTERRUPTIONS:
        return _interruption(compile_, error, _at(error, operations))
    target = recording_target(recording)
    asked = asked_in_vain("\n".join((error.message, *error.causes))) if target else ""
    if asked:
        return _limit_of_the_target(target, asked, compile_, error)
    complaint = _compiler_complaint(recording, error)
    return Finding(
        rule="compile_error",
        title=f"The compile of {compile_.function or 'a frame'} failed in stage {error.stage}"
        f"{_at(error, operations)}: {(complaint or _innermost(error))[:400]}",
        is_problem=True,
        confidence="proven",
        evidence=(
            f"{error.type} left the compiler during compile {compile_.id}",
            *(f"raised in {place}" for place in error.raised_in[:1]),
            *(f"called from {place}" for place in error.raised_in[1:3]),
        ),
        advice=_advice(error),
        stage=error.stage,
        source=error.source
        or source_of_node(recording, compile_, error.graph, (operations or [error.detail])[-1])
        or compile_.place,
        compile=compile_.id,
    )


def _at(error: CompileError, operations: list[str]) -> str:
    inside = f" ({', '.join(operations[:8])})" if operations else ""
    return f", at {error.detail}{inside}" if error.detail else ""


def _innermost(error: CompileError) -> str:
    text = error.causes[-1] if error.causes else f"{error.type}: {short_reason(error.message)}"
    return text.strip().splitlines()[0] if text.strip() else error.type


def _compiler_complaint(recording: Recording, error: CompileError) -> str:
    """What the native compiler said, if it was the one that failed."""
    if error.stage not in (stages.CPP_COMPILE, stages.WRAPPER, stages.TRITON_COMPILE):
        return ""
    failed = [native for native in recording.natives if native.exit_code or native.error]
    if not failed:
        return ""
    # The last one: torch first tries out what the compiler can do, and some of that may fail.
    native = failed[-1]
    lines = recording.payload(native.messages).splitlines()
    complaint = next((line for line in lines if "error:" in line.lower()), native.error)
    return f"{native.tool} compiler: {complaint.strip()}" if complaint.strip() else ""


def _advice(error: CompileError) -> str:
    view = stages.SHOWN_AS.get(error.stage)
    if error.stage == stages.DYNAMO:
        otherwise = " Without fullgraph=True it would break the graph here and continue."
        is_refusal = "Internal" not in error.type
        refused = "Dynamo failed before Inductor received a graph."
        return refused + (otherwise if is_refusal else "")
    if view is None:
        return "See the traceback with 'inductoscope show --stage errors'."
    return (
        "See the traceback with 'inductoscope show --stage errors' and the state of the stage "
        f"with 'inductoscope show --stage {view}'."
    )
