"""`inductoscope recordings`."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from inductoscope.cli.parameters import json_option, pager_option, print_view


@click.group("recordings", invoke_without_command=True)
@json_option("the list")
@pager_option
@click.pass_context
def command(context: click.Context, json_path: str | None) -> None:
    """List recordings, or prune them by limits you give.

    Nothing is ever deleted unless you ask for it with 'prune'. Without a command you see the list.

    \b
    inductoscope recordings list
    inductoscope recordings prune --older-than 7d --dry-run
    """
    from inductoscope.errors import UsageError

    if context.invoked_subcommand is None:
        context.invoke(list_command, json_path=json_path)
    elif json_path:
        raise UsageError(f"Put --json after {context.invoked_subcommand}.")


@command.command("list")
@pager_option
@json_option("the list")
def list_command(json_path: str | None) -> None:
    """List all recordings: date, size, outcome, command; newest first."""
    from inductoscope.model.stored_recordings import stored_recordings
    from inductoscope.views.report.recordings import print_recordings, recordings_view

    print_view(recordings_view(stored_recordings()), json_path, print_recordings)


@command.command("prune")
@click.option("--older-than", metavar="AGE", help="Delete what is older, such as 7d, 12h or 2w.")
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    metavar="N",
    help="Keep the N newest recordings.",
)
@click.option(
    "--size", metavar="SIZE", help="Keep the newest recordings that fit into SIZE, such as 500MB."
)
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@json_option("what was deleted and what is left")
def prune_command(
    older_than: str | None,
    keep: int | None,
    size: str | None,
    dry_run: bool,
    json_path: str | None,
) -> None:
    """Delete recordings beyond the limits that you give.

    With several limits a recording is deleted only if it is beyond all of them. Recordings of
    programs that still run, links, and folders that inductoscope did not make are always kept.

    \b
    inductoscope recordings prune --older-than 7d
    inductoscope recordings prune --keep 20 --dry-run
    inductoscope recordings prune --older-than 1d --size 500MB

    Exit code: 0 done, 2 bad usage, 3 something could not be deleted.
    """
    from inductoscope.errors import UsageError
    from inductoscope.model.stored_recordings import (
        PruningLimits,
        plan_pruning,
        read_duration,
        read_size,
        stored_recordings,
    )
    from inductoscope.views.report.recordings import print_pruned

    if older_than is None and keep is None and size is None:
        raise UsageError(
            "Nothing says what to delete. Give --older-than, --keep or --size; "
            "--dry-run shows what would go."
        )
    limits = PruningLimits(
        older_than=None if older_than is None else read_duration(older_than),
        keep=keep,
        size=None if size is None else read_size(size),
    )
    recordings = stored_recordings()
    plan = plan_pruning(recordings, limits, time.time())
    view = _pruned(recordings, plan, dry_run=dry_run)
    print_view(view, json_path, print_pruned)
    sys.exit(3 if view["failed"] else 0)


def _pruned(recordings: Any, plan: Any, *, dry_run: bool) -> dict[str, Any]:
    from inductoscope.recording.location import recordings_folder
    from inductoscope.views.report.recordings import recording_view

    deleted, failed = (list(plan.delete), []) if dry_run else _delete(plan.delete)
    left = [recording for recording in recordings if recording not in deleted]
    return {
        "folder": str(recordings_folder()),
        "dry_run": dry_run,
        "deleted": [recording_view(recording) for recording in deleted],
        "freed": sum(recording.size for recording in deleted),
        "spared": [{"path": str(kept.path), "why": kept.why_kept} for kept in plan.spared],
        "failed": failed,
        "left": len(left),
        "left_bytes": sum(recording.size for recording in left),
    }


def _delete(recordings: Any) -> tuple[list[Any], list[dict[str, str]]]:
    from inductoscope.errors import ToolFailure
    from inductoscope.model.stored_recordings import delete_recording, finish_deletion, leftovers
    from inductoscope.recording.location import recordings_folder

    deleted: list[Any] = []
    failed: list[dict[str, str]] = []
    for left in leftovers(recordings_folder()):
        try:
            finish_deletion(left)
        except ToolFailure as error:
            failed.append({"path": str(left), "error": str(error)})
    # Delete the oldest first, so that an interruption leaves the newest.
    for recording in reversed(recordings):
        try:
            delete_recording(recording.path)
            deleted.append(recording)
        except ToolFailure as error:
            failed.append({"path": str(recording.path), "error": str(error)})
    return deleted, failed
