"""Placement of candidates for a GPU, in a search process that never initialises CUDA.

A process that has initialised CUDA cannot be forked. So the process that searches keeps all values
in main memory, and every fork puts them on the device for itself. An illegal access or an endless
kernel then costs one fork.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from inductoscope.errors import ToolFailure
from inductoscope.inside.compare.graphs import input_names
from inductoscope.inside.compare.values import copy_values
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.forks import WORKERS_ON_GPU, Forks

# The part of a GPU's memory that all forks together may use.
_PART_OF_GPU = 0.8


def kept_in_main_memory(candidate: Candidate) -> Candidate:
    """Move the candidate's tensors to main memory, and note their devices."""
    tensors = _tensors(candidate)
    others = [str(value.device) for value in tensors.values() if value.device.type != "cpu"]
    if not others:
        return candidate
    module = candidate.module
    if any(value.device.type != "cpu" for value in _attributes(candidate).values()):
        module = copy.deepcopy(module).cpu()
    return replace(
        candidate.with_calls_changed(lambda inputs: copy_values(inputs, device="cpu")),
        module=module,
        device=max(set(others), key=others.count),
        on_cpu=frozenset(n for n, value in tensors.items() if value.device.type == "cpu"),
    )


def is_for_gpu(candidate: Candidate) -> bool:
    """Check whether the candidate runs on a GPU, wherever its tensors are now."""
    tensors = _tensors(candidate).values()
    return bool(candidate.device) or any(value.device.type != "cpu" for value in tensors)


def _tensors(candidate: Candidate) -> dict[str, torch.Tensor]:
    """Return the tensors among the graph's inputs and attributes, by name."""
    names = input_names(candidate.module)
    given = {**dict(zip(names, candidate.inputs, strict=True)), **_attributes(candidate)}
    return {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}


def _attributes(candidate: Candidate) -> dict[str, torch.Tensor]:
    return dict([*candidate.module.named_parameters(), *candidate.module.named_buffers()])


def placed(candidate: Candidate) -> Candidate:
    """Move the candidate's tensors to their device; called in a fork."""
    if not candidate.device:
        return candidate
    if candidate.device.startswith("cuda"):
        torch.cuda.set_per_process_memory_fraction(_PART_OF_GPU / WORKERS_ON_GPU)
    _place_attributes(candidate)
    there = candidate.with_calls_changed(lambda inputs: placed_inputs(candidate, inputs))
    return replace(there, device="")


def placed_inputs(candidate: Candidate, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    if not candidate.device:
        return inputs
    names = input_names(candidate.module)
    stays = [name in candidate.on_cpu for name in names]
    moved = copy_values(
        [None if here else value for here, value in zip(stays, inputs, strict=True)],
        device=candidate.device,
    )
    return tuple(
        value if here else other for here, value, other in zip(stays, inputs, moved, strict=True)
    )


def _place_attributes(candidate: Candidate) -> None:
    for name, value in _attributes(candidate).items():
        if name not in candidate.on_cpu:
            value.data = value.data.to(candidate.device)


# --- What eager computes for a candidate: here, or in a fork if it needs a GPU --------------------

_SECONDS = 120.0


def eager_values(candidate: Candidate, compute: Callable[[Candidate], Any]) -> Any:
    """Return `compute(candidate)`, in a fork if it needs a GPU; its tensors must be on the CPU."""
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
