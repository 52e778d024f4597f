"""Where in the compiler something goes wrong."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Location:
    """The place in the compiler that makes a failure, as far as it is known."""

    stage: str = ""
    operation: str = ""
    pass_name: str = ""
    kernel: str = ""
    # The buffer of the kernel that is wrong first, and whether another kernel has made it.
    buffer: str = ""
    is_overwritten: bool = False
    function: str = ""
    text: str = ""
    # How it was established.
    how: str = ""
    # Nodes of the candidate that may be to blame.
    suspects: tuple[str, ...] = ()
    # All of its nodes that went into the kernel.
    of_kernel: tuple[str, ...] = ()
    # Patterns and passes inside the pass, or operations inside the kernel.
    names: tuple[str, ...] = ()
    # Operations inside the kernel that are wrong when they are compiled on their own.
    wrong_alone: tuple[str, ...] = ()
    # Operations that a pass took out, and that it put in.
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    # A pass that is not torch's: its function, and where that is.
    own_pass: str = ""
    # Whether every pass and every decomposition was compared, and is right.
    graphs_are_right: bool = False

    @property
    def is_known(self) -> bool:
        """Whether a stage was found."""
        return bool(self.stage)
