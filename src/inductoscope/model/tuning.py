"""A search for the fastest implementation of an operation, and what it came to."""

from __future__ import annotations

from dataclasses import dataclass

# How Inductor names what it generates itself; everything else is a call of a library.
_GENERATED = ("triton_", "cpp_", "cutlass_", "cutedsl_", "rocm_", "pallas_")


@dataclass(frozen=True)
class TimedChoice:
    """One implementation that autotuning considered."""

    name: str
    description: str
    milliseconds: float | None
    failed: bool
    # None while its compile has not ended, or where it needs none.
    compile_seconds: float | None = None
    compile_started: bool = False
    error: str = ""

    @property
    def is_generated(self) -> bool:
        """Whether Inductor generated it, rather than calling a library."""
        return self.name.startswith(_GENERATED)

    @property
    def state(self) -> str:
        """What became of it: timed, failed, or how far it got."""
        if self.failed or self.error:
            return "failed"
        if self.milliseconds is not None:
            return f"{self.milliseconds:.4f} ms"
        if self.compile_started and self.compile_seconds is None:
            return "still compiling"
        return "not timed"


@dataclass(frozen=True)
class Autotune:
    """One search for the fastest implementation."""

    operation: str
    choices: tuple[TimedChoice, ...]
    winner: str
    # Shapes and types of what it was tuned for; empty in older recordings.
    inputs: tuple[str, ...] = ()

    @property
    def timed(self) -> tuple[TimedChoice, ...]:
        """The choices that were timed, the fastest first."""
        found = [choice for choice in self.choices if choice.milliseconds is not None]
        return tuple(sorted(found, key=lambda choice: choice.milliseconds or 0.0))

    @property
    def library(self) -> TimedChoice | None:
        """The fastest call of a library; None if none was timed."""
        return next((choice for choice in self.timed if not choice.is_generated), None)

    @property
    def chosen(self) -> TimedChoice | None:
        """The choice that was taken, if it was timed."""
        return next((choice for choice in self.timed if choice.name == self.winner), None)

    @property
    def gain(self) -> float | None:
        """The time of the library as a multiple of the winner's; None where one was not timed."""
        library, chosen = self.library, self.chosen
        if library is None or chosen is None or not chosen.milliseconds:
            return None
        return (library.milliseconds or 0.0) / chosen.milliseconds
