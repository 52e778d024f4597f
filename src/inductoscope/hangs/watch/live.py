"""The watcher of `inductoscope run`: a thread of the tool that observes the started program."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from inductoscope.hangs.watch.attaching import EndedProcesses, end_stuck
from inductoscope.hangs.watch.stall import Event, Patience, Resumed, Stall, StallWatcher

_TICK = 0.5
_TIME_TO_STOP = 5.0


@dataclass(frozen=True)
class Killed:
    """Event: `--kill-stuck` ended the processes behind a stall, or could not."""

    stall: Stall
    ended: EndedProcesses


Say = Callable[["Event | Killed"], None]


@dataclass(frozen=True)
class Watch:
    folder: Path
    say: Say
    patience: Patience
    kill_stuck: bool = False

    @contextlib.contextmanager
    def over(self, pid: int) -> Iterator[None]:
        """Watch while the block runs, which waits for the program."""
        stop = threading.Event()
        thread = threading.Thread(target=self._watch, args=(stop,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(_TIME_TO_STOP)

    def _watch(self, stop: threading.Event) -> None:
        watcher = StallWatcher(self.folder, self.patience)
        is_last = False
        while not is_last:
            # The last look, after the program has ended, shows how a stall was resolved.
            is_last = stop.wait(_TICK)
            # A mistake in watching must not end the watch, let alone the program.
            with contextlib.suppress(Exception):
                for event in watcher.look():
                    self._handle(event)

    def _handle(self, event: Event) -> None:
        self.say(event)
        if isinstance(event, Stall):
            self._keep(event.number, asdict(event))
            if self.kill_stuck and not event.judgement.moves:
                ended = end_stuck(event.judgement)
                self.say(Killed(event, ended))
                self._keep(event.number, {**asdict(event), "ended": asdict(ended)})
        else:
            self._keep_end(event)

    def _keep(self, number: int, data: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            text = json.dumps(data, indent=1, default=str)
            (self.folder / f"stall-{number}.json").write_text(text + "\n", "utf-8")

    def _keep_end(self, moved: Resumed) -> None:
        data = read_stall(self.folder / f"stall-{moved.stall.number}.json")
        if data:
            data["moved"] = {"after": round(moved.after, 1), "what": moved.what}
            self._keep(moved.stall.number, data)


def read_stall(path: Path) -> dict[str, Any]:
    """Read a stored stall; empty if it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        data = json.loads(path.read_text("utf-8", "replace"))
        return data if isinstance(data, dict) else {}
    return {}


def kept_stalls(folder: Path) -> list[dict[str, Any]]:
    found = [read_stall(path) for path in folder.glob("stall-*.json")]
    return sorted((data for data in found if data), key=lambda data: str(data.get("number")))
