"""Collectives while a call is repeated: answered at once, without the other ranks.

A rank repeats a call on its own, any number of times, and in forks, where no connection works. A
collective that is sent there would wait for ranks that never send theirs, or be taken for another
one. So torch's fake process group stands in, which copies what this rank itself sends.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._dynamo
from torch.fx import GraphModule

_GROUP = "process_group"


def communicates(module: GraphModule) -> bool:
    """Check whether a graph calls collectives itself, in whatever form Dynamo has captured."""
    return any(
        "c10d" in str(node.target)
        or str(getattr(node.target, "__module__", "")).startswith("torch.distributed")
        for node in module.graph.nodes
    )


def is_one_of_several_ranks() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


class AnsweredCollectives:
    """The answers to collectives in this process."""

    def __init__(self) -> None:
        # How many were answered since the latest block began.
        self.count = 0
        self._is_answering = False

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Answer all collectives inside the block, and in forks that start there."""
        if self._is_answering or not is_one_of_several_ranks():
            yield
            return
        library = torch.library.Library("c10d", "IMPL")
        self.count, self._is_answering = 0, True
        try:
            for operation in _operations():
                # Every collective ends in these operations, called eagerly or by compiled code.
                answer = torch._dynamo.disable(self._answer(operation))
                library.impl(operation, answer, "BackendSelect", with_keyset=True)
            yield
        finally:
            self._is_answering = False
            library._destroy()

    def _answer(self, operation: Any) -> Callable[..., Any]:
        names = [argument.name for argument in operation._schema.arguments]
        below = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)

        def answer(keys: Any, *args: Any, **kwargs: Any) -> Any:
            self.count += 1
            given = {**dict(zip(names, args, strict=False)), **kwargs}
            given[_GROUP] = _fake_group(given[_GROUP])
            return operation.redispatch(keys & below, **given)

        return answer


ANSWERED_COLLECTIVES = AnsweredCollectives()


def _operations() -> Iterator[Any]:
    for name in torch._C._dispatch_get_all_op_names():
        library, _, name = name.partition("::")
        if library == "c10d":
            operation = getattr(torch.ops.c10d, name).default
            if any(argument.name == _GROUP for argument in operation._schema.arguments):
                yield operation


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
