"""What one switch of torch is, and when it acts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

INDUCTOR_CONFIG = "torch._inductor.config"


class FlagKind(str, Enum):
    """How a switch is set."""

    VARIABLE = "environment variable"
    ARTIFACT = "TORCH_LOGS artifact"
    SETTING = "config key"


class FlagPhase(str, Enum):
    """When a switch acts: this decides whether compiled code must be made anew."""

    CODE_GENERATION = "code generation"
    COMPILE = "compile"
    RUN = "run"

    @property
    def meaning(self) -> str:
        return _PHASE_MEANINGS[self]


_PHASE_MEANINGS = {
    FlagPhase.CODE_GENERATION: "changes the generated code; existing code must be recompiled",
    FlagPhase.COMPILE: "acts while the compiler runs; the generated code stays the same",
    FlagPhase.RUN: "acts when the program runs; compiled code is used as is",
}


@dataclass(frozen=True)
class Flag:
    """One switch."""

    name: str
    kind: FlagKind
    acts: FlagPhase
    purpose: str
    example: str | None = None  # of a variable: a value that changes something
    config_key: str | None = None  # of a variable: the config key that it gives its first value
    replaced_by: str | None = None  # the flag to use instead where torch does not know this one
    set_by: tuple[str, ...] = ()  # our commands that set it
    since: str | None = (
        None  # the first torch that has it, where older ones that we support lack it
    )
    needs: str | None = None  # the build of torch outside of which it does not exist
    note: str | None = None  # what common advice gets wrong, or a trap

    @property
    def setting(self) -> tuple[str, str] | None:
        """Module and dotted path of the config key that this flag is or sets."""
        key = self.name if self.kind is FlagKind.SETTING else self.config_key
        if key is None:
            return None
        module, elsewhere, path = key.partition(".config.")
        return (f"{module}.config", path) if elsewhere else (INDUCTOR_CONFIG, key)
