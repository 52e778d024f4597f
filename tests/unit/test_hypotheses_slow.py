"""The doctor's conclusions from a compile that takes long."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.doctor.failure import SLOW, Failure, Location
from inductoscope.doctor.finding import (
    FailureFinding,
    GraphWorkaround,
    GraphWorkarounds,
    ReplacedPart,
    ReplacedParts,
    Script,
    SlowStage,
)
from inductoscope.doctor.fresh_processes import FreshProcesses, Verification
from inductoscope.doctor.hypotheses import first_verdict
from inductoscope.profiling.compile_growth import Explosion, Point, StageGrowth
from inductoscope.recording.events import (
    CompileEnd,
    CompileStart,
    Event,
    LoweredNode,
    StageEnd,
    TorchImported,
)
from inductoscope.torch_facts import stages
from inductoscope.views.verdict_text import worded
from support.findings import finding
from support.program_cases import COMPILED, ENDS_WELL, PLAIN, End, check, written_case


def run(scheduler: float, *, imported: float = 2.0, nodes: int = 24) -> tuple[Event, ...]:
    """A run whose compile spends so much time in the scheduler, and as usual elsewhere."""
    return (
        TorchImported(version="2.13.0", seconds=imported),
        CompileStart(compile="0/0", function="f", file="model.py", line=3),
        *(LoweredNode(graph="0/0 inference", node=f"n{n}", target="add", seconds=0.01)
          for n in range(nodes)),
        StageEnd(stage=stages.LOWERING, compile="0/0", seconds=0.5 + 0.006 * nodes),
        StageEnd(stage=stages.SCHEDULER, compile="0/0", seconds=scheduler),
        StageEnd(stage=stages.CODEGEN, compile="0/0", seconds=1.5 + 0.007 * nodes),
        CompileEnd(compile="0/0", seconds=scheduler + 5.0, outcome="compiled"),
        check(),
    )  # fmt: skip


GROWTH = StageGrowth(
    stages.SCHEDULER, 2.1, 1.9, 2.3, (Point(6, 1.2), Point(12, 5.0), Point(24, 21.0))
)
EXPLOSION = Explosion(stages.SCHEDULER, 24, 21.0, 3.0, GROWTH)


class WrittenProofs(FreshProcesses):
    """Fresh processes of which so many are slow, without starting them."""

    def __init__(self, slow: int, of: int = 3) -> None:
        self.times = of
        self._outcome = Verification(slow, of, "eager: ok")

    def verify(
        self,
        script: Path,
        expected: Sequence[str],
        *,
        seconds: float = 180.0,
        is_timed: bool = False,
    ) -> Verification:
        assert is_timed
        return self._outcome


def found(
    explosion: Explosion | None, script: str = "the reproducer", *facts: Any
) -> FailureFinding:
    """A finding of the investigation inside the program."""
    if explosion is None:
        return finding(Failure(SLOW, "", stages.SCHEDULER), reproduces=False)
    place = Location(stage=stages.SCHEDULER, function="Scheduler.can_fuse (scheduler.py:9)")
    helps = GraphWorkaround("max_fusion_size = 8", "pass", before=8.0, after=0.8)
    return finding(
        Failure(SLOW, "the scheduler takes 21 s", stages.SCHEDULER),
        Script(script),
        GraphWorkarounds((helps,)),
        SlowStage(explosion, functions=("can_fuse", "fuse"), share=0.9, samples=40),
        *facts,
        location=place,
        operations=("aten.sin.default",),
        sources=("model.py:4",),
        nodes=8,
    )


def test_a_compile_that_explodes_is_slow_with_stage_function_and_growth(
    tmp_path: Path, snapshot: Any
) -> None:
    first = End(events=run(21.0))
    faster = End(events=run(2.0))
    runs = [End(found=found(EXPLOSION)), faster]
    case, asked = written_case(tmp_path, first, compiled=runs, plain=[ENDS_WELL])
    case.proof.fresh = WrittenProofs(slow=3)
    verdict = worded(first_verdict(case))
    assert (verdict.verdict, verdict.stage) == ("slow", stages.SCHEDULER)
    assert verdict.confidence == "proven"
    assert verdict.culprit.function == "Scheduler.can_fuse (scheduler.py:9)"
    assert verdict.culprit.source == "model.py:4"
    assert asked == [COMPILED, PLAIN, COMPILED]
    assert verdict.workaround is not None
    assert verdict.workaround.verified
    assert [verdict.summary, *verdict.evidence] == snapshot
    assert verdict.workaround.predicted == pytest.approx(18.9)
    assert verdict.workaround.saved == pytest.approx(19.0)


def test_a_slow_lowering_that_is_the_programs_own_is_called_so(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    part = ReplacedPart("lowering", "aten.erf.default", "own_erf (/elsewhere/m.py:7)")
    place = Location(stage=stages.LOWERING, operation="aten.erf.default")
    slow = found(EXPLOSION, "the reproducer", ReplacedParts((part,)), place)
    runs = [End(found=slow), End(events=run(2.0))]
    case, _ = written_case(tmp_path, End(events=run(21.0)), compiled=runs, plain=[ENDS_WELL])
    case.proof.fresh = WrittenProofs(slow=3)
    verdict = worded(first_verdict(case))
    assert verdict.summary == snapshot
    assert any("not torch's" in each["what"] for each in verdict.evidence)


def test_a_program_that_fails_because_it_waited_too_long_is_slow_not_wrong(tmp_path: Path) -> None:
    first = End(1, "AssertionError: too slow", events=run(21.0))
    runs = [End(found=found(EXPLOSION)), End(events=run(20.0))]
    case, asked = written_case(tmp_path, first, compiled=runs)
    case.proof.fresh = WrittenProofs(slow=2)
    verdict = worded(first_verdict(case))
    assert (verdict.verdict, verdict.confidence) == ("slow", "likely")
    # All that is graver is asked first.
    assert asked.index("aot_eager") < asked.index(COMPILED)
    assert verdict.workaround is not None
    assert not verdict.workaround.verified


@pytest.mark.parametrize(("slow", "script"), [(0, "x"), (1, "x"), (3, "")])
def test_a_reproducer_that_is_not_slow_most_times_accuses_nobody(
    tmp_path: Path, slow: int, script: str
) -> None:
    """Nor does a graph that no script can show."""
    runs = [End(found=found(EXPLOSION, script))]
    case, asked = written_case(tmp_path, End(events=run(21.0)), compiled=runs, plain=[ENDS_WELL])
    case.proof.fresh = WrittenProofs(slow)
    verdict = worded(first_verdict(case))
    assert (verdict.verdict, verdict.repro, asked) == ("clean", None, [COMPILED, PLAIN])


def test_a_program_that_fails_without_the_tool_is_not_called_slow(tmp_path: Path) -> None:
    """It ended well under the tool only, which is graver than a slow compile."""
    runs = [End(found=found(EXPLOSION))]
    case, _ = written_case(tmp_path, End(events=run(21.0)), compiled=runs)
    case.proof.fresh = WrittenProofs(slow=3)
    assert first_verdict(case).verdict not in ("slow", "clean")


def test_a_level_of_the_compiler_that_fails_comes_before_a_slow_compile(tmp_path: Path) -> None:
    first = End(1, "AssertionError: 3", events=run(21.0))
    case, asked = written_case(tmp_path, first, eager=[End(1, "AssertionError: 3")])
    verdict = worded(first_verdict(case))
    assert (verdict.verdict, verdict.stage) != ("slow", stages.SCHEDULER)
    assert COMPILED not in asked


def test_a_compile_that_is_in_proportion_alone_is_not_slow(tmp_path: Path) -> None:
    case, asked = written_case(
        tmp_path, End(events=run(21.0)), compiled=[End(found=found(None))], plain=[ENDS_WELL]
    )
    assert (first_verdict(case).verdict, asked) == ("clean", [COMPILED, PLAIN])


def test_a_usual_compile_is_not_looked_at_again(tmp_path: Path) -> None:
    """A clean verdict costs no further run."""
    for scheduler, nodes in ((0.4, 24), (3.0, 400), (8.0, 1000)):
        place = tmp_path / str(nodes)
        place.mkdir()
        events = run(scheduler, nodes=nodes)
        case, asked = written_case(place, End(events=events), plain=[ENDS_WELL])
        assert (first_verdict(case).verdict, asked) == ("clean", [PLAIN])


def test_on_a_slow_machine_everything_takes_longer(tmp_path: Path) -> None:
    """Where torch takes 20 s to be imported, a compile of 21 s does not stand out."""
    events = run(8.0, imported=20.0)
    case, asked = written_case(tmp_path, End(events=events), plain=[ENDS_WELL])
    assert (first_verdict(case).verdict, asked) == ("clean", [PLAIN])


def test_a_program_that_fails_in_eager_too_is_not_slow(tmp_path: Path) -> None:
    first = End(1, "AssertionError: 3", events=run(21.0))
    same = End(1, "AssertionError: 3")
    case, _ = written_case(tmp_path, first, off=[same], plain=[same])
    assert first_verdict(case).verdict == "not-a-bug"
