"""Everything that inductoscope raises on purpose.

    InductoscopeError            exit code
    ├── UsageError               2: the command line asks for something that cannot be
    ├── UnreadableRecording      2: a folder that is no recording, or one from a newer version
    └── ToolFailure              3: the tool itself could not do its work

The text of an error says the fact, then what to do next.
"""

from __future__ import annotations


class InductoscopeError(Exception):
    """Base of all errors that the tool raises on purpose."""

    exit_code = 3


class UsageError(InductoscopeError):
    """The command line asks for something that cannot be."""

    exit_code = 2


class UnreadableRecording(InductoscopeError):
    """A folder that is no recording, or one that a newer version wrote."""

    exit_code = 2


class ToolFailure(InductoscopeError):
    """The tool itself could not do its work."""

    exit_code = 3
