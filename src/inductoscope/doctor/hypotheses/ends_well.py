"""The program ended well under the tool: it is clean, or the tool has hidden something."""

from __future__ import annotations

import re
from dataclasses import replace

from inductoscope import verdicts as v
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.common_verdicts import (
    nothing_found,
    other_random_numbers,
    what_was_not_checked,
)
from inductoscope.doctor.finding import Workaround
from inductoscope.doctor.instructions import Instructions
from inductoscope.doctor.judgement import relative_place, verdict_on
from inductoscope.doctor.runs import ProgramRun
from inductoscope.doctor.verdict import Culprit, Verdict
from inductoscope.torch_facts import stages


def clean(case: ProgramCase) -> Verdict | None:
    """Nothing is wrong.

    Applies: The program ended well, and no compiled graph is known to be wrong.
    Runs: The program without the tool, unless it takes long.
    Concludes: Clean, unless the program fails without the tool.
    How sure: Proven if every call could be compared, likely if some could not, unknown if none
    could.
    """
    if not case.ends_well:
        return None
    result = nothing_found(case)
    if case.recording.compiles:
        result.not_checked = list(what_was_not_checked(case))
    if case.takes_long:
        result.not_checked.append(
            f"the program without the tool: the first run took {case.first.ending.seconds:.0f} s"
        )
        return result
    plain = case.runs.without_tool_once()
    if plain.failed:
        return None
    well = "the program also ends well without the tool"
    late = "without the tool the program did not end in time"
    return result.add(well if plain.ending.exit_code == 0 else late, "one run")


def inductor_random_numbers(case: ProgramCase) -> Verdict | None:
    """The program fails only with the random numbers that Inductor draws.

    Applies: The program fails without the tool, which makes compiled code draw random numbers as
    eager does, and not with it; and its graphs draw random numbers.
    Runs: The program with every graph compiled with Inductor's own random numbers, too; then
    without checks, with Inductor's random numbers and with eager's.
    Concludes: What is wrong with such a graph, if something is. Not a bug, if the program fails
    with Inductor's numbers and not with eager's.
    How sure: Proven by two runs that differ in nothing else.
    """
    if not case.ends_well or not case.random_operations:
        return None
    return _in_whole_graphs(case) or _in_the_program(case)


def _in_whole_graphs(case: ProgramCase) -> Verdict | None:
    """Compile large graphs whole: the first run checked only their single nodes."""
    instructions = replace(case.instructions, random_in_whole_graphs=True)
    again = case.runs.again(instructions, "compiling every graph with Inductor's random numbers")
    case.finding = again.finding
    case.prove_and_help()
    if case.finding is not None and case.proof.is_verified:
        return verdict_on(case.finding)
    case.proof.forget()
    case.finding = None
    return None


def _in_the_program(case: ProgramCase) -> Verdict | None:
    run = case.runs.again(
        Instructions(calls=0, investigate=False, random_as_eager=False),
        "running the program with random numbers as Inductor draws them",
    )
    if not run.failed:
        return None
    control = case.runs.again(
        Instructions(calls=0, investigate=False), "running it without checks, with eager's"
    )
    if control.ending.exit_code != 0:
        return None
    result = other_random_numbers(case, is_shown=True)
    return result.add(
        "fails with the random numbers that Inductor draws, not with those of eager", "two runs"
    )


def cuda_graphs(case: ProgramCase) -> Verdict | None:
    """CUDA graphs reuse memory that the program still reads.

    Applies: The program fails on its own, ends well while its graphs are checked, which is done
    without CUDA graphs, and has Triton kernels.
    Runs: The program without checks, as it is and with CUDA graphs off; if that helps, with the
    outputs of every compiled function cloned.
    Concludes: That CUDA graphs make it fail, with the line whose result was overwritten if torch
    says so, and whether clones help.
    How sure: Proven by two runs that differ in nothing else.
    """
    kernels = (kernel for graph in case.recording.graphs for kernel in graph.kernels)
    has_triton = any(kernel.language == "Triton" for kernel in kernels)
    if not case.ends_well or not has_triton or not case.runs.without_tool_once().failed:
        return None
    failing = _run(case, "", "running it without checks")
    if not failing.failed:
        return None
    if _run(case, _OFF, "running it without CUDA graphs").ending.exit_code != 0:
        return None
    is_said = _OVERWRITTEN in failing.output
    what = "memory that they reuse is read or written at the wrong time"
    if is_said:
        what = "it reads the output of a compiled function after a later call has overwritten it"
    # The line of the program that computed the overwritten result.
    frames = _FRAME.findall(failing.output.partition(f"{_OVERWRITTEN}.")[2])
    place = relative_place(":".join(frames[0])) if frames else None
    at = f" (result of {place})" if place else ""
    result = Verdict(
        v.CRASH if "Traceback" in failing.output and is_said else v.WRONG_RESULT,
        stages.RUNTIME,
        f"The program fails because of CUDA graphs: {what}{at}.",
        "proven",
        Culprit(function="cudagraph_trees", config="triton.cudagraphs", source=place),
    )
    result.add("fails with CUDA graphs, ends well without them", "two runs without checks")
    result.add(failing.output[-800:], "what the program printed")
    result.workaround = _workaround(case)
    return result


_OVERWRITTEN = "overwritten by a subsequent run"
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_WRAPPED = """\
import functools
import torch._inductor
plain_compile = torch.compile
def compile_{name}(model=None, *, mode=None, options=None, **kwargs):
    if model is None:
        return functools.partial(compile_{name}, mode=mode, options=options, **kwargs)
{body}
torch.compile = compile_{name}"""


_OFF = _WRAPPED.format(
    name="without_cuda_graphs",
    body="""\
    settings = {**torch._inductor.list_mode_options(mode or "default"), **(options or {})}
    settings["triton.cudagraphs"] = False
    return plain_compile(model, options=settings, **kwargs)""",
)


_CLONED = _WRAPPED.format(
    name="and_clone",
    body="""\
    compiled = plain_compile(model, mode=mode, options=options, **kwargs)
    def call(*args, **inputs):
        found = compiled(*args, **inputs)
        return torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, found)
    return call""",
)


def _workaround(case: ProgramCase) -> Workaround:
    helps = _run(case, _CLONED, "trying on the program: clone what compiled functions return")
    if helps.ending.exit_code == 0:
        text = "clone what the compiled function returns before it is called again"
        return Workaround(text, True, None, _CLONED)
    return Workaround('compile without CUDA graphs: {"triton.cudagraphs": False}', True, None, _OFF)


def _run(case: ProgramCase, workaround: str, message: str) -> ProgramRun:
    return case.runs.again(
        Instructions(calls=0, investigate=False, workaround=workaround, random_as_eager=False),
        message,
    )


def hidden_by_the_tool(case: ProgramCase) -> Verdict | None:
    """The tool keeps the program from failing.

    Applies: The program fails without the tool and not with it, and neither random numbers nor CUDA
    graphs explain that.
    Runs: Nothing more.
    Concludes: That it fails, and that the cause is unknown.
    How sure: Unknown.
    """
    if not case.ends_well:
        return None
    plain = case.runs.without_tool_once()
    result = Verdict(
        v.UNKNOWN,
        stages.NO_STAGE,
        "The program fails on its own but not under inductoscope, which limits it to one OpenMP "
        "thread and uses eager's random numbers; the cause is unknown.",
    )
    result.add(f"exit code {plain.ending.exit_code} without the tool, 0 with it", "two runs")
    result.add(plain.output[-800:], "what the program printed without the tool")
    result.evidence += nothing_found(case).evidence
    return result
