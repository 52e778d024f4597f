"""The doctor from outside: runs the program and tests hypotheses about what is wrong."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from inductoscope import verdicts as v
from inductoscope.doctor.alarm import read_alarm
from inductoscope.doctor.finding import StepClock
from inductoscope.doctor.instructions import (
    FOLDER,
    FUNCTION_SCRIPT,
    OWN_VARIABLES,
    Instructions,
)
from inductoscope.doctor.program_run import Listener, ProgramRun, RunLimits
from inductoscope.doctor.repro.verify import TIMES, FreshProcesses
from inductoscope.doctor.runs import Runs, Say
from inductoscope.inside import private_cache
from inductoscope.processes.children import with_absolute_path

# What is needed once the program runs is imported then, while that loads torch.
if TYPE_CHECKING:
    from inductoscope.doctor.case import ProgramCase
    from inductoscope.doctor.finding import Found
    from inductoscope.doctor.proof import Answers, Proof
    from inductoscope.doctor.verdict import Verdict


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    command: Sequence[str]
    folder: Path
    calls: int = 8
    limits: RunLimits = field(default_factory=RunLimits)
    with_workaround: bool = True
    proofs: int = TIMES
    # The folder of a call that the sentinel kept, if that is what to examine.
    kept: Path | None = None
    # Stop once the culprit is known.
    quick: bool = False
    # The address of a cluster that the search may use, whatever versions its workers have.
    executor: str = ""
    any_worker: bool = False
    # Gets the verdict so far whenever more is known.
    hand_over: Callable[[Verdict], None] = lambda verdict: None


def _import_judges() -> None:
    """What judges a program, imported while that loads torch: the first words come sooner."""
    import inductoscope.doctor.common_verdicts
    import inductoscope.doctor.hypotheses
    import inductoscope.doctor.trail  # noqa: F401


class Doctor:
    """One examination."""

    def __init__(self, request: Request, say: Say) -> None:
        self._request = request
        self._say = say
        self._started = time.monotonic()
        self._is_over = False
        listener = Listener(say, _import_judges, self._follow, is_over=lambda: self._is_over)
        self._runs = Runs(request.command, request.folder, request.limits, listener)
        # What was written of a finding when it was last read.
        self._seen = b""
        self._latest: Found | None = None
        self._clock = StepClock("inductoscope, and all that it runs")
        # None until the program has been run once.
        self._case: ProgramCase | None = None

    @cached_property
    def _proof(self) -> Proof:
        from inductoscope.doctor.proof import Proof

        request = self._request
        return Proof(
            FreshProcesses(self._plain_environment(), self._runs.place, times=request.proofs),
            self._runs.place,
            self._say,
            times=request.proofs,
            with_workaround=request.with_workaround,
            on_shown=self._tell,
        )

    @cached_property
    def _answers(self) -> Answers:
        from inductoscope.doctor.proof import Answers

        return Answers(self._say, self._hand_over_so_far, self._started)

    def examine(self) -> Verdict:
        """The whole job."""
        from inductoscope.launch.tidying import remove_headers, tidy_examination

        try:
            verdict = self._examine()
            verdict = self._finished(verdict, self._found)
        finally:
            self._is_over = True
            if "_proof" in vars(self):  # Not made only to be closed.
                self._proof.close()
            remove_headers(self._request.folder)
        if not verdict.partial:
            tidy_examination(self._request.folder)
        return verdict

    def _follow(self) -> None:
        """While something is investigated: prove what is known of it, and tell that."""
        from inductoscope.doctor.finding import bytes_of_finding, read_found

        place = self._runs.looking_in / FOLDER
        written = bytes_of_finding(place)
        if written == self._seen:
            return
        self._seen, self._latest = written, read_found(place)
        if self._latest is None:
            return
        if not self._request.quick:
            self._proof.begin(self._latest, self._runs, calls=self._request.calls)
        self._tell()

    def _tell(self) -> None:
        if self._latest is not None:
            self._answers.take(self._latest, self._proof)

    def _hand_over_so_far(self, verdict: Verdict) -> None:
        verdict.recording, verdict.output = str(self._request.folder), self._runs.output
        self._request.hand_over(verdict)

    def _examine(self) -> Verdict:
        request = self._request
        instructions = Instructions(
            calls=request.calls,
            with_workaround=request.with_workaround,
            quick=request.quick,
            executor=request.executor,
            any_worker=request.any_worker,
        )
        if request.kept is not None:
            return self._examine_kept_call(request.kept, instructions)
        with self._clock.step("the first run of the program, and what was found in it"):
            first = self._runs.first(instructions)
        from inductoscope.doctor.case import ProgramCase
        from inductoscope.doctor.finding import read_found
        from inductoscope.doctor.hypotheses import verdict_of_first

        found = read_found(first.folder / FOLDER)
        if (
            found is None
            and not request.quick
            and (first.folder / FOLDER / FUNCTION_SCRIPT).exists()
        ):
            self._proof.fresh.start()
        case = ProgramCase(instructions, first, self._runs, self._proof, self._say, found)
        self._case = case
        with self._clock.step("proof, workarounds and further runs"):
            verdict = verdict_of_first(case)
        if case.found is None and verdict.verdict == v.NOT_INDUCTOR and not request.quick:
            self._proof.prove_function(verdict, first.folder / FOLDER)
        return verdict

    def _examine_kept_call(self, kept: Path, instructions: Instructions) -> Verdict:
        """What an alarm of the sentinel is about: proven if one call shows it, otherwise likely."""
        from inductoscope.doctor.case import ProgramCase
        from inductoscope.doctor.common_verdicts import failure_of_alarm, verdict_on_alarm
        from inductoscope.doctor.finding import read_found
        from inductoscope.doctor.hypotheses import verdict_of_first

        alarm = read_alarm(kept)
        instructions = replace(
            instructions,
            stop_at=alarm.compile,
            failure=failure_of_alarm(alarm),
            kept=str(kept.absolute()),
        )
        with self._clock.step("the program up to the call that was kept, and what was found"):
            first = self._runs.first(
                instructions, "running the program up to the call that was kept"
            )
        found = read_found(first.folder / FOLDER)
        self._case = ProgramCase(instructions, first, self._runs, self._proof, self._say, found)
        if found is not None and found.reproduces:
            return verdict_of_first(self._case)
        verdict = verdict_on_alarm(alarm, kept)
        verdict.add(_why_not_proven(first, found), "the program, run once more")
        return verdict

    def _plain_environment(self) -> dict[str, str]:
        """The user's environment, with compiled binaries shared and no results from a cache."""
        own = {k: val for k, val in os.environ.items() if k not in OWN_VARIABLES}
        found = with_absolute_path(own)
        found.update(private_cache.environment(self._runs.cache))
        found.pop(private_cache.PRIVATE_CACHE_VARIABLE)
        found.update(private_cache.without_scope(self._runs.cache))
        found.update(TORCHINDUCTOR_FX_GRAPH_CACHE="0", TORCHINDUCTOR_AUTOGRAD_CACHE="0")
        # A reproducer may start child processes that use the GPU.
        found.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
        return found

    @property
    def _found(self) -> Found | None:
        return self._case.found if self._case is not None else None

    def interrupted(self) -> Verdict:
        """The verdict after Ctrl-C: what is known so far, marked as partial."""
        from inductoscope.doctor.common_verdicts import known_so_far, verdict_on_alarm
        from inductoscope.doctor.finding import read_found

        found = self._found or read_found(self._runs.looking_in / FOLDER)
        kept = self._request.kept
        if kept is not None and (found is None or not found.reproduces):
            verdict = verdict_on_alarm(read_alarm(kept), kept)
        elif found is None:
            verdict = known_so_far(self._case_so_far(), "Interrupted")
        else:
            verdict = self._proof.verdict_on(found)
        verdict.partial = True
        return self._finished(verdict, found)

    def _case_so_far(self) -> ProgramCase:
        """What is known of a first run that was interrupted."""
        if self._case is not None:
            return self._case
        from inductoscope.doctor.case import ProgramCase
        from inductoscope.model.entities import Ending

        ended = ProgramRun(
            Ending(130, None, time.monotonic() - self._started),
            self._runs.looking_in,
            over_time=True,
        )
        return ProgramCase(
            Instructions(calls=self._request.calls), ended, self._runs, self._proof, self._say
        )

    def _finished(self, verdict: Verdict, found: Found | None) -> Verdict:
        """The verdict with the fields that every verdict has."""
        from inductoscope.doctor.hypotheses.two_cpp_libraries import note_copies
        from inductoscope.doctor.issue import issue_text
        from inductoscope.doctor.stall_evidence import add_diagnosis
        from inductoscope.doctor.trail import trail_or_nothing
        from inductoscope.doctor.verdict import keep_verdict

        if verdict.verdict == v.HANG:
            add_diagnosis(verdict, self._request.folder)
        if self._case is not None:
            verdict.notes = list(dict.fromkeys(self._case.noted))
            note_copies(verdict, self._case)
        if found is not None and verdict.culprit.kernel:
            verdict.trail = trail_or_nothing(found, self._case_so_far())
        if self._request.quick and found is not None:
            _stop_at_culprit(verdict)
        verdict.known = self._answers.known_of(verdict)
        verdict.time = [*self._clock.times, *(found.times if found else [])]
        verdict.recording = str(self._request.folder)
        verdict.output = self._runs.output
        verdict.seconds = round(time.monotonic() - self._started, 1)
        tried = found.candidates_tried if found else 0
        verification = self._proof.verification
        proofs = verification.of if verification else 0
        verdict.runs = self._runs.count + tried + proofs
        if verdict.repro is not None and verdict.repro.verified and _is_reportable(verdict):
            path = self._runs.place / "issue.md"
            output = verification.output if verification else ""
            with contextlib.suppress(OSError):
                path.write_text(issue_text(verdict, output), "utf-8")
                verdict.issue = str(path)
        keep_verdict(verdict, self._request.folder)
        return verdict


def _stop_at_culprit(verdict: Verdict) -> None:
    """Nothing is proven by a script that fails without the tool: none was asked for so far."""
    if verdict.partial or (verdict.repro is not None and verdict.repro.verified):
        return
    verdict.confidence = "likely" if verdict.confidence == "proven" else verdict.confidence
    verdict.partial = True
    verdict.add("stopped at the culprit, so nothing is proven by a script", "--quick")


def _why_not_proven(run: ProgramRun, found: Found | None) -> str:
    """Why the call that the sentinel kept proves nothing."""
    if found is not None and found.is_kept_call:
        return "the kept call alone does not show it beyond rounding, not even in float64"
    if found is not None:
        return "the kept call was not examined: the graph is another one, or its inputs are missing"
    if not run.ended_well:
        return f"it ended otherwise (exit code {run.ending.exit_code}) before the kept call"
    return "the graph of the kept call was not compiled again"


def _is_reportable(verdict: Verdict) -> bool:
    """Whether torch's maintainers could fix it."""
    return verdict.verdict not in (v.NOT_A_BUG, v.UNKNOWN)
