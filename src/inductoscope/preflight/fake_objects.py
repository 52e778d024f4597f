"""Runs in the user's process: collectives of Python objects, answered without other ranks.

torch sends the size of an object first, and makes a buffer of the size that arrives. Nothing
arrives, so the call is answered whole. What rank 0 hands out is kept for the other ranks: it runs
before them, alone. In all other places a rank gets its own object back.
"""

from __future__ import annotations

import functools
import inspect
import os
import pickle
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha1
from pathlib import Path
from typing import Any

# Writes down that a collective is called in a group, with the rank that it goes to or comes from.
Take = Callable[[str, Any, "int | None"], None]
# Rank 0 keeps no more objects than this.
MOST_BYTES = 256 << 20


def pretend_objects(module: Any, folder: Path, take: Take) -> None:
    """Replace torch's functions; `folder` is the same for all ranks."""
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
    """What rank 0 handed out, a file for each call."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._turns: Counter[str] = Counter()
        self._written = 0

    def next_turn(self, asked: _ObjectCall) -> None:
        """Another call in this group."""
        self._turns[asked.group.group_name] += 1

    def _path(self, asked: _ObjectCall) -> Path:
        name = str(asked.group.group_name)
        return self._folder / f"{sha1(name.encode()).hexdigest()[:12]}-{self._turns[name]}"

    def keep(self, asked: _ObjectCall, objects: list[Any]) -> None:
        """Called as the rank that hands them out."""
        data = pickle.dumps(objects)
        self._written += len(data)
        if os.environ["RANK"] == "0" and self._written <= MOST_BYTES:
            self._folder.mkdir(exist_ok=True)
            self._path(asked).write_bytes(data)

    def read(self, asked: _ObjectCall) -> list[Any] | None:
        """None if it was another rank than 0, or rank 0 was not run."""
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
