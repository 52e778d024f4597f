"""Runs the user's process as one rank of a job whose other ranks do not exist.

torch's fake process group completes every collective at once, without communicating. The calls are
written down in order: each collective with its group and the line of the program.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import pickle
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha1
from pathlib import Path
from traceback import walk_stack
from typing import Any, NoReturn

from inductoscope.inside.start import InsidePart
from inductoscope.launch.environment import TARGET_VARIABLE
from inductoscope.preflight.rank_folder import ANY_RANK, CALLS, MOST_CALLS, OBJECTS, RECEIVE, SEND
from inductoscope.torch_facts.frames import is_users
from inductoscope.torch_facts.printed_graphs import collective_text

GROUPS_MODULE = "torch.distributed.distributed_c10d"

_FAKE = "fake"
# Dispatcher operators that every collective ends in, called eagerly or by compiled code.
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
# Arguments that hold tensors of which every rank sends the same number of elements.
_SENT = ("tensors", "input", "inputs", "input_tensor", "input_tensors")
_KEPT: list[Any] = []


def pretend_group(folder: Path) -> None:
    """Make process groups fake; called right after torch's module for them was imported."""
    module: Any = sys.modules[GROUPS_MODULE]
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
    """Register dispatcher kernels that note every collective, below all tracing modes.

    In the job these kernels are C++: Dynamo must not compile what stands in for them.
    """
    import torch._dynamo

    library = torch.library.Library("c10d", "IMPL")
    after = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
    for name in (*_OPERATIONS, *_MESSAGES):
        operation = getattr(getattr(torch.ops.c10d, name, None), "default", None)
        if operation is not None:
            seen = _seen(name, operation, after, calls)
            library.impl(name, torch._dynamo.disable(seen), "BackendSelect", with_keyset=True)
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
    """Give the fake group's work a result; without one, DistributedDataParallel reports a bug."""
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
    """A writer of calls to a file, one per line; unreadable facts of a call are omitted."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: Any = None
        self._written = 0
        self._process = os.getpid()

    def begin(self, backend: str, asked: int, world: int) -> None:
        """Note that the program creates its process group."""
        self._write({"backend": backend, "asked_world": asked, "world": world})

    def take(self, about: Callable[..., dict[str, Any]], name: str, arguments: Any) -> None:
        if self._written < MOST_CALLS:
            group, ranks = _group(arguments.get("process_group"))
            said = about(name, arguments, ranks)
            self._write({"group": group, "ranks": ranks, "where": _where(), **said})
        elif self._written == MOST_CALLS:
            self._write({"more": True})

    def take_objects(self, name: str, group: Any, root: int | None) -> None:
        """Note a collective of Python objects, whose sizes may differ between ranks."""
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
    """Describe a message; the peer's rank in the group is translated to its global rank."""
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
    """Check whether the caller is `send` or `recv`, not `isend`, `irecv` or `batch_isend_irecv`."""
    file = sys.modules[GROUPS_MODULE].__file__
    codes = (frame.f_code for frame, _ in walk_stack(sys._getframe()))
    return any(code.co_name in (SEND, RECEIVE) and code.co_filename == file for code in codes)


def _group(boxed: Any) -> tuple[str, list[int]]:
    """Return the name of a process group, and the global ranks in it."""
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
    """Return the innermost line of the user's program on the stack."""
    for frame, line in walk_stack(sys._getframe()):
        if is_users(frame.f_code.co_filename):
            return f"{Path(frame.f_code.co_filename).name}:{line}"
    return ""


# --- Runs in the user's process: collectives of Python objects, answered without other ranks ------
#
# torch sends the size of an object first, and allocates a buffer of the size that arrives. Nothing
# arrives here, so the whole call is replaced. Objects that rank 0 hands out are kept for the other
# ranks, because rank 0 runs before them, alone. In all other places a rank gets its own objects.

# A function that notes a collective: its name, its group, and the root rank.
Take = Callable[[str, Any, "int | None"], None]
# The most bytes of objects that rank 0 keeps.
MOST_BYTES = 256 << 20


def pretend_objects(module: Any, folder: Path, take: Take) -> None:
    """Replace torch's collectives of Python objects; all ranks share `folder`."""
    kept = _KeptObjects(folder)
    for name, answer in _ANSWERS.items():
        original = getattr(module, name, None)
        if original is not None:
            setattr(module, name, _answered(original, answer, module, kept, take))


class _ObjectCall:
    """One call: its arguments, its group, and this rank's place in it."""

    def __init__(self, module: Any, original: Any, arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        self.group = arguments.get("group") or module.group.WORLD
        self.size = module.get_world_size(self.group)
        self.place = module.get_rank(self.group)
        self.rank = module.get_rank()
        self.root: int | None = None
        for name in {"src", "dst"} & inspect.signature(original).parameters.keys():
            place = arguments.get(f"group_{name}")
            self.root = arguments.get(name) or 0
            if place is not None:
                self.root = module.get_global_rank(self.group, place)


def _answered(
    original: Callable[..., Any],
    answer: Callable[[_ObjectCall, _KeptObjects], None],
    module: Any,
    kept: _KeptObjects,
    take: Take,
) -> Callable[..., None]:
    @functools.wraps(original)
    def answered(*args: Any, **kwargs: Any) -> None:
        given = inspect.signature(original).bind(*args, **kwargs).arguments
        if module.get_rank(given.get("group")) < 0:
            original(*args, **kwargs)  # This rank is not in the group: torch warns.
            return
        asked = _ObjectCall(module, original, given)
        take(original.__name__, asked.group, asked.root)
        kept.next_turn(asked)
        answer(asked, kept)

    return answered


class _KeptObjects:
    """Objects that rank 0 handed out, a file for each call."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._turns: Counter[str] = Counter()
        self._written = 0

    def next_turn(self, asked: _ObjectCall) -> None:
        self._turns[asked.group.group_name] += 1

    def _path(self, asked: _ObjectCall) -> Path:
        name = str(asked.group.group_name)
        return self._folder / f"{sha1(name.encode()).hexdigest()[:12]}-{self._turns[name]}"

    def keep(self, asked: _ObjectCall, objects: list[Any]) -> None:
        """Keep the objects that this rank, the root of the call, hands out."""
        data = pickle.dumps(objects)
        self._written += len(data)
        if os.environ["RANK"] == "0" and self._written <= MOST_BYTES:
            self._folder.mkdir(exist_ok=True)
            self._path(asked).write_bytes(data)

    def read(self, asked: _ObjectCall) -> list[Any] | None:
        """Return the objects of a call; None if the root was not rank 0, or rank 0 was not run."""
        with suppress(OSError):
            found = pickle.loads(self._path(asked).read_bytes())
            return found if asked.root == 0 and isinstance(found, list) else None
        return None


def _copy(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


def _all_gather(asked: _ObjectCall, kept: _KeptObjects) -> None:
    for place in range(asked.size):
        asked.arguments["object_list"][place] = _copy(asked.arguments["obj"])


def _gather(asked: _ObjectCall, kept: _KeptObjects) -> None:
    if asked.rank == asked.root:
        for place in range(asked.size):
            asked.arguments["object_gather_list"][place] = _copy(asked.arguments["obj"])


def _broadcast(asked: _ObjectCall, kept: _KeptObjects) -> None:
    objects = asked.arguments["object_list"]
    if asked.rank == asked.root:
        kept.keep(asked, list(objects))
        return
    for place, found in enumerate((kept.read(asked) or ())[: len(objects)]):
        objects[place] = found


def _scatter(asked: _ObjectCall, kept: _KeptObjects) -> None:
    if asked.rank == asked.root:
        objects = list(asked.arguments["scatter_object_input_list"])
        kept.keep(asked, objects)
    else:
        objects = kept.read(asked) or []
    if asked.place < len(objects):
        asked.arguments["scatter_object_output_list"][0] = _copy(objects[asked.place])


_ANSWERS: dict[str, Callable[[_ObjectCall, _KeptObjects], None]] = {
    "all_gather_object": _all_gather,
    "gather_object": _gather,
    "broadcast_object_list": _broadcast,
    "scatter_object_list": _scatter,
}


# --- the rank -------------------------------------------------------------------------------------

_KEPT_ALIVE: list[Any] = []


def pretended_rank(folder: Path) -> InsidePart:
    """Make the part that runs the program as one rank of a job; called before torch is imported."""
    groups = functools.partial(_or_give_up, lambda: pretend_group(folder))
    on_import = {GROUPS_MODULE: groups}
    target = os.environ.get(TARGET_VARIABLE)
    if target:
        on_import["torch"] = functools.partial(_or_give_up, _device(target))
    return InsidePart(on_import=on_import)


def _device(target: str) -> Callable[[], None]:
    from inductoscope.inside.pretend import (
        make_every_tensor_fake,
        prepare,
        pretend_devices,
        take_over,
    )
    from inductoscope.torch_facts.gpu_targets import parse_target

    wanted = parse_target(target)
    stand_in = prepare(wanted)

    def begin() -> None:
        take_over(stand_in, wanted)
        pretend_devices(stand_in, int(os.environ["LOCAL_WORLD_SIZE"]))
        _KEPT_ALIVE.append(make_every_tensor_fake())

    return begin


def _or_give_up(work: Callable[[], None]) -> None:
    """Run `work`; end the process if that fails: a real group would wait for other ranks."""
    try:
        work()
    except Exception as error:
        _give_up(error)


def _give_up(error: Exception) -> NoReturn:
    sys.stderr.write(
        f"inductoscope: cannot pretend to be a rank: {type(error).__name__}: {error}\n"
    )
    sys.stderr.flush()
    os._exit(3)
