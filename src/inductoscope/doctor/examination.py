"""The doctor from outside: runs the program and tests hypotheses about what is wrong."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from inductoscope import verdicts as v
from inductoscope.doctor.alarm import read_alarm
from inductoscope.doctor.failure import Failure
from inductoscope.doctor.finding import StepClock
from inductoscope.doctor.fresh_processes import TIMES, FreshProcesses
from inductoscope.doctor.instructions import (
    CACHES,
    FOLDER,
    FUNCTION_SCRIPT,
    OWN_VARIABLES,
    Instructions,
)
from inductoscope.doctor.runs import Listener, ProgramRun, RunLimits, Runs, Say, cache_variables
from inductoscope.processes.children import with_absolute_path
from inductoscope.recording.writer import StreamWriter, describe_launcher

# Further modules are imported once the program runs, while it loads torch.
if TYPE_CHECKING:
    from inductoscope.doctor.case import ProgramCase
    from inductoscope.doctor.finding import Claim, FailureFinding
    from inductoscope.doctor.proof import Answers, Proof
    from inductoscope.doctor.verdict import Verdict


@dataclass(frozen=True)
class Request:
    command: Sequence[str]
    folder: Path
    # The options of every run that investigates.
    instructions: Instructions = field(default_factory=Instructions)
    limits: RunLimits = field(default_factory=RunLimits)
    proofs: int = TIMES
    # The folder of a call stored by the sentinel, if that is to be examined.
    kept: Path | None = None
    # Writes the texts of the verdict and stores it, whenever more is known and at the end.
    store_verdict: Callable[[Verdict], Verdict] = lambda verdict: verdict


_MOST_EVIDENCE = 4


def _import_judges() -> None:
    """Import the hypotheses while the program loads torch, to save start-up time."""
    import inductoscope.doctor.common_verdicts
    import inductoscope.doctor.hypotheses
    import inductoscope.doctor.trail  # noqa: F401


class Doctor:
    def __init__(self, request: Request, say: Say) -> None:
        self._request = request
        self._say = say
        self._started = time.monotonic()
        self._is_over = False
        listener = Listener(say, _import_judges, self._follow, is_over=lambda: self._is_over)
        self._runs = Runs(request.command, request.folder, request.limits, listener)
        # The finding under investigation, as far as it is known.
        self._latest: FailureFinding | None = None
        self._stream = StreamWriter(request.folder, first_event=describe_launcher)
        self._clock = StepClock("inductoscope, and all that it runs")
        # None before the first run of the program.
        self._case: ProgramCase | None = None

    @cached_property
    def _proof(self) -> Proof:
        from inductoscope.doctor.proof import Proof

        request, runs = self._request, self._runs
        fresh = FreshProcesses(self._plain_environment(), runs.folder, times=request.proofs)
        return Proof(runs, fresh, request.instructions, self._say, on_shown=self._shown)

    @cached_property
    def _answers(self) -> Answers:
        from inductoscope.doctor.proof import Answers

        def on_verdict(verdict: Verdict) -> None:
            verdict.recording, verdict.output = str(self._request.folder), self._runs.output
            self._request.store_verdict(verdict)

        return Answers(self._say, on_verdict, self._started)

    def examine(self) -> Verdict:
        from inductoscope.launch.tidying import remove_headers, tidy_examination

        try:
            verdict = self._examine()
            verdict = self._finished(verdict, self._finding)
        finally:
            self._is_over = True
            self._stream.close()
            if "_proof" in vars(self):  # Not created just to be closed.
                self._proof.close()
            remove_headers(self._request.folder)
        if not verdict.partial:
            tidy_examination(self._request.folder)
        return verdict

    def _follow(self, finding: FailureFinding) -> None:
        """Prove and report a finding while the investigation goes on."""
        self._latest = finding
        if not self._request.instructions.quick:
            self._proof.begin(finding)
        self._tell()

    def _shown(self, claim: Claim) -> None:
        self._stream.emit(claim.as_event())
        self._tell()

    def _tell(self) -> None:
        if self._latest is not None and self._latest.every(Failure):
            self._answers.take(self._proof.added_to(self._latest))

    def _examine(self) -> Verdict:
        instructions = self._request.instructions
        if self._request.kept is not None:
            return self._examine_kept_call(self._request.kept, instructions)
        with self._clock.step("the first run of the program, and what was found in it"):
            first = self._runs.first(instructions)
        from inductoscope.doctor.hypotheses import first_verdict

        case = self._case = self._new_case(instructions, first)
        folder = first.folder / FOLDER
        if case.finding is None and not instructions.quick and (folder / FUNCTION_SCRIPT).exists():
            self._proof.fresh.start()
        with self._clock.step("proof, workarounds and further runs"):
            verdict = first_verdict(case)
        if case.finding is None and verdict.verdict == v.NOT_INDUCTOR and not instructions.quick:
            verdict.repro = self._proof.prove_function(folder)
        return verdict

    def _new_case(self, instructions: Instructions, first: ProgramRun) -> ProgramCase:
        from inductoscope.doctor.case import ProgramCase

        parts = first, self._runs, self._proof, self._say
        return ProgramCase(instructions, *parts, first.finding)

    def _examine_kept_call(self, kept: Path, instructions: Instructions) -> Verdict:
        """Examine the call behind an alarm: proven if the call alone shows it, otherwise likely."""
        from inductoscope.doctor.common_verdicts import failure_of_alarm, verdict_on_alarm
        from inductoscope.doctor.hypotheses import first_verdict

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
        case = self._case = self._new_case(instructions, first)
        if case.finding is not None and case.finding.reproduces:
            return first_verdict(case)
        verdict = verdict_on_alarm(alarm, kept)
        verdict.add(_why_not_proven(first, case.finding), "the program, run once more")
        return verdict

    def _plain_environment(self) -> dict[str, str]:
        """Return the user's environment, with compiled binaries shared and no cached results."""
        own = {k: val for k, val in os.environ.items() if k not in OWN_VARIABLES}
        found = with_absolute_path(own)
        found.update(cache_variables(self._runs.cache, inside=False))
        found.update(CACHES.variables)
        # A reproducer may start child processes that use the GPU.
        found.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
        return found

    @property
    def _finding(self) -> FailureFinding | None:
        return self._case.finding if self._case is not None else None

    def interrupted(self) -> Verdict:
        """Return the verdict after Ctrl-C: the facts so far, marked as partial."""
        from inductoscope.doctor.common_verdicts import known_so_far, verdict_on_alarm
        from inductoscope.doctor.finding import finding_in
        from inductoscope.doctor.judgement import verdict_on

        finding = self._finding or finding_in(self._runs.looking_in)
        kept = self._request.kept
        if kept is not None and (finding is None or not finding.reproduces):
            verdict = verdict_on_alarm(read_alarm(kept), kept)
        elif finding is None:
            verdict = known_so_far(self._case_so_far(), "Interrupted")
        else:
            verdict = verdict_on(self._proof.added_to(finding))
        verdict.partial = True
        return self._finished(verdict, finding)

    def _case_so_far(self) -> ProgramCase:
        """Return the case, even if its first run was interrupted."""
        if self._case is not None:
            return self._case
        from inductoscope.doctor.finding import finding_in
        from inductoscope.model.entities import Ending

        ending = Ending(130, None, time.monotonic() - self._started)
        folder = self._runs.looking_in
        ended = ProgramRun(ending, folder, over_time=True, finding=finding_in(folder))
        return self._new_case(self._request.instructions, ended)

    def _finished(self, verdict: Verdict, finding: FailureFinding | None) -> Verdict:
        """Fill in the fields that every verdict has."""
        from inductoscope.doctor.finding import SearchProgress
        from inductoscope.doctor.hypotheses.packages import note_copies
        from inductoscope.doctor.trail import look_up

        if self._case is not None:
            why = self._case.first.diagnosis
            if verdict.verdict == v.HANG and why is not None:
                title = f"{why.title} ({why.confidence})"
                verdict.add(title, "the processes, seen from outside")
                for line in why.evidence[:_MOST_EVIDENCE]:
                    verdict.add(line)
            verdict.notes = list(self._case.noted)
            note_copies(verdict, self._case)
        if finding is not None:
            look_up(verdict, finding, self._case_so_far())
        if self._request.instructions.quick and finding is not None:
            _stop_at_culprit(verdict)
        verdict.known = self._answers.known_of(verdict)
        search = finding.fact(SearchProgress) if finding is not None else SearchProgress()
        verdict.time = [*self._clock.times, *search.times]
        verdict.recording = str(self._request.folder)
        verdict.output = self._runs.output
        verdict.seconds = round(time.monotonic() - self._started, 1)
        proofs = self._proof.repro.of if self._proof.repro is not None else 0
        verdict.runs = self._runs.count + search.candidates + proofs
        is_known = verdict.verdict not in (v.NOT_A_BUG, v.UNKNOWN)
        if verdict.repro is not None and verdict.repro.verified and is_known:
            # A problem that torch's maintainers could fix.
            verdict.issue = str(self._runs.folder / "issue.md")
        return self._request.store_verdict(verdict)


def _stop_at_culprit(verdict: Verdict) -> None:
    """Lower the confidence of a --quick verdict: no script has shown it without the tool."""
    if verdict.partial or (verdict.repro is not None and verdict.repro.verified):
        return
    verdict.confidence = "likely" if verdict.confidence == "proven" else verdict.confidence
    verdict.partial = True
    verdict.add("stopped at the culprit, so nothing is proven by a script", "--quick")


def _why_not_proven(run: ProgramRun, finding: FailureFinding | None) -> str:
    """Return why the call stored by the sentinel proves nothing."""
    from inductoscope.doctor.finding import Noticed

    if finding is not None and finding.fact(Noticed).is_kept_call:
        return "the kept call alone does not show it beyond rounding, not even in float64"
    if finding is not None:
        return "the kept call was not examined: the graph is another one, or its inputs are missing"
    if not run.ended_well:
        return f"it ended otherwise (exit code {run.ending.exit_code}) before the kept call"
    return "the graph of the kept call was not compiled again"
