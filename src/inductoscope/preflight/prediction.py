"""Predicts which collective calls will not match between real ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from inductoscope.analysis.ranks.comparing import RankDifference, RankSide
from inductoscope.analysis.ranks.decisions import Weight
from inductoscope.analysis.ranks.rank_logs import compared_lines
from inductoscope.analysis.ranks.report import RankPlace, RankReport, report_on
from inductoscope.preflight.rank_files import (
    HANG,
    MISMATCH,
    Prediction,
    RankFiles,
    message_faults,
    read_rank,
)
from inductoscope.preflight.rank_folder import MOST_CALLS
from inductoscope.preflight.rank_processes import PretendedJob, RankRun
from inductoscope.wording import count_of

NO_MORE = "no further collective"
LIMITS = (
    "Nothing was sent: torch's fake process group answers every collective at once. Results of "
    "collectives are not real, so a branch that depends on one may go another way in the job.",
    "Python objects arrive from rank 0 only; where another rank sends one, a rank keeps its own.",
)
WITH_A_TARGET = (
    "On a pretended GPU, collectives of compiled code are compared in its graphs, not as calls. "
    "DistributedDataParallel cannot be made on one, since it reads values: leave --target out."
)


@dataclass(frozen=True)
class Preflight:
    job: PretendedJob
    files: tuple[RankFiles, ...]
    report: RankReport
    predictions: tuple[Prediction, ...]
    notes: tuple[str, ...]

    @property
    def limits(self) -> tuple[str, ...]:
        return (*LIMITS, WITH_A_TARGET) if self.job.target else LIMITS

    @property
    def uses_distributed(self) -> bool:
        """Whether any rank created a process group."""
        return any(one.backend is not None for one in self.files)

    @property
    def failed(self) -> tuple[RankRun, ...]:
        """The ranks as which the program did not finish."""
        return tuple(one.run for one in self.files if not one.run.ended_well)

    @property
    def could_not_check(self) -> bool:
        """Whether the program failed as every rank, so that later calls are unknown."""
        return len(self.failed) == len(self.files)

    @property
    def differs(self) -> bool:
        """Whether ranks compute or call different things."""
        return any(one.weight is not Weight.COST for one in self.report.comparison.differences)

    @property
    def has_nothing_to_compare(self) -> bool:
        """Whether no rank compiled a graph, called a collective or sent a message."""
        has_messages = any(one.messages for one in self.files)
        return not (self.report.comparison.decisions or has_messages or self.failed)


def examine(job: PretendedJob, runs: Sequence[RankRun]) -> Preflight:
    files = tuple(read_rank(job.folder, run) for run in runs)
    places = [_place(run) for run in runs]
    # The order of compiles, and so the cache misses, are made by this check itself.
    # All calls are recorded, unless there are too many or compiled code cannot run here.
    report = report_on(
        [one.log for one in files],
        places,
        compared_lines,
        expected=job.ranks,
        ignored=("cache",),
        ends_tell=not job.target and not any(one.has_more_calls for one in files),
    )
    faults, about_messages = message_faults(
        {one.log.rank: one.messages for one in files},
        [one.log.rank for one in files if one.run.ended_well and not one.has_more_calls],
        next((one.backend for one in files if one.backend), ""),
    )
    return Preflight(
        job=job,
        files=files,
        report=report,
        predictions=(*_predictions(report), *faults),
        notes=(*_notes(job, files), *about_messages),
    )


def _place(run: RankRun) -> RankPlace:
    if run.ended_well:
        return RankPlace(run.rank, "ended", "the program ended", False, "proven")
    if run.exit_code is None:
        title = f"not done after {run.seconds:.0f} s, and ended by inductoscope"
        return RankPlace(run.rank, "time-out", title, True, "proven")
    last = next((line for line in reversed(run.output.splitlines()) if line.strip()), "")
    title = f"failed with exit code {run.exit_code}{f': {last.strip()[:160]}' if last else ''}"
    return RankPlace(run.rank, "error", title, True, "proven")


def _predictions(report: RankReport) -> list[Prediction]:
    deadly = (one for one in report.comparison.differences if one.is_deadly)
    found = [_prediction(report, one) for one in deadly]
    # A call of the program is more telling than the collectives in a graph.
    return sorted(found, key=lambda one: not one.was_called)


def _prediction(report: RankReport, difference: RankDifference) -> Prediction:
    kind, key, sides = difference.kind, difference.key, difference.sides
    called = kind == "collective"
    names = {side.decision.value.split(" ")[0] if side.decision else "" for side in sides}
    is_same_call = called and len(names) == 1
    line = report.first_lines.get((kind, key))
    if line is not None:
        sides = (_showing(sides[0], line.there), _showing(sides[1], line.here), *sides[2:])
    kind = MISMATCH if is_same_call else HANG
    return Prediction(kind, key, sides, was_called=called, is_message=False)


def _showing(side: RankSide, line: str) -> RankSide:
    """Return the side with its first collective that others lack, instead of the count."""
    if side.decision is None:
        return side
    return replace(side, decision=side.decision._replace(shown=line or NO_MORE))


def _notes(job: PretendedJob, files: Sequence[RankFiles]) -> list[str]:
    found = []
    asked = {one.asked_world for one in files} - {-1, job.world}
    if asked:
        found.append(
            f"The program itself asks for {min(asked)} ranks; it was compiled as {job.world}."
        )
    without = [one.log.rank for one in files if one.backend is None]
    if without and len(without) < len(files):
        found.append(f"No process group was made by rank {', '.join(map(str, without))}.")
    if any(one.has_more_calls for one in files):
        found.append(f"Only the first {MOST_CALLS} calls of collectives were compared.")
    if job.on_each_host < job.world:
        found.append(f"Every host is taken to have {count_of(job.on_each_host, 'rank')}.")
    if len(job.ranks) < job.world:
        found.append(f"{len(job.ranks)} of {job.world} ranks were run; the others may differ.")
    return found
