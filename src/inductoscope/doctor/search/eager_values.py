"""What eager computes for a candidate: here, or in a fork if it needs a GPU."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.forks import Forks
from inductoscope.doctor.search.placement import placed
from inductoscope.errors import ToolFailure

_SECONDS = 120.0


def eager_values(candidate: Candidate, compute: Callable[[Candidate], Any]) -> Any:
    """What `compute` returns for the candidate; tensors in it have to be in main memory."""
    if not candidate.device:
        return compute(candidate)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "values.pt"

        def work() -> bool:
            torch.save(compute(placed(candidate)), path)
            return True

        answer = Forks(workers=1, seconds=_SECONDS, uses_gpu=True).ask(work)
        if not answer.result:
            raise ToolFailure(f"eager could not run on {candidate.device}: {answer.error[-300:]}")
        return torch.load(path, map_location="cpu", weights_only=False)
