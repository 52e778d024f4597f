"""Starts the investigation that a failure calls for."""

from __future__ import annotations

from pathlib import Path

from inductoscope.doctor.failure import SLOW, Failure
from inductoscope.doctor.handover import Found
from inductoscope.doctor.inside.growth_measurement import GrowthMeasurement
from inductoscope.doctor.inside.investigation import Investigation
from inductoscope.doctor.inside.slow_investigation import SlowInvestigation
from inductoscope.doctor.instructions import Instructions
from inductoscope.doctor.search.candidate import Candidate


def investigate(
    candidate: Candidate, failure: Failure, found: Found, place: Path, instructions: Instructions
) -> Found:
    """All that can be found out in this process and its forks."""
    arguments = candidate, failure, found, place, instructions
    if failure.kind != SLOW:
        Investigation(*arguments).run()
    elif instructions.grow:
        GrowthMeasurement(*arguments).run()
    else:
        SlowInvestigation(*arguments).run()
    return found
