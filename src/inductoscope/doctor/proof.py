"""Proves the reproducer by running it, and a workaround by trying it on the program."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from inductoscope.doctor.failure import SLOW
from inductoscope.doctor.finding import Found
from inductoscope.doctor.finding_verdict import verdict_on
from inductoscope.doctor.instructions import FUNCTION_SCRIPT, Instructions
from inductoscope.doctor.repro.verify import FreshProcesses, Verification
from inductoscope.doctor.runs import Runs, every_check_passed
from inductoscope.doctor.verdict import Repro, Verdict, Workaround
from inductoscope.wording import count_of

_MOST_WORKAROUNDS = 3


@dataclass
class Proof:
    """What was shown in fresh processes and on the program itself."""

    fresh: FreshProcesses
    place: Path
    say: Callable[[str], None]
    # How often the reproducer is run.
    times: int
    with_workaround: bool = True
    verification: Verification | None = None
    workaround: Workaround | None = None
    # Told when something was shown.
    on_shown: Callable[[], None] = lambda: None
    _beside: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2))
    _proving: Future[None] | None = None
    _helping: Future[None] | None = None

    @property
    def script(self) -> Path:
        """Where the reproducer is."""
        return self.place / "repro.py"

    @property
    def is_verified(self) -> bool:
        """Whether the reproducer failed every time."""
        return self.verification is not None and self.verification.is_verified

    def begin(self, found: Found, runs: Runs, *, calls: int, is_alone: bool = False) -> None:
        """Start on what can be proven and tried so far, while the investigation goes on.

        Called again and again; what was started before is not started twice. Each mostly uses one
        core. `calls` are checked of each graph while a workaround is tried. `is_alone` says that
        the investigation is over, and the program with it.
        """
        if found.failure.kind == SLOW:
            return  # What is timed must not share the machine; and it may yet be in proportion.
        if self._proving is None and found.is_located:
            # It will be proven, in a process that has to load torch first. Not before the place is
            # known, which someone waits for.
            self.fresh.start()
        if self._proving is None and found.script:
            self._proving = self._beside.submit(self.prove, found)
        if self._helping is None and found.workarounds and self.with_workaround:
            self._helping = self._beside.submit(self._help, found, runs, calls, is_alone)

    def prove_and_help(self, found: Found, runs: Runs, *, calls: int) -> None:
        """Prove the reproducer and try workarounds, as far as that is not done yet."""
        self.begin(found, runs, calls=calls, is_alone=True)
        if self._helping is not None:
            self._helping.result()
            if self.workaround is None:
                self._help(found, runs, calls, is_alone=True)
        if self._proving is not None:
            self._proving.result()

    def forget(self) -> None:
        """What was shown of a finding that did not hold says nothing about the next one."""
        self.verification = self.workaround = self._proving = self._helping = None

    def close(self) -> None:
        """End what is under way; no more is started."""
        self.fresh.close()
        self._beside.shutdown(cancel_futures=True)

    def prove(self, found: Found) -> None:
        """Run the reproducer in fresh processes, if there is one."""
        if not found.script:
            return
        self.script.write_text(found.script, "utf-8")
        self.say(f"running the reproducer in fresh processes ({self.times})")
        self.verification = self.fresh.verify(
            self.script, found.expected_output, is_timed=found.failure.kind == SLOW
        )
        (self.place / "repro-output.txt").write_text(self.verification.output, "utf-8")
        self.on_shown()

    def _help(self, found: Found, runs: Runs, calls: int, is_alone: bool) -> None:
        """Try the workarounds that helped the graph on the program itself, until one works."""
        for tried in found.workarounds[:_MOST_WORKAROUNDS]:
            instructions = Instructions(calls=calls, workaround=tried.code, investigate=False)
            run = runs.again(instructions, f"trying on the program: {tried.text}")
            works = every_check_passed(run)
            if not works and not is_alone:
                return  # Perhaps only because the program cannot run twice at a time.
            self.workaround = Workaround(tried.text, works, tried.slowdown, tried.code)
            self.on_shown()
            if works:
                return

    def prove_function(self, verdict: Verdict, place: Path) -> None:
        """Where Dynamo fails there is no graph: the function itself is the reproducer."""
        source = place / FUNCTION_SCRIPT
        if not source.exists():
            return
        path = source.rename(self.script)
        self.say(f"running the function alone in fresh processes ({self.times})")
        self.verification = checked = self.fresh.verify(path, ["eager: ok"])
        verdict.repro = Repro(str(path), checked.is_verified, checked.failed, checked.of, 0)

    def _follow_proof(self, verdict: Verdict) -> None:
        """A reproducer that does not fail every time proves less than the program shows."""
        checked = self.verification
        if checked is None or checked.is_verified:
            return
        is_lowered = verdict.confidence == "proven"
        verdict.confidence = "likely" if is_lowered else verdict.confidence
        verdict.add(
            f"the reproducer failed in {checked.failed} of {checked.of} fresh processes: it may "
            "fail now and then, or need something that is not in the script",
            "so the verdict is likely, not proven" if is_lowered else "",
        )

    def verdict_on(self, found: Found) -> Verdict:
        """The verdict on what was found, with what was shown so far."""
        result = verdict_on(found)
        if self.verification is not None:
            result.repro = Repro(
                str(self.script),
                self.verification.is_verified,
                self.verification.failed,
                self.verification.of,
                found.nodes,
            )
            self._follow_proof(result)
        elif found.no_script:
            result.add(f"no script could be written: {found.no_script}")
        result.workaround = self.workaround
        return result


# --------------------------------------------------------------------------------------------------
# What is known so far, told as soon as it is: the kind, the place, the small graph, the proof.

Say = Callable[[str], None]

# In the order in which they become known.
KIND, PLACE, GRAPH, PROOF, WORKAROUND = "kind", "place", "graph", "proof", "workaround"


@dataclass
class Answers:
    """Tells each answer once, and hands over the verdict as far as it goes."""

    say: Say
    hand_over: Callable[[Verdict], None]
    started: float = field(default_factory=time.monotonic)
    # Seconds from the start until each answer was known.
    known: dict[str, float] = field(default_factory=dict)
    _told: dict[str, str] = field(default_factory=dict)
    # Answers come from the thread that watches the program and from those that prove.
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, found: Found, proof: Proof) -> None:
        """Something has changed in what is found, or in what is shown."""
        with self._lock:
            verdict = proof.verdict_on(found)
            told = {name: _SENTENCES[name](verdict, found) for name in _answered(verdict, found)}
            new = {name: text for name, text in told.items() if self._told.get(name) != text}
            if not new:
                return
            for name, text in new.items():
                # The place in the smallest graph may be a closer one.
                more = ", on a closer look" if name in self._told else ""
                self.say(f"→ {name}{more}: {text}")
                self.known.setdefault(name, round(time.monotonic() - self.started, 1))
            self._told |= new
            verdict.partial = True
            verdict.known = dict(self.known)
            verdict.seconds = round(time.monotonic() - self.started, 1)
            self.hand_over(verdict)

    def known_of(self, verdict: Verdict) -> dict[str, float]:
        """When the answers were known; none if the verdict took back what was told of its kind."""
        with self._lock:
            return dict(self.known) if self._told.get(KIND) == verdict.verdict else {}


def _answered(verdict: Verdict, found: Found) -> list[str]:
    """The answers that are there."""
    answers = {
        # How long something took in the program is no failure yet.
        KIND: found.reproduces or found.failure.kind != SLOW,
        PLACE: found.reproduces and found.is_located,
        GRAPH: found.nodes > 0
        and (bool(found.script) or (found.is_complete and bool(found.no_script))),
        PROOF: verdict.repro is not None and verdict.repro.verified,
        WORKAROUND: verdict.workaround is not None and verdict.workaround.verified,
    }
    return [name for name, is_there in answers.items() if is_there]


def _kind(verdict: Verdict, found: Found) -> str:
    return verdict.verdict


def _place(verdict: Verdict, found: Found) -> str:
    culprit = verdict.culprit
    named = (culprit.pass_, culprit.op, culprit.kernel)
    names = ", ".join(filter(None, named)) or found.failure.detail
    return f"stage {verdict.stage}: {names}"


def _graph(verdict: Verdict, found: Found) -> str:
    written = "written as a script" if found.script else "of which no script could be written"
    return f"{found.nodes} of {count_of(found.nodes_before, 'node')}, {written}"


def _proof(verdict: Verdict, found: Found) -> str:
    shown = verdict.repro
    times = f"{shown.failed} of {shown.of}" if shown is not None else ""
    return f"the reproducer failed in {times} fresh processes"


def _workaround(verdict: Verdict, found: Found) -> str:
    return verdict.workaround.text if verdict.workaround else ""


_SENTENCES: dict[str, Callable[[Verdict, Found], str]] = {
    KIND: _kind,
    PLACE: _place,
    GRAPH: _graph,
    PROOF: _proof,
    WORKAROUND: _workaround,
}
