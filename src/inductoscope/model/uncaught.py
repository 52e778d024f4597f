"""Exceptions that nobody caught, as a recording has them."""

from __future__ import annotations

from dataclasses import dataclass

from inductoscope.recording.events.process import ExceptionUncaught


@dataclass(frozen=True)
class UncaughtException:
    """An exception that ended a process, or a thread of it if that has a name."""

    type: str
    message: str
    stack: str
    thread: str = ""
    # When it was recorded: what fails first may make others fail.
    at: float = 0.0


def uncaught(event: ExceptionUncaught, at: float) -> UncaughtException:
    """The exception of an event that was written at this time."""
    return UncaughtException(event.type, event.message, event.stack, event.thread, at)
