"""The settings that something was compiled with, where they differ from torch's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Settings:
    """All values are text, as a program would write them."""

    # By full name: torch._inductor.config.max_fusion_size.
    config: Mapping[str, str] = field(default_factory=dict)
    # Of torch.compile.
    arguments: Mapping[str, str] = field(default_factory=dict)
    # Calls of mark_dynamic and the like.
    marked: tuple[str, ...] = ()
    # What torch itself sets where `config` differs; empty in older recordings.
    defaults: Mapping[str, str] = field(default_factory=dict)

    @property
    def call(self) -> str:
        """The call of torch.compile; empty if it had no arguments."""
        given = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"torch.compile({given})" if given else ""

    @property
    def lines(self) -> tuple[str, ...]:
        """All of it, as a program would write it."""
        assigned = (f"{name} = {value}" for name, value in self.config.items())
        return tuple(line for line in (self.call, *assigned, *self.marked) if line)
