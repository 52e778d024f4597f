"""The doctor from outside: runs the program, and decides what to try next."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from inductoscope.capture import private_cache
from inductoscope.doctor.failure import HANG, NAN, SIGNAL, WRONG, Failure
from inductoscope.doctor.handover import Found, read_found
from inductoscope.doctor.instructions import FOLDER, FUNCTION_SCRIPT, OWN_VARIABLES, Instructions
from inductoscope.doctor.outside.autotune_hang import (
    add_repro,
    find_filter,
    look_further,
    try_kernel_alone,
    verdict_on_stuck,
)
from inductoscope.doctor.outside.issue import issue_text
from inductoscope.doctor.outside.judging import verdict_on
from inductoscope.doctor.outside.last_position import last_compile
from inductoscope.doctor.outside.no_wrong_graph import (
    callables_that_differ,
    verdict_without_finding,
)
from inductoscope.doctor.outside.other_levels import (
    never_ends_in_eager,
    other_random_numbers,
    random_operations,
)
from inductoscope.doctor.outside.program import RunLimits, Watched
from inductoscope.doctor.outside.runs import Runs, Say
from inductoscope.doctor.outside.stall_evidence import add_diagnosis
from inductoscope.doctor.repro.verify import TIMES, FreshProcesses, Verification
from inductoscope.doctor.verdict import Repro, Verdict, Workaround, keep_verdict
from inductoscope.hangs.choices.analysis import analyse
from inductoscope.hangs.choices.stuck_choices import StuckChoices, stuck_choices
from inductoscope.model.fold import load
from inductoscope.vocabulary import stages
from inductoscope.vocabulary import verdicts as v

# A program that takes longer is not run once more only to confirm that it is well.
_SHORT_RUN = 600.0
_EVERY_CALL = 1_000_000
# Seconds that a program gets in eager, at least, before it is said to hang there too.
_LEAST_PATIENCE = 60.0


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    command: Sequence[str]
    folder: Path
    calls: int = 8
    limits: RunLimits = field(default_factory=RunLimits)
    with_workaround: bool = True
    proofs: int = TIMES


class Doctor:
    """One examination. `verdict` holds what is known so far, at any time."""

    def __init__(self, request: Request, say: Say) -> None:
        self._request = request
        self._say = say
        self._started = time.monotonic()
        self._runs = Runs(request.command, request.folder, request.limits, say)
        self._place = self._runs.place
        self._found: Found | None = None
        self._verification: Verification | None = None
        self._workaround: Workaround | None = None
        self._fresh = FreshProcesses(self._plain_environment(), self._place, times=request.proofs)

    def examine(self) -> Verdict:
        """The whole job."""
        try:
            if has_idle_core():
                self._fresh.start()  # A program compiles on one core, mostly.
            return self._examine()
        finally:
            self._fresh.close()

    def _examine(self) -> Verdict:
        request = self._request
        instructions = Instructions(calls=request.calls, with_workaround=request.with_workaround)
        first = self._runs.first(instructions)
        self._found = read_found(first.folder / FOLDER)
        if self._found is not None and self._found.advice:
            failure = self._found.failure
            self._runs.refuse_lack_of_space(f"{failure.text} {failure.message}")
        if first.stalled and (stuck := stuck_choices(first.folder)) is not None:
            return self._finished(self._examine_stuck(stuck))
        if self._found is None and first.ending.exit_code != 0:
            self._return_to_the_place(first, instructions)  # If a process of it died or stalled.
        if self._found is None and first.failed:
            self._check_every_call(first, instructions)
        if self._found is None:
            verdict = verdict_without_finding(first, self._runs.again)
            if verdict.verdict == v.CLEAN and first.ending.seconds < _SHORT_RUN:
                verdict = self._confirm_clean(verdict, first)
            self._prove_without_graph(verdict, first.folder / FOLDER)
            return self._finished(verdict)
        if (in_eager := self._hangs_in_eager(first)) is not None:
            return self._finished(in_eager)
        self._prove_and_help()
        if not self._is_proven() and self._only_under_the_tool():
            return self._finished(_tool_only(self._found))
        return self._finished(self.partial_verdict())

    def _prove_and_help(self) -> None:
        """The one beside the other: both are runs of Python that use one core."""
        with ThreadPoolExecutor(1) as beside:
            proof = beside.submit(self._prove)
            try:
                self._help()
                proof.result()
            except BaseException:
                self._fresh.close()  # Otherwise an interruption would wait for them.
                raise

    def _is_proven(self) -> bool:
        return self._verification is not None and self._verification.is_verified

    def _only_under_the_tool(self) -> bool:
        """A failure that no reproducer shows: does the program fail by itself?"""
        if self._found is None or self._found.advice:
            return False
        if self._found.failure.kind in (WRONG, NAN, HANG):
            return False
        return self._runs.plain().ending.exit_code == 0

    def _fails_by_random_numbers(self, first: Watched) -> Verdict | None:
        """Under the tool compiled code draws random numbers as eager does; otherwise not."""
        random = random_operations(load(first.folder))
        if not random:
            return None
        instructions = Instructions(calls=0, investigate=False, random_as_eager=False)
        own = self._runs.again(
            instructions, "running the program with random numbers as Inductor draws them"
        )
        if not own.failed:
            return None
        result = other_random_numbers(random, load(first.folder).checks, is_shown=True)
        result.add(
            "fails with the random numbers that Inductor draws, not with those of eager", "two runs"
        )
        return result

    def _confirm_clean(self, verdict: Verdict, first: Watched) -> Verdict:
        """Under the tool nothing is wrong; the program may still fail without it."""
        plain = self._runs.plain()
        if not plain.failed:
            well = "the program also ends well without the tool"
            late = "without the tool the program did not end in time"
            verdict.add(well if plain.ending.exit_code == 0 else late, "one run")
            return verdict
        if (found := self._fails_by_random_numbers(first)) is not None:
            return found
        result = Verdict(
            v.UNKNOWN,
            stages.NO_STAGE,
            "The program fails by itself but not under the tool, which limits it to one OpenMP "
            "thread and uses eager's random numbers; the cause is unknown.",
        )
        result.add(f"exit code {plain.ending.exit_code} without the tool, 0 with it", "two runs")
        result.add(plain.output[-800:], "what the program printed by itself")
        result.evidence += verdict.evidence
        return result

    # --- further looks ---------------------------------------------------------------------------

    def _check_every_call(self, first: Watched, instructions: Instructions) -> None:
        """The program failed after more calls than were checked."""
        if not load(first.folder).unchecked:
            return
        why = "the program failed with every graph right; running it without torch.compile"
        eager = self._runs.in_eager(why)
        if eager.ending.exit_code == 0:
            why = f"nothing is wrong in the first {instructions.calls} calls; checking every call"
            instructions = replace(instructions, calls=_EVERY_CALL)
            again = self._runs.again(instructions, why)
            self._found = read_found(again.folder / FOLDER)
            if self._found is None and again.ending.exit_code != 0:
                self._return_to_the_place(again, instructions)

    def _return_to_the_place(self, first: Watched, instructions: Instructions) -> None:
        """The program died or hung: run it again up to that graph, and look from there."""
        place = last_compile(first)
        if place is None or place.stage == stages.DYNAMO:  # There is no graph to stop at.
            return
        was_ended = first.stalled or first.over_time
        failure = Failure(
            HANG if was_ended else SIGNAL,
            place.text,
            stage=place.stage,
            aspect="" if was_ended else place.signal_name,
            function=place.function,
            detail=place.detail,
            functions=tuple(place.functions),
        )
        why = f"{place.text}; running it again up to there"
        again = self._runs.again(
            replace(instructions, stop_at=place.compile, failure=failure, calls=0), why
        )
        self._found = read_found(again.folder / FOLDER)
        if self._found is not None:
            found = self._found
            found.functions = found.functions or place.functions
            function = found.failure.function or place.function
            found.failure = replace(found.failure, function=function)

    def _hangs_in_eager(self, first: Watched) -> Verdict | None:
        """A graph that does not end when it runs, and whose hang could not be narrowed down."""
        found = self._found
        if found is None or found.reproduces or found.failure.kind != HANG:
            return None
        if found.failure.stage != stages.RUNTIME:
            return None
        seconds = max(_LEAST_PATIENCE, first.ending.seconds)
        eager = self._runs.in_eager("running it without torch.compile, as long", seconds)
        if not eager.over_time:
            return None
        return never_ends_in_eager(eager, found.failure.text)

    def _examine_stuck(self, stuck: StuckChoices) -> Verdict:
        """Choices of autotuning that never come back: there is no graph to cut down."""
        self._say(f"{len(stuck.stuck)} choices are stuck, {len(stuck.finished)} are finished")
        known = look_further(analyse(stuck), self._say)
        trial, why_not = try_kernel_alone(known, self._place, self._say)
        result = verdict_on_stuck(known, trial, why_not)
        add_repro(result, trial, self._place / "repro.py")
        if self._request.with_workaround:
            result.workaround, told = find_filter(known, self._runs.again, self._place)
            for line in told:
                result.add(line, "one run of the program")
        return result

    # --- proof and help -------------------------------------------------------------------------

    def _prove(self) -> None:
        found = self._found
        if found is None or not found.script:
            return
        path = self._place / "repro.py"
        path.write_text(found.script, "utf-8")
        self._say(f"running the reproducer in fresh processes ({self._request.proofs})")
        self._verification = self._fresh.verify(path, found.expected_output)
        (self._place / "repro-output.txt").write_text(self._verification.output, "utf-8")

    def _prove_without_graph(self, verdict: Verdict, place: Path) -> None:
        """What Dynamo refuses has no graph; the function itself is the reproducer."""
        source = place / FUNCTION_SCRIPT
        if verdict.verdict != v.NOT_INDUCTOR or not source.exists():
            return
        path = source.rename(self._place / "repro.py")
        self._say(f"running the function alone in fresh processes ({self._request.proofs})")
        checked = self._fresh.verify(path, ["eager: ok"])
        self._verification = checked
        verdict.repro = Repro(str(path), checked.is_verified, checked.failed, checked.of, 0)

    def _help(self) -> None:
        """Try the first workaround that helped the graph on the program itself."""
        found = self._found
        if found is None or not found.workarounds or not self._request.with_workaround:
            return
        for proposed in found.workarounds[:3]:
            instructions = Instructions(
                calls=self._request.calls, workaround=proposed.code, investigate=False
            )
            run = self._runs.again(instructions, f"trying on the program: {proposed.text}")
            works = _is_right(run)
            self._workaround = Workaround(proposed.text, works, proposed.slowdown, proposed.code)
            if works:
                return

    def _plain_environment(self) -> dict[str, str]:
        """The user's environment, with compiled binaries shared and no results from a cache."""
        found = {k: val for k, val in os.environ.items() if k not in OWN_VARIABLES}
        found.update(private_cache.environment(self._runs.cache))
        found.pop(private_cache.VARIABLE)
        found.update(private_cache.home_for_headers(self._runs.cache))
        found.update(TORCHINDUCTOR_FX_GRAPH_CACHE="0", TORCHINDUCTOR_AUTOGRAD_CACHE="0")
        return found

    # --- the verdict ----------------------------------------------------------------------------

    def partial_verdict(self) -> Verdict:
        """What is known by now; also after an interruption."""
        found = self._found or read_found(self._runs.looking_in / FOLDER)
        if found is None:
            return Verdict(
                v.UNKNOWN, stages.NO_STAGE, "Interrupted before anything was found.", partial=True
            )
        result = verdict_on(found)
        if self._verification is not None:
            result.repro = Repro(
                str(self._place / "repro.py"),
                self._verification.is_verified,
                self._verification.failed,
                self._verification.of,
                found.nodes,
            )
        elif found.no_script:
            result.add(f"no script could be written: {found.no_script}")
        result.workaround = self._workaround
        return result

    def _finished(self, verdict: Verdict) -> Verdict:
        if verdict.verdict == v.HANG:
            add_diagnosis(verdict, self._request.folder)
        verdict.recording = str(self._request.folder)
        verdict.seconds = round(time.monotonic() - self._started, 1)
        tried = self._found.candidates_tried if self._found else 0
        proofs = self._verification.of if self._verification else 0
        verdict.runs = self._runs.count + tried + proofs
        if verdict.repro is not None and verdict.repro.verified and _is_reportable(verdict):
            path = self._place / "issue.md"
            output = self._verification.output if self._verification else ""
            path.write_text(issue_text(verdict, output), "utf-8")
            verdict.issue = str(path)
        keep_verdict(verdict, self._request.folder)
        return verdict

    def interrupted(self) -> Verdict:
        """The verdict after Ctrl-C: what is known, and that it is not all."""
        verdict = self.partial_verdict()
        verdict.partial = True
        return self._finished(verdict)


def has_idle_core() -> bool:
    """Whether something could run beside the program without slowing it down."""
    try:
        running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        running = os.cpu_count() or 1  # Not known on this system.
    return running < (os.cpu_count() or 1)  # We are one of them, the program will be another.


def _is_reportable(verdict: Verdict) -> bool:
    """Whether it is torch's maintainers who can do something about it."""
    return verdict.verdict not in (v.NOT_A_BUG, v.UNKNOWN)


def _tool_only(found: Found) -> Verdict:
    result = Verdict(
        v.UNKNOWN,
        stages.NO_STAGE,
        "The program fails under the tool only: it ends well by itself, so nothing is known to be "
        "wrong with it.",
    )
    result.add(found.failure.text[:1500], "seen under the tool")
    return result


def _is_right(run: Watched) -> bool:
    """Whether a run with a workaround went through, with every check passed.

    A long one may have been ended on the way.
    """
    if run.stalled or not (run.over_time or run.ending.exit_code == 0):
        return False
    recording = load(run.folder)
    broken = any(process.hook_errors for process in recording.processes)
    if broken or callables_that_differ(recording):
        return False  # The workaround itself may be what failed, or something else is wrong too.
    said = {check.verdict for check in recording.checks}
    return bool(said & {"right", "within-rounding"}) and not said & {"wrong", "error"}
