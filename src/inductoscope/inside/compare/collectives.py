"""Collectives while a call is repeated: answered at once, without the other ranks.

A rank repeats a call on its own, any number of times, and in forks, where no connection works. A
collective that is sent there would wait for ranks that never send theirs, or be taken for another
one. So torch's fake process group stands in, which copies what this rank itself sends.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import torch
import torch._dynamo
from torch.fx import GraphModule, Node
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from inductoscope.inside.compare.operators import is_custom
from inductoscope.inside.compare.reference import is_in_backward
from inductoscope.inside.compare.values import memory_of

_GROUP = "process_group"


def communicates(module: GraphModule) -> bool:
    """Check whether a graph calls collectives itself, in whatever form Dynamo has captured."""
    bodies = [each for each in module.modules() if isinstance(each, GraphModule)]
    nodes = [node for body in bodies for node in body.graph.nodes]
    return any(_communicates(node) for node in nodes)


def _communicates(node: Node) -> bool:
    if node.op == "placeholder":
        # A DTensor may be redistributed by any operation.
        value = node.meta.get("example_value")
        return is_one_of_several_ranks() and is_traceable_wrapper_subclass(value)
    return "c10d" in str(node.target) or str(getattr(node.target, "__module__", "")).startswith(
        "torch.distributed"
    )


def calls_only_torch(module: GraphModule) -> bool:
    """Check that a graph calls no operators of others, which may communicate in their own way."""
    bodies = [each for each in module.modules() if isinstance(each, GraphModule)]
    targets = {node.target for body in bodies for node in body.graph.nodes}
    return not any(is_custom(_overload(target)) for target in targets)


def _overload(target: Any) -> Any:
    is_packet = isinstance(target, torch._ops.OpOverloadPacket)
    return getattr(target, target.overloads()[0]) if is_packet else target


def is_one_of_several_ranks() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


# Set where a call is repeated; other threads may send collectives of the program meanwhile.
_IS_REPEATED = ContextVar("is_repeated", default=False)


class AnsweredCollectives:
    """The answers to collectives in this process."""

    def __init__(self) -> None:
        # How many were answered since the latest block began.
        self.count = 0
        self._blocks, self._lock = 0, threading.Lock()
        self._library: Any = None
        self._pid = 0

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Answer all collectives inside the block, and in forks that start there."""
        if _IS_REPEATED.get() or not is_one_of_several_ranks():
            yield
            return
        token = _IS_REPEATED.set(True)
        try:
            with self._lock:
                self._blocks += 1
                if self._blocks == 1:
                    self._begin()
            yield
        finally:
            _IS_REPEATED.reset(token)
            with self._lock:
                self._blocks -= 1
                if self._blocks == 0:
                    self._library._destroy()

    def _begin(self) -> None:
        self.count, self._pid = 0, os.getpid()
        self._library = torch.library.Library("c10d", "IMPL")
        for operation in _operations():
            # Every collective ends in these operations, called eagerly or by compiled code.
            answer = torch._dynamo.disable(self._answer(operation))
            self._library.impl(operation, answer, "BackendSelect", with_keyset=True)

    @property
    def _is_of_program(self) -> bool:
        """Whether a collective is the program's own, of another thread."""
        is_here = _IS_REPEATED.get() or os.getpid() != self._pid
        # A backward pass has threads of its own.
        return not is_here and not is_in_backward()

    def _answer(self, operation: Any) -> Callable[..., Any]:
        names = [argument.name for argument in operation._schema.arguments]
        below = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)

        def answer(keys: Any, *args: Any, **kwargs: Any) -> Any:
            given = {**dict(zip(names, args, strict=False)), **kwargs}
            if self._is_of_program:
                return operation.redispatch(keys & below, **given)
            self.count += 1
            _clear_outputs(given)
            given[_GROUP] = _fake_group(given[_GROUP])
            return operation.redispatch(keys & below, **given)

        return answer


ANSWERED_COLLECTIVES = AnsweredCollectives()


def _clear_outputs(given: Mapping[str, Any]) -> None:
    """Fill results, which older fake groups leave as they were: uninitialised, mostly."""
    tensors = {n: [v for v in tree_leaves(g) if torch.is_tensor(v)] for n, g in given.items()}
    read = {memory_of(v) for n in tensors if not n.startswith("output") for v in tensors[n]}
    with torch.no_grad():
        for name in tensors:
            for value in tensors[name] if name.startswith("output") else ():
                if memory_of(value) not in read:
                    value.zero_()


@functools.cache
def _operations() -> tuple[Any, ...]:
    found = []
    for name in torch._C._dispatch_get_all_op_names():
        library, _, name = name.partition("::")
        operation = getattr(torch.ops.c10d, name, None) if library == "c10d" else None
        operation = getattr(operation, "default", None)
        if operation is not None and _GROUP in {a.name for a in operation._schema.arguments}:
            found.append(operation)
    return tuple(found)


def _fake_group(boxed: Any) -> Any:
    """Return a fake process group of the same size, in which this process has the same rank."""
    c10d: Any = torch._C._distributed_c10d
    group = c10d.ProcessGroup.unbox(boxed)
    fake = c10d.ProcessGroup(group.rank(), group.size())
    backend = c10d.FakeProcessGroup._create_internal(group.rank(), group.size())
    custom = c10d.ProcessGroup.BackendType.CUSTOM
    for device in ("cpu", "cuda"):
        fake._register_backend(torch.device(device), custom, backend)
    fake._set_default_backend(custom)
    return fake.boxed()
