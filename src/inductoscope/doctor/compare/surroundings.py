"""What a call of a graph depends on besides its inputs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Surroundings:
    """What a call depends on besides its inputs: the backward pass has others."""

    is_grad_enabled: bool
    # Device, type and whether it is on.
    autocast: tuple[tuple[str, torch.dtype, bool], ...]

    @classmethod
    def now(cls) -> Surroundings:
        """Those of the call that is made now."""
        kinds = ("cpu", "cuda") if torch.cuda.is_initialized() else ("cpu",)
        return cls(
            torch.is_grad_enabled(),
            tuple(
                (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
                for kind in kinds
            ),
        )

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """The same surroundings, inside the block."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(self.is_grad_enabled))
            for kind, dtype, is_on in self.autocast:
                stack.enter_context(torch.autocast(kind, dtype, enabled=is_on, cache_enabled=False))
            yield
