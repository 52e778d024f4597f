"""Starts programs and commands in a folder, and interrupts them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from battery.endings.ending import Interruption

_SECONDS = 400.0
_SECONDS_TO_START = 200.0
# For the doctor to end its program, which lives in a process group of its own.
_SECONDS_TO_END = 30.0


class NotReadyError(Exception):
    """A program did not get to where it was to be interrupted or looked at."""


@dataclass(frozen=True)
class Ran:
    """A program that has ended."""

    pid: int
    exit_code: int
    printed: Path

    @property
    def text(self) -> str:
        return self.printed.read_text("utf-8", "replace")


class Commands:
    """Runs commands as in a terminal of 80 columns, with caches and recordings of their own."""

    def __init__(self, folder: Path, probed: Path | None = None) -> None:
        self._folder, self._count = folder, 0
        if probed is not None:
            shutil.copytree(probed, folder / "cache")

    def run(
        self, words: Sequence[str], interruption: Interruption | None = None, more_output: str = ""
    ) -> tuple[int, str]:
        """The exit code as a shell has it, and what was printed."""
        ran = self.run_plainly(words, interruption, more_output)
        return ran.exit_code, ran.text.replace(f"{self._folder}/", "")

    def run_plainly(
        self,
        words: Sequence[str],
        interruption: Interruption | None,
        more_output: str = "",
        **environment: str,
    ) -> Ran:
        """Run a command to its end; `more_output` is where its program may print to."""
        printed = self._new_file()
        with printed.open("wb") as output:
            child = self._start(words, output, environment)
            try:
                if interruption is not None:
                    self._wait_for(interruption.after, child, printed, more_output)
                    _send(interruption.signal, child.pid, str(words[-1]))
                code = child.wait(_SECONDS)
            except (subprocess.TimeoutExpired, NotReadyError):
                code = _end(child)
        return Ran(child.pid, 128 - code if code < 0 else code, printed)

    def run_beside(self, program: Sequence[str], words: Sequence[str]) -> tuple[int, str]:
        """Run a command on the PID of a program that is READY and runs on."""
        printed = self._new_file()
        with printed.open("wb") as output:
            child = self._start(program, output, {})
            try:
                self._wait_for(Interruption(0).after, child, printed)
                return self.run([*words, str(child.pid)])
            except NotReadyError as problem:
                return -1, str(problem)
            finally:
                _end(child)

    @property
    def last_recording(self) -> Path:
        """The last one that was made without a name."""
        return max((self._folder / "recordings").iterdir(), key=lambda path: path.stat().st_mtime)

    def _start(
        self, words: Sequence[str], output: BinaryIO, more: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("TORCH", "INDUCTOSCOPE"))}
        environment = {
            **kept,
            "COLUMNS": "80",
            "TORCHINDUCTOR_CACHE_DIR": str(self._folder / "cache"),
            "INDUCTOSCOPE_RECORDINGS": str(self._folder / "recordings"),
            **more,
        }
        return subprocess.Popen(
            words,
            cwd=self._folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            # A shell lets what it starts in the background ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def _new_file(self) -> Path:
        self._count += 1
        return self._folder / f"printed-{self._count}.txt"

    def _wait_for(
        self, words: str, child: subprocess.Popen[bytes], printed: Path, more_output: str = ""
    ) -> None:
        """Wait until a line that begins with the words is printed, and a moment longer."""
        end = time.monotonic() + _SECONDS_TO_START
        while child.poll() is None and time.monotonic() < end:
            files = [printed, *(self._folder.glob(more_output) if more_output else ())]
            texts = (path.read_text("utf-8", "replace") for path in files)
            if any(line.startswith(words) for text in texts for line in text.splitlines()):
                time.sleep(0.3)
                return
            time.sleep(0.1)
        raise NotReadyError(f"the program never printed {words!r}")


def _send(number: int, pid: int, script: str) -> None:
    """Send a signal as a terminal does: to the whole group of the command.

    SIGTERM goes to the command alone, as `timeout` sends it. SIGKILL cannot be passed on, so it
    goes to the program itself.
    """
    if number == signal.SIGKILL:
        os.kill(next(_descendants(pid, script), pid), number)
    elif number == signal.SIGTERM:
        os.kill(pid, number)
    else:
        os.killpg(pid, number)


def _descendants(pid: int, script: str) -> Iterator[int]:
    """The processes below one that have the script among their words."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if script.encode() in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
            yield int(child)
        yield from _descendants(int(child), script)


def _end(child: subprocess.Popen[bytes]) -> int:
    """End a command: politely first, so that it ends what it has started elsewhere."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
            return child.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            break
    return child.wait()
