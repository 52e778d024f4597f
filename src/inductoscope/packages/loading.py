"""Runs in a child process: loads a package and its inputs with torch. Executes native code."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

from inductoscope.packages.guards import InputFacts

TORCH_NAMES = {
    "torch._C": ("_aoti.AOTIModelPackageLoader", "_aoti.AOTIModelContainerRunnerCpu"),
    "torch.export.pt2_archive._package": ("load_pt2",),
    "torch.utils._pytree": ("treespec_loads", "tree_flatten"),
    "torch.export._tree_utils": ("reorder_kwargs",),
}

HOW_TO_WRITE = (
    "Write such a file with torch.save((x, y), PATH), or torch.save(((x,), {'scale': s}), PATH) "
    "for keyword arguments."
)


class InputsRefused(Exception):
    """The file of inputs holds something else than tensors, or not what the model takes."""


def load_operators(files: Sequence[str]) -> None:
    """Define custom operators: a library is loaded, a Python file is run."""
    import runpy

    import torch

    for file in files:
        if file.endswith(".py"):
            runpy.run_path(file, run_name="operators")
        else:
            torch.ops.load_library(file)


def load_arguments(path: str) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Positional and keyword arguments from a file that may hold tensors only."""
    import torch

    try:
        found = torch.load(path, weights_only=True, map_location=_map_location())
    except pickle.UnpicklingError as error:
        reason = " ".join(_reason(str(error)).split())
        raise InputsRefused(
            f"{path} is not loadable with weights_only=True: {reason} Loading it without that "
            f"would execute what is in it. {HOW_TO_WRITE}"
        ) from None
    except Exception:  # A damaged file can bring about any.
        raise InputsRefused(
            f"{path} is not a file that torch.save wrote, or is damaged. {HOW_TO_WRITE}"
        ) from None
    return _arguments(path, found)


def _map_location() -> str | None:
    """What was saved on a GPU is loaded on the CPU where there is none."""
    import torch

    return None if torch.cuda.is_available() else "cpu"


def _reason(text: str) -> str:
    """The sentence of torch's long answer that says what is in the file."""
    _, _, rest = text.partition("WeightsUnpickler error: ")
    return (rest or text).strip().splitlines()[0].partition(". ")[0] + "."


def _arguments(path: str, found: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
    import torch

    if isinstance(found, torch.Tensor):
        return (found,), {}
    if isinstance(found, Mapping) and all(isinstance(key, str) for key in found):
        return (), found
    if isinstance(found, (tuple, list)):
        if len(found) == 2 and isinstance(found[0], (tuple, list)) and isinstance(found[1], dict):
            return tuple(found[0]), found[1]
        return tuple(found), {}
    raise InputsRefused(f"{path} holds a {type(found).__name__}. {HOW_TO_WRITE}")


def flat_inputs(args: Sequence[Any], kwargs: Mapping[str, Any], in_spec: str) -> list[Any]:
    """The tensors in the order in which the package takes them."""
    import torch
    from torch.export._tree_utils import reorder_kwargs
    from torch.utils import _pytree as pytree

    named = dict(kwargs)
    if in_spec and named:
        try:
            named = reorder_kwargs(named, pytree.treespec_loads(in_spec))
        except (ValueError, AssertionError, KeyError, NotImplementedError) as error:
            raise InputsRefused(
                f"The keyword arguments are not those that the package takes: {error}"
            ) from None
    flat, _ = pytree.tree_flatten((tuple(args), named))
    return [item for item in flat if isinstance(item, torch.Tensor)]


def facts_of(tensor: Any) -> InputFacts:
    """What guards ask of an input."""
    address = tensor.data_ptr()
    aligned = next((size for size in (64, 32, 16, 8, 4, 2) if address % size == 0), 1)
    return InputFacts(
        dtype=str(tensor.dtype).removeprefix("torch."),
        sizes=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        device=str(tensor.device),
        alignment=aligned,
    )


def output_facts(tensor: Any) -> dict[str, Any]:
    """What a user wants to know of an output."""
    import torch

    facts: dict[str, Any] = {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "sizes": list(tensor.shape),
        "device": str(tensor.device),
        "nan": 0,
        "infinite": 0,
        "least": None,
        "most": None,
    }
    if tensor.numel() and not tensor.is_complex() and tensor.dtype != torch.bool:
        values = tensor.detach().to(torch.float64)
        finite = values[torch.isfinite(values)]
        facts["nan"] = int(torch.isnan(values).sum())
        facts["infinite"] = int(torch.isinf(values).sum())
        if finite.numel():
            facts["least"], facts["most"] = float(finite.min()), float(finite.max())
    return facts


class LoadedModel:
    """A model whose native code is in this process."""

    def __init__(self, order: Mapping[str, Any], runners: int = 1) -> None:
        """Dies with the process if the package is bad: that is why there is a child."""
        self._model = _load(order, runners)
        # A package's loader takes the inputs over, a plain runner does not.
        self._run = getattr(self._model, "boxed_run", self._model.run)

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Run it once."""
        return list(self._run(list(inputs)))


def _load(order: Mapping[str, Any], runners: int) -> Any:
    import torch

    path, name = order["package"], order["model"]
    if order["kind"] == "library":
        if order["device"] == "cuda":
            # Only a torch that was built for CUDA has it.
            runner = getattr(torch._C._aoti, "AOTIModelContainerRunnerCuda")  # noqa: B009
            return runner(path, runners, "cuda", "")
        return torch._C._aoti.AOTIModelContainerRunnerCpu(path, runners)
    if order["has_weights_files"]:
        from torch.export.pt2_archive._package import load_pt2

        contents = load_pt2(path, num_runners=runners, load_weights_from_disk=True)
        return contents.aoti_runners[name].loader
    return torch._C._aoti.AOTIModelPackageLoader(path, name, False, runners, -1)
