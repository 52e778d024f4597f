"""Proves the reproducer by running it, and a workaround by trying it on the program."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from inductoscope.doctor.failure import SLOW
from inductoscope.doctor.finding import (
    FRESH_PROCESSES,
    PROGRAM,
    Claim,
    FailureFinding,
    GraphWorkarounds,
    Repro,
    Script,
    Workaround,
    output_of_repro,
)
from inductoscope.doctor.fresh_processes import FreshProcesses
from inductoscope.doctor.instructions import FUNCTION_SCRIPT, Instructions
from inductoscope.doctor.judgement import verdict_on
from inductoscope.doctor.runs import ProgramRun, Runs, every_check_passed
from inductoscope.doctor.verdict import Verdict
from inductoscope.recording.events import Check
from inductoscope.recording.written import written_events
from inductoscope.torch_facts.messages import last_lines
from inductoscope.wording import count_of

_MOST_WORKAROUNDS = 3


@dataclass
class Proof:
    """The evidence from fresh processes and from the program itself."""

    runs: Runs
    fresh: FreshProcesses
    # The options of the examination.
    instructions: Instructions
    say: Callable[[str], None]
    repro: Repro | None = None
    workaround: Workaround | None = None
    # Called with each new result.
    on_shown: Callable[[Claim], None] = lambda claim: None
    _beside: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2))
    _proving: Future[None] | None = None
    _helping: Future[None] | None = None

    @property
    def script(self) -> Path:
        return self.runs.folder / "repro.py"

    @property
    def is_verified(self) -> bool:
        return self.repro is not None and self.repro.verified

    def begin(self, finding: FailureFinding, *, is_alone: bool = False) -> None:
        """Start proofs and trials that are possible so far, while the investigation goes on.

        It may be called repeatedly and starts nothing twice. Each proof or trial mostly uses one
        core. `is_alone` means that the investigation is over, and the program has ended.
        """
        if finding.kind == SLOW:
            return  # Timing must not share the machine; and the time may yet be in proportion.
        if self._proving is None and finding.is_located:
            # The proof needs a process that has to load torch first. It is not started before the
            # place is known, which the user waits for.
            self.fresh.start()
        if self._proving is None and finding.fact(Script).text:
            self._proving = self._beside.submit(self.prove, finding)
        helps = self.instructions.with_workaround and finding.fact(GraphWorkarounds).found
        if self._helping is None and helps:
            self._helping = self._beside.submit(self._help, finding, is_alone)

    def prove_and_help(self, finding: FailureFinding) -> FailureFinding:
        """Prove the reproducer and try workarounds, if not done yet; add both to the finding."""
        self.begin(finding, is_alone=True)
        if self._helping is not None:
            self._helping.result()
            if self.workaround is None:
                self._help(finding, is_alone=True)
        if self._proving is not None:
            self._proving.result()
        return self.added_to(finding)

    def added_to(self, finding: FailureFinding) -> FailureFinding:
        """Return the finding with the results so far."""
        if self.repro is not None:
            finding = finding.claimed(self.repro, FRESH_PROCESSES)
        return finding if self.workaround is None else finding.claimed(self.workaround, PROGRAM)

    def forget(self) -> None:
        """Discard the results for a finding that was refuted: the next one is different."""
        self.repro = self.workaround = self._proving = self._helping = None

    def close(self) -> None:
        """End all current runs, and start no more."""
        self.fresh.close()
        self._beside.shutdown(cancel_futures=True)

    def prove(self, finding: FailureFinding) -> None:
        """Run the reproducer in fresh processes, if there is one."""
        script = finding.fact(Script)
        if not script.text:
            return
        self.script.write_text(script.text, "utf-8")
        self.say(f"running the reproducer in fresh processes ({self.fresh.times})")
        is_timed, nodes = finding.kind == SLOW, finding.reduction.nodes
        self._verify(script.expected_output, nodes, is_timed=is_timed)

    def _verify(
        self, expected: tuple[str, ...], nodes: int = 0, *, is_timed: bool = False
    ) -> Repro:
        checked = self.fresh.verify(self.script, list(expected), is_timed=is_timed)
        Path(output_of_repro(str(self.script))).write_text(checked.output, "utf-8")
        path, is_verified = str(self.script), checked.is_verified
        self.repro = Repro(path, is_verified, checked.failed, checked.of, nodes)
        self.on_shown(Claim(self.repro, FRESH_PROCESSES))
        return self.repro

    def _help(self, finding: FailureFinding, is_alone: bool) -> None:
        """Try the workarounds that helped the graph on the program itself, until one works."""
        for tried in finding.fact(GraphWorkarounds).found[:_MOST_WORKAROUNDS]:
            failed = self._failed_call()
            calls = max(self.instructions.calls, failed)
            instructions = Instructions(
                calls=calls, saves_time=failed <= 1, workaround=tried.code, investigate=False
            )
            run = self.runs.again(instructions, f"trying on the program: {tried.text}")
            is_reached = any(check.call >= failed for check in run.recording.checks)
            works = (is_reached and every_check_passed(run)) or _raises_as_eager(run, finding)
            if not works and not is_alone:
                return  # The program may have failed only because it cannot run twice at a time.
            self.workaround = Workaround(tried.text, works, tried.slowdown, tried.code)
            self.on_shown(Claim(self.workaround, PROGRAM))
            if works:
                return

    def _failed_call(self) -> int:
        """Return the number of the call that failed."""
        checks = written_events([self.runs.looking_in], Check.kind)
        failed = [check for check in checks if check["verdict"] in ("wrong", "error")]
        return max((int(check["call"]) for check in failed), default=0)

    def prove_function(self, folder: Path) -> Repro | None:
        """Prove the function itself as the reproducer: if Dynamo fails, there is no graph."""
        source = folder / FUNCTION_SCRIPT
        if not source.exists():
            return None
        source.rename(self.script)
        self.say(f"running the function alone in fresh processes ({self.fresh.times})")
        return self._verify(("eager: ok",))


def _raises_as_eager(run: ProgramRun, finding: FailureFinding) -> bool:
    """Check whether the error that eager raises, and that was lost, ended the run."""
    error = finding.failure.eager_error
    is_broken = any(process.hook_errors for process in run.recording.processes)
    if is_broken or {check.verdict for check in run.recording.checks} & {"wrong", "error"}:
        return False
    return bool(error) and "".join(last_lines(run.output, 1)).endswith(error)


# --- answers, reported as soon as they are known --------------------------------------------------

# In the order in which they become known.
KIND, PLACE, GRAPH, PROOF, WORKAROUND = "kind", "place", "graph", "proof", "workaround"


@dataclass
class Answers:
    """Reports each answer once, and passes on the verdict so far."""

    say: Callable[[str], None]
    on_verdict: Callable[[Verdict], None]
    started: float = field(default_factory=time.monotonic)
    # Seconds from the start until each answer was known.
    known: dict[str, float] = field(default_factory=dict)
    _told: dict[str, str] = field(default_factory=dict)
    # Answers come from the thread that watches the program and from those that run proofs.
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, finding: FailureFinding) -> None:
        with self._lock:
            verdict = verdict_on(finding)
            told = _answers(verdict, finding)
            new = {name: text for name, text in told.items() if self._told.get(name) != text}
            if not new:
                return
            for name, text in new.items():
                # The place in the smallest graph may be more precise.
                more = ", on a closer look" if name in self._told else ""
                self.say(f"→ {name}{more}: {text}")
                self.known.setdefault(name, round(time.monotonic() - self.started, 1))
            self._told |= new
            verdict.partial = True
            verdict.known = dict(self.known)
            verdict.seconds = round(time.monotonic() - self.started, 1)
            self.on_verdict(verdict)

    def known_of(self, verdict: Verdict) -> dict[str, float]:
        """Return when answers were known; empty if the verdict retracts the reported kind."""
        with self._lock:
            return dict(self.known) if self._told.get(KIND) == verdict.verdict else {}


def _answers(verdict: Verdict, finding: FailureFinding) -> dict[str, str]:
    """Return the known answers, each in a few words."""
    found: dict[str, str] = {}
    left, script = finding.reduction, finding.fact(Script)
    # A slow compile in the program is not a failure yet.
    if finding.reproduces or finding.kind != SLOW:
        found[KIND] = verdict.verdict
    if finding.reproduces and finding.is_located:
        culprit = verdict.culprit
        names = filter(None, (culprit.pass_, culprit.op, culprit.kernel))
        found[PLACE] = f"stage {verdict.stage}: {', '.join(names) or finding.failure.detail}"
    if left.nodes and (script.text or (finding.is_complete and script.why_not)):
        written = "written as a script" if script.text else "of which no script could be written"
        found[GRAPH] = f"{left.nodes} of {count_of(left.of, 'node')}, {written}"
    if verdict.repro is not None and verdict.repro.verified:
        times = f"{verdict.repro.failed} of {verdict.repro.of}"
        found[PROOF] = f"the reproducer failed in {times} fresh processes"
    if verdict.workaround is not None and verdict.workaround.verified:
        found[WORKAROUND] = verdict.workaround.text
    return found
