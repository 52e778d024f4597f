"""Makes and compresses the chunks of a page, on all cores."""

from __future__ import annotations

import base64
import gc
import itertools
import json
import math
import multiprocessing
import os
import signal
import zlib
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import is_dataclass
from typing import Any

from inductoscope.model.as_json import as_json
from inductoscope.views.page.contents import Contents
from inductoscope.views.page.graph_summary import GraphSummary
from inductoscope.views.page.source_contract import RecordedPayload
from inductoscope.vocabulary.operator_names import with_usual_names

# Making the chunks of so many operations takes less time than starting processes.
_FEW_OPERATIONS = 1000
_MOST_PROCESSES = 8
# The fastest: a fifth more bytes than the usual level, in a third of the time.
_LEVEL = 1

# What a child works on: inherited, because the functions that make chunks cannot be pickled.
_inherited: list[Contents] = []

Made = tuple[list[str], "GraphSummary | None"]


def packed_chunks(contents: Contents) -> Iterator[tuple[str, str]]:
    """All chunks by name, compressed. Before the first, all is known that the index needs."""
    executor = _executor(contents)
    if executor is None:
        yield from ((name, pack(make())) for name, make in contents.chunks.items())
        return
    with executor:
        try:
            made = _on_all_cores(contents, executor)
        except BaseException:
            executor.shutdown(cancel_futures=True)  # Ctrl-C: starts nothing new.
            raise
    yield from made.items()
    for name, make in contents.chunks_of_index.items():
        yield name, pack(make())


def _on_all_cores(contents: Contents, executor: Executor) -> dict[str, str]:
    """The chunks of single graphs and compiles, while this process looks for findings."""
    slow, late = contents.slow_chunks, contents.chunks_of_index
    names = [name for name in contents.chunks if name not in late and name not in slow]
    # Chunks of one graph are made together: they read the same graphs.
    groups = [tuple(group) for _, group in itertools.groupby(names, key=_graph_of)]
    tasks = [*((name,) for name in slow), *groups]
    futures: dict[tuple[str, ...], Future[Made]] = {
        group: executor.submit(_make, group) for group in tasks
    }
    _ = contents.findings, contents.timeline
    found: dict[str, str] = {}
    for group, future in futures.items():
        packed, summary = future.result()
        found.update(zip(group, packed, strict=True))
        if summary is not None:
            contents.take_summary(int(_graph_of(group[0])), summary)
    return found


def _graph_of(name: str) -> str:
    return name.split("-")[1] if "-" in name and not name.startswith("guards") else name


def _executor(contents: Contents) -> Executor | None:
    """Processes that share the loaded recording; None if not worthwhile or not possible."""
    cores = min(_MOST_PROCESSES, os.cpu_count() or 1)
    can_fork = "fork" in multiprocessing.get_all_start_methods()
    is_small = len(contents.graphs) < 2 or contents.operations < _FEW_OPERATIONS
    is_quick = is_small and len(contents.slow_chunks) < 2
    if is_quick or cores < 2 or not can_fork:
        return None
    _inherited[:] = [contents]
    gc.collect()
    gc.freeze()  # Keeps the collector in a child from touching, and so copying, objects.
    context = multiprocessing.get_context("fork")
    return ProcessPoolExecutor(cores, mp_context=context, initializer=_leave_interrupts_alone)


def _leave_interrupts_alone() -> None:
    """Ignore Ctrl-C, which reaches all processes of a terminal; the parent handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _make(names: tuple[str, ...]) -> Made:
    """Chunks, and of a whole graph what tables of all graphs need."""
    contents = _inherited[0]
    packed = [pack(contents.chunks[name]()) for name in names]
    is_graph = names[0].startswith("graph-")
    return packed, contents.summary(int(_graph_of(names[0]))) if is_graph else None


def pack(value: Any) -> str:
    """Compressed JSON, in base 64."""
    packer = zlib.compressobj(_LEVEL, wbits=_GZIP)
    data = packer.compress(compact(value)) + packer.flush()
    return base64.b64encode(data).decode("ascii")


# As gzip writes it, without a time: the same chunk is the same text.
_GZIP = 16 + zlib.MAX_WBITS


def compact(value: Any) -> bytes:
    """JSON without whitespace, as UTF-8; what was recorded as JSON stays as it is."""
    if isinstance(value, RecordedPayload):
        return with_usual_names(value.text).encode("utf-8", "replace")
    return dumps(value, ascii_only=False).encode("utf-8", "backslashreplace")


def dumps(value: Any, *, ascii_only: bool) -> str:
    """JSON that a browser reads: dataclasses as objects, without Infinity and NaN."""
    try:
        text = json.dumps(
            value,
            ensure_ascii=ascii_only,
            separators=(",", ":"),
            allow_nan=False,
            default=as_json,
        )
        return with_usual_names(text)
    except ValueError:
        return dumps(_finite(value), ascii_only=ascii_only)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if is_dataclass(value):
        value = as_json(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value
