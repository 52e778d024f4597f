"""How sure a verdict is once its reproducer has been run: no surer than that shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from inductoscope.doctor.failure import WRONG, Failure
from inductoscope.doctor.handover import Found
from inductoscope.doctor.location import Location
from inductoscope.doctor.outside.proof import Proof
from inductoscope.doctor.repro.verify import FreshProcesses, Verification
from inductoscope.doctor.verdict import Verdict

LOCATED = Location(stage="lowering", operation="aten.tanh.default", how="every buffer was compared")
NOT_LOCATED = Location(stage="lowering", operation="aten.tanh.default")


def verdict_after(failed: int, place: Path, location: Location = LOCATED) -> Verdict:
    """The verdict on a wrong result whose reproducer failed in so many of three runs."""
    proof = Proof(FreshProcesses({}, place), place, lambda text: None, times=3)
    proof.verification = Verification(failed, of=3, output="")
    failure = Failure(WRONG, "output 0 is 2, in eager 1")
    found = Found("0/0", failure, location=location, is_complete=True, reproduces=True)
    return proof.verdict_on(found)


def said_of_reproducer(verdict: Verdict) -> list[tuple[str, str]]:
    return [(e["what"], e["where"]) for e in verdict.evidence if "the reproducer" in e["what"]]


def test_a_reproducer_that_fails_every_time_proves_the_verdict(tmp_path: Path) -> None:
    verdict = verdict_after(3, tmp_path)
    assert (verdict.confidence, said_of_reproducer(verdict)) == ("proven", [])
    assert verdict.repro is not None
    assert verdict.repro.verified


@pytest.mark.parametrize("failed", [0, 1])
def test_one_that_does_not_makes_it_likely_and_claims_no_cause(tmp_path: Path, failed: int) -> None:
    verdict = verdict_after(failed, tmp_path)
    assert verdict.confidence == "likely"
    said = (
        f"the reproducer failed in {failed} of 3 fresh processes: it may fail now and then, or "
        "need something that is not in the script"
    )
    assert said_of_reproducer(verdict) == [(said, "so the verdict is likely, not proven")]


def test_what_was_likely_before_is_not_said_to_have_become_so(tmp_path: Path) -> None:
    verdict = verdict_after(0, tmp_path, NOT_LOCATED)
    assert verdict.confidence == "likely"
    ((_, where),) = said_of_reproducer(verdict)
    assert where == ""
