"""Runs in the user's process: it is one rank of a job whose other ranks do not exist.

torch's fake process group answers every collective at once, without communicating. What is called
is written down, in order: each collective with its group and the line of the program.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from inductoscope.analysis.ranks.graph_text import collective_text
from inductoscope.preflight.fake_objects import pretend_objects
from inductoscope.preflight.file_names import (
    ANY_RANK,
    CALLS,
    MOST_CALLS,
    OBJECTS,
    RECEIVE,
    SEND,
)
from inductoscope.vocabulary.frames import is_users

MODULE = "torch.distributed.distributed_c10d"
TORCH_NAMES = {
    "torch.distributed.distributed_c10d": ("_world",),
    "torch.testing._internal.distributed.fake_pg": ("FakeStore",),
    "torch._C": ("DispatchKey.BackendSelect", "_dispatch_keyset_full_after"),
    "torch._C._distributed_c10d": ("ProcessGroup.unbox", "_create_work_from_future"),
}
_FAKE = "fake"
# Operations of the dispatcher that every collective ends in, called eagerly or by compiled code.
_OPERATIONS = (
    "allreduce_",
    "allreduce_coalesced_",
    "broadcast_",
    "reduce_",
    "allgather_",
    "_allgather_base_",
    "allgather_coalesced_",
    "allgather_into_tensor_coalesced_",
    "reduce_scatter_",
    "_reduce_scatter_base_",
    "reduce_scatter_tensor_coalesced_",
    "alltoall_",
    "alltoall_base_",
    "gather_",
    "scatter_",
    "barrier",
)
_NAMES = {
    "allreduce_coalesced_": "allreduce_",
    "_allgather_base_": "all_gather_into_tensor",
    "allgather_into_tensor_coalesced_": "all_gather_into_tensor",
    "_reduce_scatter_base_": "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter_tensor",
    "alltoall_base_": "alltoall_",
}
_MESSAGES = {"send": SEND, "recv_": RECEIVE, "recv_any_source_": RECEIVE}
# Of which tensors every rank sends as many elements.
_SENT = ("tensors", "input", "inputs", "input_tensor", "input_tensors")
_KEPT: list[Any] = []


def pretend_group(folder: Path) -> None:
    """Called right after torch's module of process groups was imported."""
    module: Any = sys.modules[MODULE]
    calls = _CalledCollectives(folder / CALLS)
    module.init_process_group = _initialise(module.init_process_group, calls)
    module.new_group = _new_group(module.new_group)
    pretend_objects(module, folder.parent / OBJECTS, calls.take_objects)


def _initialise(original: Callable[..., None], calls: _CalledCollectives) -> Callable[..., None]:
    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> None:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        asked = inspect.signature(original).bind(*args, **kwargs).arguments
        world = int(os.environ["WORLD_SIZE"])
        calls.begin(str(asked.get("backend") or ""), int(asked.get("world_size") or -1), world)
        kept = {name: asked[name] for name in ("timeout", "group_name") if name in asked}
        original(_FAKE, store=FakeStore(), rank=int(os.environ["RANK"]), world_size=world, **kept)
        if not _KEPT:
            _KEPT.append(_listen(calls))

    return init_process_group


def _new_group(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def new_group(*args: Any, **kwargs: Any) -> Any:
        asked = inspect.signature(original).bind(*args, **kwargs).arguments
        for name in ("pg_options", "device_id"):
            asked.pop(name, None)
        return original(**{**asked, "backend": _FAKE})

    return new_group


# --- what is called -------------------------------------------------------------------------------


def _listen(calls: _CalledCollectives) -> Any:
    """See everything that is called on its way through the dispatcher, below all that traces."""
    import torch

    library = torch.library.Library("c10d", "IMPL")
    after = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
    for name in (*_OPERATIONS, *_MESSAGES):
        operation = getattr(getattr(torch.ops.c10d, name, None), "default", None)
        if operation is not None:
            seen = _seen(name, operation, after, calls)
            library.impl(name, seen, "BackendSelect", with_keyset=True)
    return library


def _seen(name: str, operation: Any, after: Any, calls: _CalledCollectives) -> Callable[..., Any]:
    parameters = [argument.name for argument in operation._schema.arguments]

    def seen(keys: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = {**dict(zip(parameters, args, strict=False)), **kwargs}
        calls.take(_about_message if name in _MESSAGES else _about_collective, name, arguments)
        answer = operation.redispatch(keys & after, *args, **kwargs)
        return _with_result(answer) if name == "allreduce_" else answer

    return seen


def _with_result(answer: Any) -> Any:
    """The fake group's work has no result, which DistributedDataParallel takes for a bug."""
    try:
        import torch

        c10d: Any = torch._C._distributed_c10d
        tensors, _ = answer
        future: Any = torch.futures.Future()
        future.set_result(list(tensors))
        return tensors, c10d._create_work_from_future(future).boxed()
    except Exception:
        return answer


class _CalledCollectives:
    """Writes calls to a file, a line for each; what cannot be read of a call is left out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: Any = None
        self._written = 0
        self._process = os.getpid()

    def begin(self, backend: str, asked: int, world: int) -> None:
        """The program makes its process group."""
        self._write({"backend": backend, "asked_world": asked, "world": world})

    def take(self, about: Callable[..., dict[str, Any]], name: str, arguments: Any) -> None:
        """Something is called."""
        if self._written < MOST_CALLS:
            group, ranks = _group(arguments.get("process_group"))
            said = about(name, arguments, ranks)
            self._write({"group": group, "ranks": ranks, "where": _where(), **said})
        elif self._written == MOST_CALLS:
            self._write({"more": True})

    def take_objects(self, name: str, group: Any, root: int | None) -> None:
        """A collective of Python objects is called; ranks may send ones of different sizes."""
        about = {"process_group": group.boxed(), "root_rank": root}
        self.take(_about_collective, name, about)

    def _write(self, line: dict[str, Any]) -> None:
        if os.getpid() != self._process:
            return  # A child of the program, such as a worker that loads data.
        if self._file is None:
            self._file = self._path.open("w", encoding="utf-8", buffering=1)
        self._file.write(json.dumps(line) + "\n")
        self._written += 1


def _about_collective(name: str, arguments: dict[str, Any], ranks: list[int]) -> dict[str, Any]:
    root = arguments.get("root_rank")
    words = f"root {root}" if root is not None else ""
    return {"text": collective_text(_NAMES.get(name, name), words, _sent(arguments))}


def _about_message(name: str, arguments: dict[str, Any], ranks: list[int]) -> dict[str, Any]:
    """Both ends are numbered in their group; what is written down is the same for all groups."""
    number = int(arguments.get("dst", arguments.get("src", ANY_RANK)))
    return {
        "way": _MESSAGES[name],
        "peer": ranks[number] if 0 <= number < len(ranks) else ANY_RANK,
        "tag": arguments.get("tag", 0),
        "size": sum(tensor.nbytes for tensor in arguments.get("tensors", ())),
        "text": ", ".join(_sent(arguments)),
        "blocks": _is_blocking(),
    }


def _is_blocking() -> bool:
    """Whether `send` or `recv` calls, not `isend`, `irecv` or `batch_isend_irecv`."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name in (SEND, RECEIVE) and code.co_filename == sys.modules[MODULE].__file__:
            return True
        frame = frame.f_back
    return False


def _group(boxed: Any) -> tuple[str, list[int]]:
    """The name of a process group, and the ranks in it."""
    try:
        from torch._C._distributed_c10d import ProcessGroup
        from torch.distributed.distributed_c10d import _world

        name = str(ProcessGroup.unbox(boxed).group_name)
        groups = {str(text): group for group, text in _world.pg_names.items()}
        return name, sorted(_world.pg_group_ranks[groups[name]])
    except Exception:
        return "?", []


def _sent(arguments: dict[str, Any]) -> list[str]:
    import torch

    name = next((name for name in _SENT if name in arguments), None)
    given = arguments.get(name) if name else None
    tensors = given if isinstance(given, (list, tuple)) else [given]
    return [
        f"{str(tensor.dtype).removeprefix('torch.')} x {tensor.numel()}"
        for tensor in tensors
        if isinstance(tensor, torch.Tensor)
    ]


def _where() -> str:
    """The user's own line."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if is_users(file):
            return f"{Path(file).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
