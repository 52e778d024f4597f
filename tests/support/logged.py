"""Recorded logs, and logs written by hand, line by line."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

from inductoscope.hangs.logs.answers import Answer, judge
from inductoscope.hangs.logs.log_files import find_logs
from inductoscope.hangs.logs.program import Group
from inductoscope.hangs.logs.reading import read_logs

RECORDED = Path(__file__).resolve().parents[1] / "data" / "recorded_logs"
HANG = RECORDED / "h200_autotune_hang.log.gz"
CLEAN = RECORDED / "h200_autotune_ok.log.gz"
ALL = sorted(RECORDED.glob("*.gz"))


def content(path: Path) -> bytes:
    """The contents of a recorded log."""
    with gzip.open(path) as file:
        return file.read()


def answers(*paths: Path, cores: int = 1) -> list[Answer]:
    """The diagnosis of these logs."""
    return judge(read_logs(find_logs([str(path) for path in paths]), cores=cores))


def only_answer(path: Path) -> Answer:
    """The answer about a log of one program."""
    (answer,) = answers(path)
    return answer


def stuck_names(group: Group) -> list[str]:
    """The names of what is stuck, as short as they are in these tests."""
    return [state.choice.short_name for state in group.stuck]


class LogText:
    """A log written by hand: one call for each line, with the header that torch gives it."""

    def __init__(self, *, process: int = 77, prefix: str = "", compile_id: str = "0/0") -> None:
        self._process = process
        self._prefix = prefix
        self._compile_id = compile_id
        self._clock = 0
        self.lines: list[str] = []

    def torch(
        self, text: str, *, level: str = "V", module: str = "select_algorithm.py", own: bool = True
    ) -> LogText:
        """A line of torch's; `own` if it is written by the thread that compiles."""
        self._clock += 1
        time = f"1115 10:00:{self._clock // 1000:02d}.{self._clock % 1000:03d}000"
        compile_id = f" [{self._compile_id}]" if own and self._compile_id else ""
        place = module if "/" in module else f"torch/_inductor/{module}"
        self.raw(f"{level}{time} {self._process} {place}:12]{compile_id} {text}")
        return self

    def raw(self, text: str) -> LogText:
        """A line as it is, after the launcher's prefix."""
        self.lines.append(f"{self._prefix}{text}")
        return self

    def group(self, *names: str, pool: bool = False, threads: int = 8) -> LogText:
        """Submit choices."""
        self.torch("Starting precompilation")
        self.torch(
            f"Multithreaded precompilation for {len(names)} choices using {threads} worker threads",
            level="I",
        )
        for name in names:
            if pool:
                self.torch(f"Submitted triton async compile for choice: {caller(name)}")
            else:
                self.torch(f"Submitted precompile for choice: {caller(name)}")
                self.start(name)
        return self

    def start(self, name: str) -> LogText:
        return self.torch(f"Precompiling choice with captured stdout: {caller(name)}", own=False)

    def wait(self, operation: str = "mm") -> LogText:
        self.torch(
            f"[BENCHMARK DEBUG] Starting autotuning for '{operation}' with shapes: ['8x8', '8x8'],"
            " device: cuda"
        )
        return self.torch("Waiting on futures")

    def finish(self, *names: str) -> LogText:
        for name in names:
            self.torch(f"Precompiling benchmark choice {caller(name)} took 1.25s", level="I")
        return self

    def write(self, path: Path) -> Path:
        path.write_bytes(self.bytes)
        return path

    @property
    def bytes(self) -> bytes:
        return "".join(f"{line}\n" for line in self.lines).encode()


def caller(name: str) -> str:
    """A Triton choice; the number of warps is that at the end of its name."""
    warps = name[-1] if name[-1].isdigit() else "4"
    return f"TritonTemplateCaller(/cache/{name}.py, BLOCK_M=64, BLOCK_N=32, num_warps={warps})"


def interleaved(*logs: LogText) -> Iterator[str]:
    """The lines of several programs, one after the other."""
    longest = max(len(log.lines) for log in logs)
    for number in range(longest):
        yield from (log.lines[number] for log in logs if number < len(log.lines))
