"""Investigates a failure, in this process or its copy, and then ends the program."""

from __future__ import annotations

import os
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import torch

from inductoscope.doctor.failure import SLOW, Failure, Location
from inductoscope.doctor.finding import (
    PROGRAM,
    FailureFinding,
    Mistake,
    Noticed,
    Reduction,
    Script,
    SearchProgress,
    finding_in,
)
from inductoscope.doctor.instructions import INVESTIGATING, STOPPED, Instructions
from inductoscope.errors import ToolFailure
from inductoscope.inside.doctor.investigation import Investigation
from inductoscope.inside.doctor.program_copy import program_copy
from inductoscope.inside.doctor.slow_investigation import GrowthMeasurement, SlowInvestigation
from inductoscope.inside.finding_writer import record, say
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.error_location import kernel_called_from
from inductoscope.inside.search.failure_signature import first_to_last, raising_functions
from inductoscope.inside.search.forks import can_fork
from inductoscope.processes.status import is_alive
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.python_wrappers import nodes_of_kernel


def investigate_and_stop(
    candidate: Candidate, finding: FailureFinding, place: Path, instructions: Instructions
) -> NoReturn:
    """Investigate, record the findings, and end the program."""
    _wait_for_others(place)
    try:
        say(f"found: {finding.failure.text.partition(chr(10))[0]}")
        record(finding)
        _investigate(candidate, finding, place, instructions)
    except BaseException:
        record(FailureFinding().claimed(Mistake("".join(traceback.format_exc())[-3000:])))
    _stop()


def _investigate(
    candidate: Candidate, finding: FailureFinding, place: Path, instructions: Instructions
) -> None:
    """Investigate in this process, or in its copy if it uses a GPU and cannot fork."""
    copy = None if can_fork() else program_copy()
    if copy is None:
        if not is_device_lost():
            investigate(candidate, finding, place, instructions)
        return
    try:
        copy.run(investigate, candidate, finding, place, instructions, place=place)
    except ToolFailure as error:
        record(FailureFinding().claimed(Mistake(str(error))))
        known = finding_in(place.parent) or finding
        if not known.reproduces and not is_device_lost():
            investigate(candidate, known, place, instructions)


def stop_with(finding: FailureFinding) -> NoReturn:
    """Record the finding, and end the program."""
    record(finding)
    _stop()


def _stop() -> NoReturn:
    SCOPE.close()
    os._exit(STOPPED)


def describe_own_process() -> str:
    """Return the rank, or the script, of this process."""
    rank = os.environ.get("RANK")
    if rank is not None:
        return f"rank {rank} of {os.environ.get('WORLD_SIZE', '?')}"
    return os.path.basename(sys.argv[0])


def _wait_for_others(place: Path) -> None:
    """Claim the investigation, or wait until the process that claimed it is done, and exit.

    If the others continued or ended, their launcher could end all of them.
    """
    mark = place / INVESTIGATING
    try:
        with mark.open("x") as file:
            file.write(str(os.getpid()))
        return
    except FileExistsError:
        pass
    except OSError:
        return
    while is_alive(int(mark.read_text() or os.getpid())):
        time.sleep(0.5)
    os._exit(STOPPED)


# --- Starts the investigation that a failure calls for --------------------------------------------


def investigate(
    candidate: Candidate, finding: FailureFinding, place: Path, instructions: Instructions
) -> None:
    """Run the investigation that fits the kind of failure."""
    arguments = candidate, finding, place, instructions
    if finding.kind != SLOW:
        Investigation(*arguments).run()
    elif instructions.grow:
        GrowthMeasurement(*arguments).run()
    else:
        SlowInvestigation(*arguments).run()


# --- A GPU that this process can no longer use: what the error itself says ------------------------
#
# After a failed assertion or an illegal access on a GPU, every later call of the process fails too.
# Nothing can be tried in it, and no fork of it can use the GPU. But under the doctor launches are
# synchronous, so the line of the generated wrapper that raised names the kernel.

_NO_SCRIPT = "after this error the process cannot use the GPU, so nothing could be tried"


def is_device_lost() -> bool:
    """Check whether every call to the GPU fails."""
    if not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except Exception:
        return True
    return False


def found_in_error(
    noticed: Noticed, failure: Failure, module: torch.fx.GraphModule, error: BaseException
) -> FailureFinding:
    """Return a finding about the kernel that failed, its operations and source lines."""
    functions = [name for one in first_to_last(error) for name in raising_functions(one)]
    wrapper, kernel = kernel_called_from(functions)
    nodes, operations = _contents(wrapper, kernel)
    text = f"the launch of {kernel} raised the error" if kernel else ""
    how = "every launch was synchronous" if kernel else ""
    sources = tuple(source_lines_of(module, nodes))
    return (
        FailureFinding()
        .claimed(noticed)
        .claimed(replace(failure, functions=tuple(functions[:6])), PROGRAM)
        .claimed(Location(stage=stages.RUNTIME, kernel=kernel, text=text, how=how), PROGRAM)
        .claimed(Reduction(operations=tuple(operations), sources=sources), PROGRAM)
        .claimed(Script(why_not=_NO_SCRIPT))
        .claimed(SearchProgress(is_complete=True))
    )


def _contents(wrapper: str, kernel: str) -> tuple[list[str], list[str]]:
    """Return the nodes and ATen operations in a kernel, from the comments of the wrapper."""
    try:
        return nodes_of_kernel(Path(wrapper).read_text("utf-8", "replace"), kernel)
    except OSError:
        return [], []


def source_lines_of(module: torch.fx.GraphModule, names: list[str]) -> list[str]:
    """Return the lines of the program that nodes of a graph come from."""
    from inductoscope.inside.search.wrong_result_location import places_of

    chosen: list[Any] = [node for node in module.graph.nodes if node.name in names]
    return places_of(chosen or [node for node in module.graph.nodes if node.op != "output"])
