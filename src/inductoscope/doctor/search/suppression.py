"""Which parts of the compiler a failure needs: each is switched off in turn, in a fork."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inductoscope.doctor.search.axes import AXES
from inductoscope.doctor.search.axis import Axis, Fuel
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.failure import HANG, Failure
from inductoscope.doctor.search.failure_signature import failure_of_answer
from inductoscope.doctor.search.forks import Forks, Work
from inductoscope.doctor.search.localise import Location
from inductoscope.doctor.search.oracle import EagerFails, examine
from inductoscope.doctor.search.search import last_needed


def relevant_axes(candidate: Candidate, failure: Failure, location: Location) -> list[Axis]:
    """The axes worth trying."""
    axes = [axis for axis in AXES if is_relevant(axis, candidate, location)]
    if failure.kind == HANG:
        # Each that does not help costs the whole time limit.
        axes = [axis for axis in axes if axis.stage == location.stage]
    return axes


def find_cures(
    candidate: Candidate, failure: Failure, axes: Sequence[Axis], forks: Forks
) -> list[dict[str, Any]]:
    """The axes without which the failure is gone, with the application that matters."""
    cures = []
    tried = forks.ask_all([_tried_without(candidate, axis) for axis in axes])
    for axis, answer in zip(axes, tried, strict=True):
        if not answer.result or answer.result["failure"] is not None:
            continue
        if not answer.result["names"]:
            continue  # It was never asked: what is gone is gone for another reason.
        name = _last_application(candidate, failure, axis, answer.result["names"], forks)
        cures.append({"axis": axis.name, "stage": axis.stage, "title": axis.title, "name": name})
    return cures


def _last_application(
    candidate: Candidate, failure: Failure, axis: Axis, names: list[str], forks: Forks
) -> str:
    """By fuel: the application with which the failure begins to show."""
    if len(names) == 1 or failure.kind == HANG:
        return names[0] if len(names) == 1 else ""

    def fails(amount: int) -> bool:
        found = failure_of_answer(forks.ask(_tried_without(candidate, axis, amount)))
        return found is not None and found.is_same_as(failure)

    number = last_needed(len(names), fails)
    return names[number - 1] if number <= len(names) else ""


def _tried_without(candidate: Candidate, axis: Axis, amount: int = 0) -> Work:
    """Work for a fork: the candidate with the first `amount` applications of an axis allowed."""

    def work() -> dict[str, object]:
        fuel = Fuel(amount)
        try:
            failure = examine(candidate, lambda: axis.switch(fuel))
        except EagerFails:
            return {"failure": None, "names": []}
        return {"failure": None if failure is None else failure.as_data(), "names": fuel.names}

    return work


def is_relevant(axis: Axis, candidate: Candidate, location: Location) -> bool:
    """Whether switching an axis off could tell anything about this candidate."""
    import torch

    floats = {v.dtype for v in candidate.inputs if isinstance(v, torch.Tensor)}
    on_cpu = all(v.device.type == "cpu" for v in candidate.inputs if isinstance(v, torch.Tensor))
    settings = {**candidate.options, **candidate.config}
    needed = {
        "cudagraphs": not on_cpu,
        "freezing": bool(settings.get("freezing")),
        "autotune": bool(settings.get("max_autotune") or settings.get("max_autotune_gemm")),
        "dynamic shapes": bool(candidate.dynamic),
        "precision casts": bool(floats & {torch.float16, torch.bfloat16}),
        "vectorisation": on_cpu,
        "loop tail": on_cpu,
        "fast math": on_cpu,
        "C++ optimisation": on_cpu and not location.stage,
    }
    if not needed.get(axis.name, True):
        return False
    if location.stage in ("pre-grad-pass", "joint-pass", "post-grad-pass"):
        return axis.stage == location.stage or axis.name == "patterns"
    if location.stage == "decomposition":
        return axis.name == "decompositions"
    if location.stage == "aot":
        return False
    if location.stage in ("lowering", "codegen") or location.kernel:
        return axis.stage in ("lowering", "codegen", "loop-body", "scheduler")
    return True
