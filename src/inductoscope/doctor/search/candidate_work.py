"""Work on a candidate as a value, so that another machine can do it as well as a fork."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from inductoscope.doctor.search.candidate import Candidate


@dataclass(frozen=True)
class CandidateWork(ABC):
    """Something to do with a candidate; all that it depends on is in it."""

    candidate: Candidate

    @abstractmethod
    def __call__(self) -> Any:
        """Do it, in a process that may be ended."""
