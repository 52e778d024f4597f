"""Tries endings: real programs, real signals, real commands."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from battery.endings.ending import (
    ATTACH,
    DOCTOR,
    LOGS,
    REPORT,
    RUN,
    SHOW,
    ProgramEnding,
    Said,
)

_TOOL = (sys.executable, "-m", "inductoscope")
_SECONDS = 240.0
_TIME_TO_START = 120.0


@dataclass(frozen=True)
class Heard:
    """What a command said about an ending, and whether that is what it has to say."""

    ending: str
    command: str
    exit_code: int
    first_line: str
    is_right: bool


def try_ending(ending: ProgramEnding, folder: Path, only: Sequence[str] = ()) -> Iterator[Heard]:
    """What every command of an ending says; `only` names commands."""
    wanted = [name for name in ending.said if not only or name in only]
    place = _Place(ending, folder)
    recorded = any(name in (RUN, SHOW, REPORT) for name in wanted)
    if recorded and RUN in ending.said:
        ran = place.recorded()
        if RUN in wanted:
            yield _judged(ending, RUN, *ran)
    elif recorded:
        place.plainly()
    for command in wanted:
        if command != RUN:
            yield _judged(ending, command, *place.asked(command))


def _judged(ending: ProgramEnding, command: str, code: int, output: str) -> Heard:
    line = first_line(output)
    said: Said = ending.said[command]
    is_right = code == said.exit_code and re.search(said.first_line, line) is not None
    return Heard(ending.name, command, code, line, is_right)


_BEGINS = re.compile(
    r"(inductoscope|doctor|clean|not-[\w-]+|compile-error|crash|hang|wrong-result|unknown|nan): "
)


def first_line(output: str) -> str:
    """The first line of what the tool itself says, with the lines that it goes on in."""
    lines = [line.rstrip() for line in output.splitlines()]
    start = next((n for n, line in enumerate(lines) if _BEGINS.match(line)), None)
    if start is None:
        return next((line for line in lines if line), "")
    end = next((n for n in range(start + 1, len(lines)) if _is_next(lines[n])), len(lines))
    return " ".join(lines[start:end])


def _is_next(line: str) -> bool:
    return not line or line.startswith((" ", "-")) or _BEGINS.match(line) is not None


class _Place:
    """A folder in which one ending is tried."""

    def __init__(self, ending: ProgramEnding, folder: Path) -> None:
        self._ending, self._folder = ending, folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "script.py").write_text(ending.script)

    def recorded(self) -> tuple[int, str]:
        """The program under `run`, the second time if once is not enough."""
        for time_ in range(2 if self._ending.twice else 1):
            output = self._folder / f"recording-{time_}"
            words = [*_TOOL, "run", "--output", str(output), *self._ending.run_options]
            found = self._run([*words, *self._program], output.with_suffix(".txt"))
        self._recording = output
        return found

    def plainly(self) -> None:
        self._run([sys.executable, "script.py"], self._folder / "plain.txt")
        self._recording = self._folder / "recorded"

    def asked(self, command: str) -> tuple[int, str]:
        """What another command says."""
        printed = self._folder / f"{command}.txt"
        if command == SHOW:
            return self._run([*_TOOL, SHOW, str(self._recording)], printed)
        if command == REPORT:
            page = str(self._folder / "page.html")
            words = [*_TOOL, REPORT, str(self._recording), "-o", page, "--assembly", "0"]
            return self._run(words, printed)
        if command == DOCTOR:
            words = [*_TOOL, DOCTOR, "--output", str(self._folder / "examined")]
            return self._run([*words, *self._ending.doctor_options, *self._program], printed)
        if command == ATTACH:
            return self._attached(printed)
        assert command == LOGS
        log = self._folder / "log.txt"
        self._run([sys.executable, "script.py"], log, {"TORCH_LOGS": "+inductor,dynamo"})
        return self._run([*_TOOL, LOGS, str(log)], printed)

    @property
    def _program(self) -> list[str]:
        names = {"SCRIPT": "script.py", "PYTHON": sys.executable}
        return [names.get(word, word) for word in self._ending.command]

    def _run(
        self, words: Sequence[str], printed: Path, more: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        with printed.open("wb") as output:
            child = self._start(words, output, more)
            if self._ending.signal is not None and self._is_program(words):
                self._send_when_ready(child, printed)
            try:
                code = child.wait(_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                code = child.wait()
        text = printed.read_text("utf-8", "replace").replace(f"{self._folder}/", "")
        return (128 - code if code < 0 else code), text

    def _start(
        self, words: Sequence[str], output: object, more: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("TORCH", "INDUCTOSCOPE"))}
        environment = {
            **kept,
            "COLUMNS": "80",
            "TORCHINDUCTOR_CACHE_DIR": str(self._folder / "cache"),
            "INDUCTOSCOPE_RECORDINGS": str(self._folder / "recordings"),
            **self._ending.environment,
            **(more or {}),
        }
        return subprocess.Popen(
            words,
            cwd=self._folder,
            env=environment,
            stdout=output,  # type: ignore[arg-type]
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            # A shell lets what it starts in the background ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def _is_program(self, words: Sequence[str]) -> bool:
        return "script.py" in words

    def _send_when_ready(self, child: subprocess.Popen[bytes], printed: Path) -> None:
        """Send the signal as a terminal does, to the whole group, once the program says "now".

        SIGKILL cannot be passed on, so it goes to the program alone.
        """
        number = self._ending.signal
        assert number is not None
        if not self._says_now(child, printed):
            return
        if number == signal.SIGKILL:
            os.kill(_youngest_script(child.pid), number)
        else:
            os.killpg(child.pid, number)

    def _says_now(self, child: subprocess.Popen[bytes], printed: Path) -> bool:
        """Wait until the program has said it, wherever the command puts what it prints."""
        end = time.monotonic() + _TIME_TO_START
        while child.poll() is None and time.monotonic() < end:
            # The doctor keeps what the program prints.
            examined = DOCTOR in child.args  # type: ignore[operator]
            kept = self._folder.glob("examined/**/output.txt") if examined else ()
            texts = (path.read_text("utf-8", "replace") for path in (printed, *kept))
            if any("now" in text.splitlines() for text in texts):
                time.sleep(0.3)
                return True
            time.sleep(0.1)
        return False

    def _attached(self, printed: Path) -> tuple[int, str]:
        """What `attach` says of the program while it runs."""
        running = self._folder / "running.txt"
        with running.open("wb") as output:
            child = self._start([sys.executable, "script.py"], output)
            try:
                self._says_now(child, running)
                with printed.open("wb") as answer:
                    words = [*_TOOL, ATTACH, str(child.pid), "--seconds", "5"]
                    code = self._start(words, answer).wait(_SECONDS)
            finally:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        return code, printed.read_text("utf-8", "replace")


def _youngest_script(pid: int) -> int:
    """The process that runs the script, below the tool."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else pid
