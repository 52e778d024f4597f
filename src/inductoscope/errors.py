"""The exceptions that inductoscope raises on purpose.

    InductoscopeError            exit code
    ├── UsageError               2: the command line asks for something impossible
    ├── UnreadableRecording      2: not a recording, or one from a newer version
    ├── RecordingGone            3: it was deleted or moved while it was served
    ├── UnreadablePackage        2: not a package of AOTInductor, or a damaged or hostile one
    └── ToolFailure              3: the tool could not do its job

The text of an error states the fact with the flag and the value, then what to do next.
"""

from __future__ import annotations

import errno

# What is wrong with the place that a user chose, rather than with the machine.
_ABOUT_THE_PLACE = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENAMETOOLONG,
)


class InductoscopeError(Exception):
    """The base class of every error that the tool raises on purpose."""

    exit_code = 3


class UsageError(InductoscopeError):
    """The command line asks for something impossible."""

    exit_code = 2


class UnreadableRecording(InductoscopeError):
    """The input is not a recording, or a newer version wrote it."""

    exit_code = 2


class UnreadablePackage(InductoscopeError):
    """The input is not a package of AOTInductor, or a damaged or hostile one."""

    exit_code = 2


class ToolFailure(InductoscopeError):
    """The tool could not do its job."""

    exit_code = 3


def unwritable(place: object, error: OSError) -> InductoscopeError:
    """Build the error for an unwritable path: UsageError for a bad path, else ToolFailure."""
    kind = UsageError if error.errno in _ABOUT_THE_PLACE else ToolFailure
    return kind(f"{place} cannot be written: {error.strerror}.")
