"""What is known so far, told as soon as it is: the kind, the place, the small graph, the proof."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from inductoscope.doctor.failure import SLOW
from inductoscope.doctor.handover import Found
from inductoscope.doctor.outside.proof import Proof
from inductoscope.doctor.verdict import Verdict
from inductoscope.vocabulary.counting import count_of

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
