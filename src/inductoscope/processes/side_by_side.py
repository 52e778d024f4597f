"""Parallel `map` over all cores of this machine."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from inductoscope.errors import ToolFailure
from inductoscope.processes.limits import die_with_parent
from inductoscope.processes.status import own_cores

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

# Like the built-in `map`: results are in the order of the items.
Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


def worker_context() -> BaseContext:
    """Return the fork context if safe: it is faster, and needs no importable main module."""
    import multiprocessing

    return multiprocessing.get_context("fork" if can_fork() else None)


def can_fork() -> bool:
    """Check whether forking is safe: Linux, and no other thread in this process."""
    return sys.platform == "linux" and threading.active_count() == 1


@contextlib.contextmanager
def several_at_once(
    cores: int | None, items: int, *, begin: Callable[[], None] | None = None
) -> Iterator[Map]:
    """Yield a `map` over several processes; the built-in one where they would not pay.

    `begin` is called first in every process that does the work. Its data is not pickled: forked
    workers inherit it.
    """
    cores = min(cores or len(own_cores()), items)
    if cores < 2 or (begin is not None and not can_fork()):
        if begin is not None:
            begin()
        yield map
        return
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    executor = ProcessPoolExecutor(
        cores, mp_context=worker_context(), initializer=_begin, initargs=(begin,)
    )
    size = max(1, min(16, items // (4 * cores)))
    try:
        yield lambda work, found: executor.map(work, found, chunksize=size)
    except BrokenProcessPool as error:
        raise ToolFailure(
            "A process that did part of the work was killed, perhaps because memory ran out."
        ) from error
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _begin(begin: Callable[[], None] | None) -> None:
    die_with_parent()
    # The parent ends its workers; they need not report Ctrl-C as well.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if begin is not None:
        begin()
