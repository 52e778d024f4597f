"""How sure a verdict is once its reproducer has been run, and what is shown beside the search."""

from __future__ import annotations

from pathlib import Path

import pytest

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.failure import LOST_CHECK, SLOW, WRONG, Failure, Location
from inductoscope.doctor.finding import (
    FailureFinding,
    GraphWorkaround,
    GraphWorkarounds,
    Repro,
    Script,
)
from inductoscope.doctor.fresh_processes import FreshProcesses
from inductoscope.doctor.verdict import Verdict
from support.findings import finding, verdict_on
from support.program_cases import COMPILED, ENDS_WELL, FAILS, End, check, written_case

LOCATED = Location(stage="lowering", operation="aten.tanh.default", how="every buffer was compared")
NOT_LOCATED = Location(stage="lowering", operation="aten.tanh.default")


def verdict_after(failed: int, location: Location = LOCATED) -> Verdict:
    """The verdict on a wrong result whose reproducer failed in so many of three runs."""
    failure = Failure(WRONG, "output 0 is 2, in eager 1")
    repro = Repro("repro.py", failed == 3, failed, 3, 1)
    return verdict_on(finding(failure, repro, location=location))


def said_of_reproducer(verdict: Verdict) -> list[tuple[str, str]]:
    return [(e["what"], e["where"]) for e in verdict.evidence if "the reproducer" in e["what"]]


def test_a_reproducer_that_fails_every_time_proves_the_verdict() -> None:
    verdict = verdict_after(3)
    assert (verdict.confidence, said_of_reproducer(verdict)) == ("proven", [])
    assert verdict.repro is not None
    assert verdict.repro.verified


@pytest.mark.parametrize("failed", [0, 1])
def test_one_that_does_not_makes_it_likely_and_claims_no_cause(failed: int) -> None:
    verdict = verdict_after(failed)
    assert verdict.confidence == "likely"
    said = (
        f"the reproducer failed in {failed} of 3 fresh processes: it may fail now and then, or "
        "need something that is not in the script"
    )
    assert said_of_reproducer(verdict) == [(said, "so the verdict is at most likely")]


def test_what_was_likely_before_stays_so() -> None:
    assert verdict_after(0, NOT_LOCATED).confidence == "likely"


# --- beside the investigation ---------------------------------------------------------------------

FAILING = "print('the bug'); raise SystemExit(1)"
HELPED = GraphWorkaround("leave tanh to eager", "pass")


def wrong_graph(script: str = FAILING, kind: str = WRONG) -> FailureFinding:
    return finding(
        Failure(kind, "output 0 is 2, in eager 1", stage="lowering"),
        Script(script, ("the bug",)),
        GraphWorkarounds((HELPED,)),
        location=LOCATED,
        nodes=1,
        of=1,
        operations=("aten.tanh.default",),
    )


WRONG_GRAPH = wrong_graph()


def case_that(place: Path, *ends: End) -> tuple[ProgramCase, list[str]]:
    """A program whose trials with a workaround end so; its reproducers need no torch."""
    (place / "path").mkdir()
    (place / "path" / "torch.py").write_text("raise ImportError('not here')\n")
    case, asked = written_case(place, ENDS_WELL, compiled=list(ends))
    case.proof.fresh = FreshProcesses({"PYTHONPATH": str(place / "path")}, place, times=1)
    return case, asked


def test_what_was_begun_is_neither_proven_nor_tried_twice(tmp_path: Path) -> None:
    case, asked = case_that(tmp_path, End(events=(check(),)))
    for _ in range(3):
        case.proof.begin(WRONG_GRAPH)
    case.proof.prove_and_help(WRONG_GRAPH)
    assert case.proof.is_verified
    assert case.proof.workaround is not None
    assert case.proof.workaround.verified
    assert asked == [COMPILED]
    # No other process loads torch once the proof is there.
    case.proof.begin(WRONG_GRAPH)
    assert case.proof.fresh._server is None


def test_a_workaround_that_fails_beside_the_program_is_tried_again_alone(tmp_path: Path) -> None:
    # Two runs at a time may want the same port.
    port_in_use = End(1, "OSError: Address already in use")
    case, asked = case_that(tmp_path, port_in_use, End(events=(check(),)))
    case.proof.begin(WRONG_GRAPH)
    case.proof.prove_and_help(WRONG_GRAPH)
    assert asked == [COMPILED, COMPILED]
    assert case.proof.workaround is not None
    assert case.proof.workaround.verified


def test_a_workaround_that_does_not_help_is_said_not_to(tmp_path: Path) -> None:
    case, asked = case_that(tmp_path, FAILS)
    case.proof.prove_and_help(WRONG_GRAPH)
    assert asked == [COMPILED]
    assert case.proof.workaround is not None
    assert not case.proof.workaround.verified


@pytest.mark.parametrize(("ends_with", "helps"), [("ValueError: no", True), ("KeyError: 1", False)])
def test_a_workaround_that_gives_back_a_lost_check_lets_the_program_raise(
    ends_with: str, helps: bool, tmp_path: Path
) -> None:
    case, _ = case_that(tmp_path, End(1, f"step 3\n{ends_with}"))
    lost = Failure(LOST_CHECK, "compiled code returns", eager_error="ValueError: no")
    case.proof.prove_and_help(finding(lost, GraphWorkarounds((HELPED,))))
    assert case.proof.workaround is not None
    assert case.proof.workaround.verified is helps


def test_a_workaround_with_which_another_call_is_wrong_does_not_help(tmp_path: Path) -> None:
    wrong = End(1, "step 3\nValueError: no", events=(check("wrong"),))
    case, _ = case_that(tmp_path, wrong)
    lost = Failure(LOST_CHECK, "compiled code returns", eager_error="ValueError: no")
    case.proof.prove_and_help(finding(lost, GraphWorkarounds((HELPED,))))
    assert case.proof.workaround is not None
    assert not case.proof.workaround.verified


def test_what_may_be_slow_is_not_proven_beside_what_measures_it(tmp_path: Path) -> None:
    case, asked = case_that(tmp_path, ENDS_WELL)
    slow = wrong_graph(kind=SLOW)
    case.proof.begin(slow)
    case.proof.close()
    assert asked == []
    assert case.proof.repro is None


def test_the_next_finding_is_proven_after_one_that_did_not_hold(tmp_path: Path) -> None:
    case, _ = case_that(tmp_path, End(events=(check(),)))
    case.proof.prove_and_help(wrong_graph("pass"))
    assert not case.proof.is_verified
    case.proof.forget()
    case.proof.prove_and_help(WRONG_GRAPH)
    assert case.proof.is_verified
