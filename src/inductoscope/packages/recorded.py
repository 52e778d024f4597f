"""The package that a recorded compile made, read from the wrapper in the recording."""

from __future__ import annotations

from inductoscope.model.entities import Compile, Recording
from inductoscope.packages.wrapper_text import WrapperText, read_wrapper
from inductoscope.vocabulary.flows import AOT_INDUCTOR

# Only AOTInductor generates it.
_PACKAGE = "AOTInductorModel::run_impl("


def recorded_package(recording: Recording, compile_: Compile) -> WrapperText | None:
    """What the wrapper of a package says; None for a compile that made no package."""
    for graph in compile_.inductor:
        found = package_of_wrapper(recording.payload(graph.wrapper))
        if found is not None:
            return found
    return None


def count_guards(recording: Recording, compile_: Compile) -> int:
    """Guards of a frame, or demands of a package on its inputs."""
    package = recorded_package(recording, compile_) if compile_.flow == AOT_INDUCTOR else None
    return package.guards.count if package else compile_.guard_count


def package_of_wrapper(text: str) -> WrapperText | None:
    """The same for the text of a wrapper."""
    return read_wrapper(text) if _PACKAGE in text else None
