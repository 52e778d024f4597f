"""Runs in a child process: loads a package, calls it repeatedly, finds leaks. Executes its code."""

from __future__ import annotations

import array
import ctypes
import gc
import os
import pickle
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from inductoscope.torch_facts.package_wrappers import DTYPES, InputFacts

HOW_TO_WRITE = (
    "Write such a file with torch.save((x, y), PATH), or torch.save(((x,), {'scale': s}), PATH) "
    "for keyword arguments."
)


class InputsRefused(Exception):
    """The error for a file of inputs with objects other than tensors, or wrong inputs."""


def load_operators(files: Sequence[str]) -> None:
    import runpy

    import torch

    for file in files:
        if file.endswith(".py"):
            runpy.run_path(file, run_name="operators")
        else:
            torch.ops.load_library(file)


def load_arguments(path: str) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Load positional and keyword arguments from a file that may hold tensors only."""
    import torch

    try:
        found = torch.load(path, weights_only=True, map_location=_map_location())
    except pickle.UnpicklingError as error:
        reason = " ".join(_reason(str(error)).split())
        raise InputsRefused(
            f"{path} is not loadable with weights_only=True: {reason} Loading it without that "
            f"would execute what is in it. {HOW_TO_WRITE}"
        ) from None
    except Exception:  # A damaged file can raise any exception.
        raise InputsRefused(
            f"{path} is not a file that torch.save wrote, or is damaged. {HOW_TO_WRITE}"
        ) from None
    return _arguments(path, found)


def _map_location() -> str | None:
    """Return "cpu" if there is no GPU, for tensors that were saved on one; else None."""
    import torch

    return None if torch.cuda.is_available() else "cpu"


def _reason(text: str) -> str:
    """Extract the sentence of torch's long message that says what is in the file."""
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
    """Return the tensors in the order in which the package takes them."""
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
    """Describe dtype, shape and range of an output, with counts of NaN and infinities."""
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


def load_model(order: Mapping[str, Any], runners: int = 1) -> Callable[[Sequence[Any]], list[Any]]:
    """Load a model into this process, which a bad package may crash; return what calls it."""
    model = _load(order, runners)
    # A package's loader takes the inputs over, a plain runner does not.
    run = getattr(model, "boxed_run", model.run)
    return lambda inputs: list(run(list(inputs)))


def _load(order: Mapping[str, Any], runners: int) -> Any:
    import torch

    path, name = order["package"], order["model"]
    if order["kind"] == "library":
        if order["device"] == "cuda":
            # Only a torch built for CUDA has this class.
            runner = getattr(torch._C._aoti, "AOTIModelContainerRunnerCuda")  # noqa: B009
            return runner(path, runners, "cuda", "")
        return torch._C._aoti.AOTIModelContainerRunnerCpu(path, runners)
    if order["has_weights_files"]:
        from torch.export.pt2_archive._package import load_pt2

        contents = load_pt2(path, num_runners=runners, load_weights_from_disk=True)
        return contents.aoti_runners[name].loader
    return torch._C._aoti.AOTIModelPackageLoader(path, name, False, runners, -1)


# --- repeated calls of a package, with measurements of what they leave behind ----

Say = Callable[..., None]

_WINDOWS = 20
_RELOADS = 10


def repeat(order: Mapping[str, Any], inputs: Sequence[Any], say: Say) -> None:
    """Call and load a package repeatedly, and call it from several streams on a GPU."""
    import torch

    torch.save([bits_of(tensor) for tensor in inputs], order["raw_inputs"])  # For the C++ program.
    say("stage", stage="repeat")
    _watch_calls(order, inputs, say)
    say("stage", stage="reload")
    _watch_loading(order, inputs, say)
    if any(tensor.is_cuda for tensor in inputs):
        say("stage", stage="streams")
        _run_on_streams(order, inputs, say)


_BITS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64", 16: "complex128"}


def bits_of(tensor: Any) -> tuple[Any, int]:
    """Return the bits of a tensor of any type, which C++ can read, and the number of the type."""
    import torch

    plain = tensor.detach().resolve_conj().resolve_neg()
    codes = {name: code for code, name in DTYPES.items()}
    code = codes[str(plain.dtype).removeprefix("torch.")]
    return plain.view(getattr(torch, _BITS[plain.element_size()])), code


def _watch_calls(order: Mapping[str, Any], inputs: Sequence[Any], say: Say) -> None:
    model = load_model(order)
    say("measured", what="calls", samples=watch(lambda: model(inputs), order["serve"]["calls"]))


def watch(call: Callable[[], Any], calls: int) -> list[dict[str, int]]:
    """Return samples taken between calls, after a warm-up."""
    window = max(1, calls // _WINDOWS)
    samples = _Samples(_WINDOWS + 1)
    for _ in range(2 * window + 10):
        call()
    samples.take(0)
    for number in range(1, _WINDOWS + 1):
        for _ in range(window):
            call()
        samples.take(number * window)
    return samples.rows()


def _watch_loading(order: Mapping[str, Any], inputs: Sequence[Any], say: Say) -> None:
    """Load and unload repeatedly: with calls to find files left behind, without for the rest."""
    for _ in range(3):
        load_model(order)(inputs)
    before = _left_behind()
    for _ in range(_RELOADS):
        load_model(order)(inputs)
    left = _left_behind() - before
    mapped = _mapped(order["library"])
    samples = _Samples(_RELOADS + 1)
    samples.take(0)
    for number in range(1, _RELOADS + 1):
        load_model(order)
        samples.take(number)
    still = _mapped(order["library"]) - mapped
    say("measured", what="loading", left=left, mapped=still, samples=samples.rows())


def _mapped(library: str) -> int:
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        words = (line.split(maxsplit=5) for line in file)
        paths = {w[5].strip().removesuffix(" (deleted)") for w in words if len(w) == 6}
    return sum(os.path.basename(path) == library for path in paths) if library else 0


def _left_behind() -> int:
    """Return the number of entries in this process's private temporary folder."""
    return len(os.listdir(os.environ["TMPDIR"]))


_COLUMNS = ("calls", "resident", "allocated", "files", "threads")


class _Samples:
    """Numbers sampled between calls, in preallocated memory: sampling itself keeps none."""

    def __init__(self, count: int) -> None:
        self._numbers = array.array("q", bytes(8 * len(_COLUMNS) * count))
        self._next = 0
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._ask = _malloc_question()
        self.take(0)  # The first sample sets up caches.
        self._next = 0

    def take(self, calls: int) -> None:
        gc.collect()
        allocated = _allocated(self._ask)
        with open("/proc/self/statm", encoding="utf-8") as file:
            resident = int(file.read().split()[1]) * self._page
        row = (calls, resident, allocated, *map(_entries, ("fd", "task")))
        for number in row:
            self._numbers[self._next] = number
            self._next += 1

    def rows(self) -> list[dict[str, int]]:
        width = len(_COLUMNS)
        starts = range(0, len(self._numbers), width)
        return [
            dict(zip(_COLUMNS, self._numbers[start : start + width], strict=True))
            for start in starts
        ]


def _entries(folder: str) -> int:
    return len(os.listdir(f"/proc/self/{folder}"))


class _MallocInfo(ctypes.Structure):
    _fields_ = tuple((f"field{number}", ctypes.c_size_t) for number in range(10))


def _malloc_question() -> Any:
    """Return the C function mallinfo2; None if the C library has none."""
    try:
        ask = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return None
    ask.restype = _MallocInfo
    return ask


def _allocated(ask: Any) -> int:
    """Return the bytes that malloc has in use; -1 if unknown."""
    import torch

    if ask is None:
        return -1
    on_gpu = int(torch.cuda.memory_allocated()) if torch.cuda.is_initialized() else 0
    info = ask()
    # Fields in the order of <malloc.h>: hblkhd is the fifth, uordblks the eighth.
    return int(info.field4) + int(info.field7) + on_gpu


def _run_on_streams(order: Mapping[str, Any], inputs: Sequence[Any], say: Say) -> None:
    """Compare concurrent calls on several streams with the result of a single call."""
    import torch

    alone = load_model(order)(inputs)
    torch.cuda.synchronize()
    count = order["serve"]["threads"]
    model = load_model(order, runners=count)
    streams = [torch.cuda.Stream() for _ in range(count)]
    different = 0
    for _ in range(max(1, order["serve"]["calls"] // count)):
        results = []
        for stream in streams:
            with torch.cuda.stream(stream):
                results.append(model(inputs))
        torch.cuda.synchronize()
        different += sum(not _same(alone, result) for result in results)
    say("measured", what="streams", calls=order["serve"]["calls"], different=different)


def _same(expected: Sequence[Any], found: Sequence[Any]) -> bool:
    import torch

    return len(expected) == len(found) and all(
        torch.allclose(one.double(), other.double(), rtol=1e-3, atol=1e-5, equal_nan=True)
        for one, other in zip(expected, found, strict=True)
    )


# --- parts of a model, to find which of them leaks ------------------------------------------------

# One call of an operator: the operator, its arguments and its result.
OperatorCall = tuple[Any, Any, Any, Any]


def call_parts(order: Mapping[str, Any], inputs: Sequence[Any], say: Say) -> None:
    """Call each custom operator alone, then the model without them, reported as `name` empty."""
    model, calls = load_model(order), order["serve"]["calls"]
    recorded = recorded_calls(order["custom_operators"], lambda: model(inputs))
    if recorded and not any(call[0]._schema.is_mutable for call in recorded):
        rows = watch(lambda: with_answers(recorded, lambda: model(inputs)), calls)
        say("measured", what="parts", name="", samples=rows)
    for name in dict.fromkeys(call[0]._schema.name for call in recorded):
        own = [call for call in recorded if call[0]._schema.name == name]
        say("measured", what="parts", name=name, samples=watch(partial(_again, own), calls))


def recorded_calls(names: Sequence[str], call: Callable[[], Any]) -> list[OperatorCall]:
    """Record every call of these operators while `call` runs, with copies of all tensors."""
    found: list[OperatorCall] = []

    def record(func: Any, args: Any, kwargs: Any) -> Any:
        given = _copied((args, kwargs))
        result = func(*args, **kwargs)
        found.append((func, *given, _copied(result)))
        return result

    _with_operators(names, record, call)
    return found


def with_answers(recorded: Sequence[OperatorCall], call: Callable[[], Any]) -> None:
    """Run `call` with operators replaced by their recorded results."""
    names = {one[0]._schema.name for one in recorded}
    answers = (_copied(one[3]) for one in recorded)
    _with_operators(names, lambda *given: next(answers), call)


def _with_operators(
    names: Collection[str], instead: Callable[[Any, Any, Any], Any], call: Callable[[], Any]
) -> None:
    """Run `call` with another function in the place of these operators."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Replacing(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func._schema.name in names:
                return instead(func, args, kwargs or {})
            return func(*args, **(kwargs or {}))

    with Replacing():
        call()


def _again(calls: Sequence[OperatorCall]) -> None:
    for function, args, kwargs, _ in calls:
        copied = _copied((args, kwargs))
        function(*copied[0], **copied[1])


def _copied(values: Any) -> Any:
    import torch
    from torch.utils import _pytree as pytree

    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), values)
