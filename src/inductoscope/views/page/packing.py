"""Makes and compresses the chunks of a page, on all cores."""

from __future__ import annotations

import base64
import contextlib
import gc
import gzip
import itertools
import json
import math
import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import is_dataclass
from typing import Any

from inductoscope.model.as_json import as_json
from inductoscope.views.page.contents import Contents
from inductoscope.vocabulary.operator_names import with_usual_names

# Making a few chunks takes less time than starting a process.
_FEW_CHUNKS = 40
_MOST_PROCESSES = 8

# What a child works on: inherited, because the functions that make chunks cannot be pickled.
_inherited: list[Contents] = []


@contextlib.contextmanager
def packed_chunks(contents: Contents) -> Iterator[Iterator[tuple[str, str]]]:
    """All chunks by name, compressed, in order. Work on them starts at once."""
    executor = _executor(contents)
    if executor is None:
        yield ((name, pack(make())) for name, make in contents.chunks.items())
        return
    with executor:
        own = contents.chunks_of_index
        names = [name for name in contents.chunks if name not in own]
        # Chunks of one graph are made together: they read the same graphs.
        groups = [tuple(group) for _, group in itertools.groupby(names, key=_graph_of)]
        futures = {group: executor.submit(_make, group) for group in groups}
        try:
            yield _collected(contents, futures)
        except BaseException:
            executor.shutdown(cancel_futures=True)  # Ctrl-C: starts nothing new.
            raise


def _graph_of(name: str) -> str:
    return name.split("-")[1] if "-" in name and not name.startswith("guards") else name


def _collected(
    contents: Contents, futures: Mapping[tuple[str, ...], Future[list[str]]]
) -> Iterator[tuple[str, str]]:
    for names, future in futures.items():
        yield from zip(names, future.result(), strict=True)
    for name, make in contents.chunks_of_index.items():
        yield name, pack(make())


def _executor(contents: Contents) -> Executor | None:
    """Processes that share the loaded recording; None if not worthwhile or not possible."""
    cores = min(_MOST_PROCESSES, os.cpu_count() or 1)
    can_fork = "fork" in multiprocessing.get_all_start_methods()
    is_quick = len(contents.chunks) < _FEW_CHUNKS and not contents.compiles
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


def _make(names: tuple[str, ...]) -> list[str]:
    return [pack(_inherited[0].chunks[name]()) for name in names]


def pack(value: Any) -> str:
    """Compressed JSON, in base 64."""
    return base64.b64encode(gzip.compress(compact(value), 5, mtime=0)).decode("ascii")


def compact(value: Any) -> bytes:
    """JSON without whitespace, as UTF-8."""
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
