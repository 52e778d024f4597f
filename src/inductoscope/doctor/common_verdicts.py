"""Verdicts shared by several hypotheses."""

from __future__ import annotations

import os
import platform
import re
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote

from inductoscope import verdicts as v
from inductoscope.analysis.rules.dynamo import ran_in_eager
from inductoscope.doctor.alarm import Alarm
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.failure import WRONG, Failure
from inductoscope.doctor.instructions import CALLS_BY_EACH_RANK
from inductoscope.doctor.lack_of_memory import lack_of_memory, with_holders
from inductoscope.doctor.runs import ProgramRun
from inductoscope.doctor.slowness import LONGEST_TO_TIME, may_be_slower
from inductoscope.doctor.symptom import says_the_same
from inductoscope.doctor.verdict import Culprit, Verdict
from inductoscope.model.entities import Compile, Recording
from inductoscope.model.fx import read_graph
from inductoscope.recording.events import ANSWERED, OTHER_ERROR, OUTSIDE, TOO_LARGE_TO_COPY, Check
from inductoscope.recording.layout import signal_name
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.messages import last_lines
from inductoscope.torch_facts.package_wrappers import run_function
from inductoscope.verdicts import Confidence
from inductoscope.wording import count_of


def not_a_bug(summary: str, checks: Sequence[Check], confidence: Confidence = "proven") -> Verdict:
    """Make the verdict that checks show compiled code to be right."""
    result = Verdict(v.NOT_A_BUG, stages.NO_STAGE, summary, confidence)
    for check in checks[:4]:
        how = "eager" if check.verdict == "right" else "eager and float64"
        result.add(check.text, f"compile {check.compile}, compared with {how}")
    return result


def also_fails_in_eager(case: ProgramCase, eager: ProgramRun) -> Verdict:
    last = last_lines(eager.output, 3)
    said = _how_it_ended(eager, last)
    does = "fails" if lack_of_memory(eager) is None else "runs out of memory"
    why = f"The program {does} without torch.compile too, so the compiler is not to blame"
    if asks_for_missing_gpu(said):
        why = f"The program asks for a GPU that this machine ({this_machine()}) does not have"
    result = Verdict(v.NOT_A_BUG, stages.USER, f"{why}{said}", "proven")
    if not says_the_same(case.first, eager):
        result.confidence = "likely"  # It fails in another way.
    with_packages = ", the second with packages replaced"
    without_tool = ", the one in eager without this tool"
    how = with_packages if case.runs.uses_packages else without_tool
    codes = f"exit code {case.first.ending.exit_code} compiled, {eager.ending.exit_code} in eager"
    result.add(codes, f"two runs of the program{how}")
    result.add("\n".join(last), "what the run in eager printed last")
    with_holders(result, eager)
    if case.random_operations:
        result.add(
            f"it draws random numbers ({', '.join(case.random_operations[:4])}); whether they "
            "cause the failure was not examined",
            "the captured graphs",
        )
    return result


def _how_it_ended(run: ProgramRun, last_lines: list[str]) -> str:
    """Describe the exception, signal or exit code of a run, to be appended to a sentence."""
    if exception := _exception_in(run.output):
        return f": {exception[:200]}"
    if run.ending.signal:
        return f". It is killed by {signal_name(run.ending.signal)}."
    line = f"; its last line is: {last_lines[-1][:200]}" if last_lines else "."
    return f". It ends with exit code {run.ending.exit_code}{line}"


_EXCEPTION = re.compile(
    r"^(?:\[rank(?P<rank>\d+)\]: )?(?P<text>[\w.]*(?:Error|Exception|Interrupt|Exit): .*)",
    re.MULTILINE,
)
# The error of a launcher after one of its ranks has failed.
_OF_LAUNCHER = "torch.distributed.elastic."


def _exception_in(output: str) -> str:
    """Return the line that names the exception, without torch's advice after it.

    With several ranks, take the first that failed, because the others fail as a consequence.
    """
    every = list(_EXCEPTION.finditer(output))
    found = [match for match in every if not match["text"].startswith(_OF_LAUNCHER)] or every
    on_ranks = [match for match in found if match["rank"]]
    if on_ranks:
        return f"{on_ranks[0]['text']} (rank {on_ranks[0]['rank']})"
    return str(found[-1]["text"]) if found else ""


def ends_well_without_tool(said: str) -> Verdict:
    text = (
        "The program fails only under inductoscope. It ends well on its own, so nothing is known "
        "to be wrong with it."
    )
    return Verdict(v.UNKNOWN, stages.NO_STAGE, text).add(said[:1500], "seen under the tool")


def not_always(failed: ProgramRun, other: ProgramRun, how: str) -> Verdict:
    """Make the verdict that the program does not end the same way in every run."""
    why = (
        "The program does not end the same way in every run: it fails intermittently, or only "
        "under inductoscope."
    )
    if failed.ending.signal == signal.SIGKILL:  # SIGKILL always comes from outside.
        why = (
            "SIGKILL ended the program in one run and not in another: somebody sent it, or the "
            "machine ran out of memory."
        )
    text = f"{why} Nothing is known to be wrong with what was compiled."
    result = Verdict(v.UNKNOWN, stages.NO_STAGE, text)
    codes = f"exit code {failed.ending.exit_code} in one, {other.ending.exit_code} in the other"
    result.add(codes, f"two runs of the program, {how}")
    return result.add(failed.last_words, "what the run that failed printed last")


def differing_lines(recording: Recording, *compiles: Compile) -> tuple[str, ...]:
    """Return the first line of code in which two captured graphs differ."""
    read = [read_graph(recording, each.graphs[0].payload) for each in compiles if each.graphs]
    codes = [graph.code.splitlines() for graph in read if graph is not None]
    if len(codes) == len(compiles):
        for lines in zip(*codes, strict=False):
            if len(set(lines)) > 1:
                return tuple(line.partition("#")[0].partition(";")[0].strip() for line in lines)
    return ()


FAILS_IN_EAGER_TOO = "fails in the same way in eager with other random numbers, too"


def other_random_numbers(case: ProgramCase, *, is_shown: bool) -> Verdict:
    """Make the verdict that compiled code draws random numbers in a different order."""
    operations = case.random_operations
    result = not_a_bug(
        f"Unseeded randomness{'' if is_shown else ', most likely'}: compiled and eager draw "
        f"different random numbers ({', '.join(operations[:4])}), even from the same seed; with "
        "the same generator they agree",
        case.checks_that_are("right"),
        "proven" if is_shown else "likely",
    )
    result.culprit.op = operations[0]
    return result


def verdict_at_limit(case: ProgramCase) -> Verdict:
    """Make the verdict on a program that was ended by a limit set by the user."""
    seconds = f"{case.first.ending.seconds:.0f} s"
    if case.first.calls_done:
        result = known_so_far(case, f"Stopped after {seconds}, as asked")
        option = "--stop"
    else:
        result = known_so_far(case, f"The time limit was reached after {seconds}")
        result.partial = True  # It can be resumed with a longer limit.
        option = "--time-limit allows more"
    result.not_checked.append(f"what the program does after the first {seconds} ({option})")
    return result


# Verdicts on calls that could not be compared.
_UNCOMPARED = ("skipped", "eager-fails", OTHER_ERROR, "unsteady")
_AND_ENDED, _AND_RUNNING = ", and the program has ended well", "; the program was still running"


def known_so_far(case: ProgramCase, why: str) -> Verdict:
    """Make the verdict on a program or examination that was cut short; `why` is the reason."""
    right = case.checks_that_are("right", "within-rounding")
    agree, uncompared = len(right), len(case.checks) - len(right)
    run = case.first
    plain = case.runs.plain
    if run.failed or run.stalled or case.is_seen_wrong or (plain is not None and plain.failed):
        return _cause_not_known(case, why)
    if not agree:
        text = f"{why}, before any call of a compiled graph was compared with eager."
        result = Verdict(v.NOT_CHECKED, stages.NO_STAGE, text, "proven")
    else:
        graphs = len({check.compile for check in right})
        others = f"; {count_of(uncompared, 'call')} could not be compared" if uncompared else ""
        text = (
            f"{why}: {count_of(agree, 'call')} of {count_of(graphs, 'compiled graph')} "
            f"{'matches' if agree == 1 else 'match'} eager{others}"
            f"{_AND_ENDED if run.ended_well else _AND_RUNNING}."
        )
        result = Verdict(v.CLEAN, stages.NO_STAGE, text, "likely")
    _add_uncompared(result, case)
    result.not_checked = list(what_was_not_checked(case)) if case.recording.compiles else []
    return result


def _cause_not_known(case: ProgramCase, why: str) -> Verdict:
    text = f"{why}, before it was known why the program goes wrong."
    result = Verdict(v.UNKNOWN, stages.NO_STAGE, text)
    for function in case.first.functions_that_differ[:4]:
        result.add(f"{function.function}: {function.text}", "compared with eager in a fork")
    for check in case.checks_that_are("wrong", "error")[:4]:
        result.add(check.text, f"compile {check.compile}, compared with eager")
    plain = case.runs.plain
    if plain is not None and plain.failed and not case.first.failed:
        code = plain.ending.exit_code
        result.add(f"the program ends with exit code {code} without this tool, and well under it")
    return result


def nothing_found(case: ProgramCase) -> Verdict:
    """Make the verdict that every compared call matches eager."""
    compiles = case.recording.compiles
    with_graphs = [each for each in compiles if each.graphs]
    if not compiles:
        text = "Nothing was compiled, so nothing was checked: torch.compile was not used."
        if case.packages_from_elsewhere:
            names = ", ".join(case.packages_from_elsewhere)
            text = (
                f"Nothing was checked: {names} was made elsewhere, so there is no program to "
                "compare it with. No input was seen that it does not accept."
            )
        return Verdict(v.NOT_CHECKED, stages.NO_STAGE, text, "proven")
    has_mistakes = any(process.hook_errors for process in case.recording.processes)
    if not with_graphs and not case.checks and not has_mistakes:
        # This happens with DDP around torch's own modules: Dynamo skips the code of DDP.
        text = f"Nothing was checked: {why_in_eager(case.recording)}."
        result = Verdict(v.NOT_CHECKED, stages.NO_STAGE, text, "proven")
        result.culprit.source = case.last_compiled
        return result
    compiled = len(with_graphs) or len(compiles)
    right, rounding = case.checks_that_are("right"), case.checks_that_are("within-rounding")
    agree, uncompared = len(right) + len(rounding), len(case.checks) - len(right) - len(rounding)
    if not agree:
        return _nothing_compared(case)
    result = Verdict(
        v.CLEAN,
        stages.NO_STAGE,
        f"Nothing found on this machine ({this_machine()}): {count_of(agree, 'call')} of "
        f"{count_of(compiled, 'compiled graph')} {'matches' if agree == 1 else 'match'} eager"
        + (f"; {count_of(uncompared, 'call')} could not be compared." if uncompared else "."),
        "likely" if uncompared else "proven",
    )
    large = [check for check in (*right, *rounding) if TOO_LARGE_TO_COPY in check.text]
    result.add(
        f"as in eager: {count_of(len(right), 'call')}; different within rounding: {len(rounding)}",
        "forward and backward, with types, shapes and written inputs; strides and shared memory "
        "that differ are notes",
    )
    if large:
        result.add(
            f"{TOO_LARGE_TO_COPY}: {count_of(len(large), 'call')}",
            "made again with the program's own inputs, of which only those are copied that are "
            f"written to{large[0].text.rpartition(TOO_LARGE_TO_COPY)[2]}",
        )
    for text in case.recording.sizes_tried[:4]:
        result.add(f"right at other sizes that the export admits, too: {text}", "called in a fork")
    _add_uncompared(result, case)
    return result.add(ELSEWHERE, f"this machine: {this_machine()}")


def why_in_eager(recording: Recording) -> str:
    """Return a clause on why functions without a captured graph ran in eager."""
    titles = [finding.title for finding in ran_in_eager(recording)]
    if titles:
        return f"{titles[0][0].lower()}{titles[0][1:].rstrip('.')}"
    named = dict.fromkeys(one.function for one in recording.compiles if one.function)
    who = f"your function {next(iter(named))}" if len(named) == 1 else "your functions"
    return f"{who} ran in eager, because Dynamo captured no graph"


def _nothing_compared(case: ProgramCase) -> Verdict:
    compiles = case.recording.compiles
    first = next(iter(case.checks_that_are(*_UNCOMPARED)), None)
    why = f": {first.text}" if first is not None else ""
    text = (
        "The program ends well, but no call of its "
        f"{count_of(len(compiles), 'compiled graph')} could be compared with eager{why}."
    )
    if all(compile_.flow for compile_ in compiles):
        names = ", ".join(dict.fromkeys(compile_.function for compile_ in compiles))
        text = (
            f"Nothing was checked: {compiles[0].flow} compiled {names}, and no process of the "
            f"program that did so has called it{why}."
        )
    result = Verdict(v.NOT_CHECKED, stages.NO_STAGE, text, "proven")
    _add_uncompared(result, case)
    add_own_mistakes(result, case)
    return result


def _add_uncompared(result: Verdict, case: ProgramCase) -> None:
    for check in case.checks_that_are(*_UNCOMPARED):
        result.add(f"{check.verdict}: {check.text}", check.compile)


def add_own_mistakes(result: Verdict, case: ProgramCase) -> None:
    """Add the tool's own errors during the first run as evidence."""
    for process in case.recording.processes:
        for mistake in process.hook_errors[:4]:
            result.add(mistake, "an error in inductoscope")


# --- The hardware of this machine, to which a verdict may be specific -----------------------------

# torch's messages to a program that requests a GPU where there is none.
_NO_GPU = (
    "Torch not compiled with CUDA enabled",
    "No CUDA GPUs are available",
    "Found no NVIDIA driver",
    "no CUDA-capable device is detected",
    "Cannot access accelerator device when none is available",
    "Attempting to deserialize object on a CUDA device",
    "0 active drivers",
)

ELSEWHERE = "a failure that was seen elsewhere may need that processor or GPU"


def this_machine(root: Path = Path("/")) -> str:
    """Return the processor and the GPUs: 'aarch64, no GPU'."""
    return f"{platform.machine()}, {_gpus(root) or 'no GPU'}"


def _gpus(root: Path) -> str:
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return ""
    files = sorted(root.glob("proc/driver/nvidia/gpus/*/information"))
    named = [re.search(r"Model:\s*(.+)", file.read_text("utf-8", "replace")) for file in files]
    models = [found[1].strip() for found in named if found]
    if models:
        return ", ".join(dict.fromkeys(models))
    if any(root.glob("dev/nvidia[0-9]*")):
        return "an NVIDIA GPU"
    return "an AMD GPU" if (root / "dev/kfd").exists() else ""


def asks_for_missing_gpu(output: str) -> bool:
    return any(sign in output for sign in _NO_GPU)


# --- gaps in the checks of a program without findings ---------------------------------------------

# The most gaps of a kind that are listed.
_MOST = 4


def what_was_not_checked(case: ProgramCase) -> Iterator[str]:
    """Yield one line for each gap in the checks of the first run."""
    recording, seconds = case.recording, case.first.ending.seconds
    if recording.unchecked:
        large = {check.compile for check in case.checks if TOO_LARGE_TO_COPY in check.text}
        first = case.instructions.calls
        if others := [name for name in recording.unchecked if name not in large]:
            yield f"some calls of {_graphs(others)} after the first {first} (--calls checks more)"
        if left := [name for name in recording.unchecked if name in large]:
            yield (
                f"some calls of {_graphs(left)} after the first: they are {TOO_LARGE_TO_COPY}, and "
                "checked as long as that adds no more than a quarter to the program's time"
            )
    if recording.shared:
        shared = f"calls after the first {CALLS_BY_EACH_RANK} of {_graphs(recording.shared)}"
        yield f"{shared}: each rank checks only some of them"
    yield from _shortened(
        [
            f"call {check.call} of graph {check.compile}: {check.text}"
            for check in case.checks_that_are(*_UNCOMPARED, OUTSIDE)
        ],
        "call",
    )
    if answered := dict.fromkeys(c.compile for c in case.checks if ANSWERED in c.text):
        yield (
            f"what ranks send each other in {_graphs(list(answered))}: each rank repeats a call "
            "alone, and gets back from a collective what it sends itself"
        )
    checked = {check.compile for check in case.checks}
    compiled = dict.fromkeys(compile_.id for compile_ in recording.compiles if compile_.inductor)
    if never := [name for name in compiled if name not in checked]:
        yield f"{_graphs(never)}: compiled, but no call was compared"
    yield from _code_and_memory(recording)
    drawn = [name for name in case.random_operations if name.startswith(("aten.", "prims."))]
    if drawn:
        names = ", ".join(drawn[:_MOST])
        yield f"the random numbers that compiled code draws by itself ({names})"
    mistakes = [text for process in recording.processes for text in process.hook_errors]
    yield from _shortened([f"an error in inductoscope: {text}" for text in mistakes], "error")
    if case.ends_well and seconds >= LONGEST_TO_TIME and may_be_slower(recording):
        yield (
            "whether compiled calls are slower than eager, as it seems: one run took "
            f"{seconds:.0f} s (inductoscope profile --advise measures it)"
        )


def _code_and_memory(recording: Recording) -> Iterator[str]:
    """Yield gaps: capture, and out-of-bounds reads of buffers that a C++ wrapper allocates."""
    flows = [compile_.flow for compile_ in recording.compiles]
    if not recording.callable_checks:
        is_exported = bool(flows) and all(flows)
        who = "torch.export" if is_exported else "Dynamo"
        only = "" if is_exported else ": only its graphs were compared"
        yield f"whether {who} captured what the Python code says{only}"
    wrappers = (graph.wrapper for one in recording.compiles for graph in one.inductor)
    if any(flows) or any(run_function(recording.payload(each)) for each in wrappers if each):
        who, owner = "a kernel", "a wrapper in C++ (cpp_wrapper=True)"
        if any(flows):
            who, owner = "a kernel of a package", "the package"
        yield (
            f"whether {who} reads past the end of a buffer that {owner} itself allocates, and is "
            "right by chance (see also: inductoscope bounds)"
        )


def _graphs(names: Sequence[str]) -> str:
    listed = ", ".join(names[:_MOST]) + (", …" if len(names) > _MOST else "")
    return f"{'graph' if len(names) == 1 else f'{len(names)} graphs'} {listed}"


def _shortened(lines: Sequence[str], what: str) -> list[str]:
    more = [count_of(len(lines) - _MOST, f"more {what}")] if len(lines) > _MOST else []
    return [*lines[:_MOST], *more]


# --- The verdict on an alarm of the sentinel, before or without its proof -------------------------


def verdict_on_alarm(alarm: Alarm, kept: Path) -> Verdict:
    """Make the verdict that a compiled graph is biased, without a place in the compiler."""
    result = Verdict(
        v.WRONG_RESULT,
        stages.NO_STAGE,
        f"{v.headline(v.WRONG_RESULT)}, slightly and always in the same direction: {alarm.text}",
        "likely",
        Culprit(source=alarm.sources[-1] if alarm.sources else None),
    )
    result.add(alarm.bound, f"compile {alarm.compile}, tested after every shadowed call")
    command = f"inductoscope doctor --kept {quote(str(kept))} SCRIPT [ARGS]"
    return result.add(f"to prove it, run: {command}", "the call is kept")


def failure_of_alarm(alarm: Alarm) -> Failure:
    """Return the failure to look for in the stored call."""
    return Failure(WRONG, alarm.text, aspect="value", where=(alarm.value,), largest=abs(alarm.bias))
