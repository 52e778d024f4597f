"""Rules about what a recording does not hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Process, Recording
from inductoscope.model.stored_recordings import running_streams
from inductoscope.recording.values import whole
from inductoscope.wording import count_of


def incomplete_recording(recording: Recording) -> Iterator[Finding]:
    """A recording with gaps.

    What it finds: a process that stopped recording (full disk, deleted folder) or had to drop
    events, damaged lines, events that only a newer version knows, and hooks that failed.

    Why it matters: what is not in the recording may still have happened.

    Example: the disk filled up while the program ran.

    What to do: free space, or record to another disk with --output.
    """
    for process in recording.processes:
        yield from _left_out(process)
    if recording.damage:
        where, what = recording.damage[0]
        yield Finding(
            title=f"{count_of(len(recording.damage), 'place')} in the recording cannot be read",
            evidence=(f"first: {where}: {what}",),
            advice="This is normal for a process that was killed while writing; the rest is "
            "intact.",
        )
    if recording.unknown_events:
        kinds = ", ".join(f"{kind} {count}" for kind, count in recording.unknown_events.items())
        number = sum(recording.unknown_events.values())
        yield Finding(
            title=f"This version does not know {count_of(number, 'event')}",
            evidence=(f"kinds: {kinds}",),
            advice="A newer inductoscope wrote them. Upgrade: pip install --upgrade inductoscope.",
        )


def _left_out(process: Process) -> Iterator[Finding]:
    if process.stopped:
        yield Finding(
            title=f"Process {process.pid} stopped recording: {process.stopped}. The program "
            "continued.",
            evidence=("according to the last event of its stream",),
            advice="Free space on that disk, or record elsewhere with --output.",
        )
    if process.dropped:
        yield Finding(
            title=f"Process {process.pid} could not write {count_of(process.dropped, 'event')}",
            evidence=("the process counted them; it had run out of file descriptors",),
            advice="Raise the limit on open files: ulimit -n.",
        )
    for error in process.hook_errors:
        yield Finding(
            title=f"A hook of inductoscope failed and recorded nothing: {error}",
            evidence=(f"reported by process {process.pid}",),
            advice="The program was not affected. Please report this.",
        )


def view_off(recording: Recording) -> Iterator[Finding]:
    """A view that is off with the installed torch.

    What it finds: hooks that are off because a private torch name they need is gone.

    Why it matters: that part of the recording is empty although the stage ran.

    Example: a new version of torch renamed a function.

    What to do: `inductoscope env` lists every name; a newer inductoscope may know the new one.
    """
    views = (view for process in recording.processes for view in process.views_off)
    for view in dict.fromkeys(views):
        yield Finding(
            title=f"Not recorded: {view}",
            evidence=("the name was missing when torch was imported",),
            advice="'inductoscope env' lists every name. A newer version may know the new one.",
        )


def nothing_recorded(recording: Recording) -> Iterator[Finding]:
    """A run that compiled nothing.

    What it finds: a command that never imported torch while recorded, or imported it and compiled
    nothing.

    Why it matters: an empty recording would otherwise look like a clean one.

    Example: a script without torch.compile; Python started with -I or -E, which disables recording;
    a block of `inductoscope.record()` around functions that were compiled before it.

    What to do: check that the script reaches torch.compile.
    """
    if recording.compiles:
        return
    before = whole(recording.manifest.get("compiled_before"))
    if recording.ending is None and not recording.manifest.get("inside"):
        yield _nothing_so_far(recording)
    elif before:
        yield Finding(
            title="Nothing was compiled in the recorded block: "
            f"{count_of(before, 'function')} had been compiled before the recording began",
            evidence=("Dynamo keeps what it has compiled, and compiles it once",),
            advice="To record the compile, call torch._dynamo.reset() before the block.",
        )
    elif any(process.torch for process in recording.processes):
        yield Finding(
            title="torch was imported, but nothing was compiled",
            evidence=("no process recorded a compile",),
            advice="The script never called a function made by torch.compile.",
        )
    else:
        yield Finding(
            title="No process of the command imported torch",
            evidence=("no process recorded a compile",),
            advice="If one should have: Python's options -I, -E and -S prevent recording.",
        )


def _nothing_so_far(recording: Recording) -> Finding:
    running = running_streams(Path(recording.path))
    if running:
        return Finding(
            title="Nothing was compiled so far; the program is still running",
            evidence=("a process of the command is alive",),
            advice="Look again when it has called a compiled function.",
        )
    killed = "it was killed together with inductoscope."
    return Finding(
        title="Nothing was compiled so far, and the recording has no end",
        confidence="unknown",
        evidence=("the exit of the command is not recorded",),
        advice=f"The program is still running, or {killed}"
        if running is None
        else f"The program no longer runs: {killed}",
    )


# Other caches replace no stage of a graph.
_OF_GRAPHS = ("AOTAutograd", "FX graph")


def cache_hits(recording: Recording) -> Iterator[Finding]:
    """Graphs that came from a cache.

    What it finds: compiles answered by the AOTAutograd cache or the FX graph cache.

    Why it matters: nothing was lowered, scheduled or generated, so there is nothing to show of
    those stages.

    Example: the second run of an unchanged script.

    What to do: `inductoscope run --fresh` compiles again in a private cache and leaves yours alone.
    """
    # Compiles of other processes, or after torch._dynamo.reset(), have the same ids.
    compiles = 0
    hits: dict[str, list[str]] = {}
    for compile_ in recording.compiles:
        found = [c.cache for c in compile_.caches if c.outcome == "hit" and c.cache in _OF_GRAPHS]
        compiles += bool(found)
        for cache in found:
            hits.setdefault(cache, []).append(compile_.id)
    if not hits:
        return
    yield Finding(
        title=f"{count_of(compiles, 'compile')} came from a cache: inner stages did not run",
        evidence=tuple(
            f"{count_of(len(ids), 'hit')} in the {cache} cache: compile "
            f"{', '.join(dict.fromkeys(ids))}"
            for cache, ids in hits.items()
        ),
        advice="The same graph was compiled earlier in this run: look at that compile."
        if recording.manifest.get("fresh") is True
        else "To see the stages: inductoscope run --fresh SCRIPT. It compiles in a private "
        "cache and leaves yours alone.",
    )
