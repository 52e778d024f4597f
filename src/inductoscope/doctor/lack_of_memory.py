"""Memory that ran out, of a GPU or of the machine: who holds it, and whose verdict that is.

Another process, the tool itself, or the program may be to blame.
"""

from __future__ import annotations

import signal

from inductoscope import verdicts as v
from inductoscope.doctor.failure import Failure
from inductoscope.doctor.runs import ProgramRun
from inductoscope.doctor.verdict import Verdict
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.messages import (
    OutOfMemory,
    asked_of_main_memory,
    last_lines,
    out_of_memory,
)
from inductoscope.wording import count_of

# An exception is among the last lines, though advice may follow it.
_LAST = 8


def lack_of_memory(run: ProgramRun) -> OutOfMemory | None:
    """Return the lack of memory that a run failed of; None if it did not."""
    if not run.failed and run.finding is None:
        return None
    said = "\n".join(last_lines(run.output, _LAST))
    if run.finding is not None:
        said = _message_of(run.finding.failure)
    on_gpu = out_of_memory(said)
    if on_gpu is not None or run.memory is None:
        return on_gpu
    asked, memory = asked_of_main_memory(said), run.memory
    # With a finding, the doctor may have ended the program itself.
    ended_by_signal = run.ending.signal == signal.SIGKILL and run.finding is None
    is_killed = signal.SIGKILL.name in said or ended_by_signal
    if asked is None and not (is_killed and memory.killed):
        return None
    limit = memory.limit
    own, tool = memory.program, memory.tool
    if not limit.is_shared:
        own, tool = limit.total - limit.free, 0
    free = max(0, limit.free)
    return OutOfMemory(limit.name, asked or 0, limit.total, free, own, tool, limit.is_shared)


def _message_of(failure: Failure) -> str:
    return f"{failure.aspect}: {failure.message} {failure.text}"


def memory_is_full(run: ProgramRun, lack: OutOfMemory) -> Verdict:
    """Make the verdict that other processes hold the memory that a run could not allocate."""
    advice = ", or choose another GPU with CUDA_VISIBLE_DEVICES" if lack.is_gpu else ""
    result = Verdict(
        v.NOT_CHECKED,
        stages.NO_STAGE,
        f"Other processes hold {in_gib(lack.of_others)} of the {in_gib(lack.total)} GiB of "
        f"{lack.place}, so the program ran out of memory. Nothing is known to be wrong with it. "
        f"End them{advice}.",
        # What a killed process had asked for is not known.
        "proven" if lack.tried else "likely",
    )
    return with_holders(result, run).add(run.last_words, "what the program printed last")


def does_not_fit_with_tool(run: ProgramRun, lack: OutOfMemory, plain: ProgramRun) -> Verdict:
    """Make the verdict that a program runs out of memory only because it is checked."""
    result = Verdict(
        v.NOT_CHECKED,
        stages.NO_STAGE,
        "The program and what a check adds, its copies and a compile without caches, do not fit "
        f"into the {in_gib(lack.total)} GiB of {lack.place}; without the tool it ends well. Check "
        "fewer calls with --calls, use a smaller batch, or give it more memory.",
        "proven",
    )
    with_holders(result, run).add(run.last_words, "what the program printed last")
    return result.add(holders(plain), "without the tool, when memory was scarcest")


def only_compiled(run: ProgramRun, lack: OutOfMemory, eager: ProgramRun, stage: str) -> Verdict:
    """Make the verdict that a program runs out of memory when compiled, and not in eager."""
    # What a killed process had asked for may have fitted, had this tool held nothing.
    is_sure = lack.tried > lack.free + lack.of_tool
    result = Verdict(
        v.CRASH if is_sure else v.NOT_CHECKED,
        stage if is_sure else stages.NO_STAGE,
        f"Compiled, the program needs more memory than in eager, where it ends well: it ran out of "
        f"the {in_gib(lack.total)} GiB of {lack.place}. No compiled graph is known to be wrong.",
        "proven" if is_sure else "likely",
    )
    with_holders(result, run).add(run.last_words, "what the program printed last")
    return result.add(holders(eager), "in eager, when memory was scarcest")


def with_holders(result: Verdict, run: ProgramRun) -> Verdict:
    """Add what a run failed to allocate, and who held how much, if it ran out of memory."""
    lack = lack_of_memory(run)
    if lack is None:
        return result
    tried = f"it failed to allocate {in_gib(lack.tried)} GiB" if lack.tried else ""
    killed = run.memory.killed if run.memory is not None and not tried else 0
    by_kernel = f"the OOM killer killed {count_of(killed, 'process')}" if killed else ""
    result.add(tried or by_kernel, "its counter oom_kill" if by_kernel else "what it printed")
    if not lack.is_gpu:
        result.add(holders(run), "when memory was scarcest, sampled several times a second")
    return result


def holders(run: ProgramRun) -> str:
    """Return who held how much of main memory when it was scarcest; "" if that is not known."""
    memory = run.memory
    if memory is None:
        return ""
    limit = memory.limit
    who = f"the program {in_gib(limit.total - limit.free)}"
    if limit.is_shared:
        who = (
            f"the program {in_gib(memory.program)}, inductoscope {in_gib(memory.tool)}, other "
            f"processes {in_gib(memory.others)}"
        )
    free = in_gib(max(0, limit.free))
    return f"of the {in_gib(limit.total)} GiB of {limit.name}: {who}, free {free}"


def in_gib(size: int) -> str:
    return f"{size / (1 << 30):.{1 if size >= 1 << 30 else 2}f}"
