"""Inside the program: has the main thread do something soon, whatever it is doing.

Python runs the handlers of signals in the main thread, between two steps of the program. What is
asked for here looks to Python like such a signal, but none is sent: no system call is interrupted.
"""

from __future__ import annotations

import _thread
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

# One that programs hardly ever use; only Linux has them.
_NUMBER: Any = signal.SIGRTMAX - 4 if hasattr(signal, "SIGRTMAX") else None
# Seconds between two times that it is asked for the same.
_ASK_EVERY = 0.05


class MainThread:
    """Runs `work` in the main thread when it is asked to."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work

    def _asked(self, number: int, frame: Any) -> None:
        self._work()

    def prepare(self) -> None:
        """To be called once in the main thread; a program that uses the signal itself keeps it."""
        is_main = threading.get_ident() == threading.main_thread().ident
        if _NUMBER is not None and is_main and signal.getsignal(_NUMBER) == signal.SIG_DFL:
            signal.signal(_NUMBER, self._asked)

    def ask(self) -> bool:
        """Ask for it, from any thread; False if it cannot be asked."""
        if _NUMBER is None or signal.getsignal(_NUMBER) != self._asked:
            return False
        _thread.interrupt_main(_NUMBER)
        return True

    def ask_until(self, is_done: Callable[[], bool], seconds: float) -> bool:
        """Ask again and again until it is done; whether it is, after so many seconds at most."""
        end = time.monotonic() + seconds
        while not is_done() and time.monotonic() < end and self.ask():
            time.sleep(_ASK_EVERY)
        return is_done()


class Deadline:
    """Calls something on a thread of its own once the time is up, unless it is met before.

    The thread is none of those that the program can count.
    """

    def __init__(self, seconds: float, missed: Callable[[], None]) -> None:
        self._seconds, self._missed = seconds, missed
        self._met = _thread.allocate_lock()
        self._met.acquire()
        _thread.start_new_thread(self._wait, ())

    def _wait(self) -> None:
        if not self._met.acquire(timeout=self._seconds):
            self._missed()

    def meet(self) -> None:
        """It was done in time."""
        if self._met.locked():
            self._met.release()
