"""CUDA graphs reuse memory that the program still reads.

When it applies: The program fails on its own, ends well while its graphs are checked, which is
done without CUDA graphs, and has Triton kernels.

What it runs: The program without checks, as it is and with CUDA graphs off; if that helps, with the
outputs of every compiled function cloned.

What it concludes: That CUDA graphs make it fail, with the line whose result was overwritten if
torch says so, and whether clones help.

How sure: Proven by two runs that differ in nothing else.
"""

from __future__ import annotations

import re

from inductoscope import verdicts as v
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.finding_verdict import relative_place
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.instructions import Instructions
from inductoscope.doctor.program_run import ProgramRun
from inductoscope.doctor.verdict import Culprit, Verdict, Workaround
from inductoscope.torch_facts import stages

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


def _applies(case: ProgramCase) -> bool:
    if not case.ends_well or not _has_triton(case):
        return False
    return case.runs.without_tool_once().failed


def _has_triton(case: ProgramCase) -> bool:
    kernels = (kernel for graph in case.recording.graphs for kernel in graph.kernels)
    return any(kernel.language == "Triton" for kernel in kernels)


def _examine(case: ProgramCase) -> Verdict | None:
    failing = _run(case, "", "running it without checks")
    if not failing.failed:
        return None
    if _run(case, _OFF, "running it without CUDA graphs").ending.exit_code != 0:
        return None
    is_said = _OVERWRITTEN in failing.output
    what = (
        "it reads the output of a compiled function after a later call has overwritten it"
        if is_said
        else "memory that they reuse is read or written at the wrong time"
    )
    place = _place(failing.output)
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


def _workaround(case: ProgramCase) -> Workaround:
    helps = _run(case, _CLONED, "trying on the program: clone what compiled functions return")
    if helps.ending.exit_code == 0:
        text = "clone what the compiled function returns before it is called again"
        return Workaround(text, True, None, _CLONED)
    return Workaround('compile without CUDA graphs: {"triton.cudagraphs": False}', True, None, _OFF)


def _run(case: ProgramCase, workaround: str, why: str) -> ProgramRun:
    return case.runs.again(
        Instructions(calls=0, investigate=False, workaround=workaround, random_as_eager=False), why
    )


def _place(output: str) -> str | None:
    """The line of the program that computed what was overwritten."""
    _, _, after = output.partition(f"{_OVERWRITTEN}.")
    frames = _FRAME.findall(after)
    return relative_place(":".join(frames[0])) if frames else None


HYPOTHESIS = Hypothesis(_applies, _examine)
