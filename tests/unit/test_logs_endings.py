"""How a program ended, by what others wrote into its log: Python, launchers, the shell, readers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.hangs.logs.answers import Answer, Kind
from support.logged import (
    CLEAN,
    HANG,
    RECORDED,
    LogText,
    answers,
    caller,
    content,
    interleaved,
    only_answer,
)
from support.logged import stuck_names as names

WAITING = (
    "Traceback (most recent call last):",
    '  File "/home/user/train.py", line 9, in <module>',
    '  File "/x/torch/_inductor/select_algorithm.py", line 3, in wait_on_futures',
    "    for future in as_completed(",
    '  File "/usr/lib/python3.12/threading.py", line 359, in wait',
)
TORCHRUN = "torch/distributed/elastic/multiprocessing/api.py"


def hang(**options: object) -> LogText:
    return LogText(**options).group("a4", "b8").wait().finish("a4")  # type: ignore[arg-type]


def done(**options: object) -> LogText:
    log = LogText(**options).group("a4", "b8").wait().finish("a4", "b8")  # type: ignore[arg-type]
    log.torch("Precompilation elapsed time: 2s").torch("Starting autotuning")
    log.torch("Autotuning elapsed time: 1s")
    log.torch("Step 3: torchinductor done compiling FORWARDS graph 0", level="I")
    return log.torch("Cache Metrics:", level="I", module="remote_cache.py", own=False)


def judged(tmp_path: Path, log: LogText, *more: str) -> Answer:
    for line in more:
        log.raw(line)
    return only_answer(log.write(tmp_path / "log"))


# --- a hang stays one -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "confidence"),
    [
        ((*WAITING, "KeyboardInterrupt"), "proven"),
        ((*WAITING, '  File "/home/user/train.py", line 4, in alarm', "TimeoutError: x"), "proven"),
        (
            (
                "Thread 0x00007f0a (most recent call first):",
                '  File "/usr/lib/python3.12/threading.py", line 359 in wait',
                "",
                "Thread 0x00007f0b (most recent call first):",
                '  File "/x/torch/_inductor/select_algorithm.py", line 3 in wait_on_futures',
                '  File "/home/user/train.py", line 9 in <module>',
            ),
            "proven",
        ),
        (
            (
                'Thread 77 (idle): "MainThread"',
                "    wait_on_futures (torch/_inductor/select_algorithm.py:3)",
                "    <module> (train.py:9)",
            ),
            "proven",
        ),
        (("Killed",), "likely"),
        (
            (
                "Traceback (most recent call last):",
                '  File "/usr/bin/torchrun", line 8, in <module>',
                '  File "/x/torch/distributed/elastic/agent.py", line 84, in _terminate',
                "torch.distributed.elastic.SignalException: Process 1 got signal: 15",
            ),
            "likely",
        ),
        (
            (
                "Exception in thread Thread-3:",
                "Traceback (most recent call last):",
                '  File "/usr/lib/python3.12/threading.py", line 1, in _bootstrap_inner',
                "EOFError",
            ),
            "likely",
        ),
    ],
    ids=["Ctrl-C", "alarm", "faulthandler", "py-spy", "killed", "torchrun", "thread"],
)
def test_what_comes_after_a_hang(tmp_path: Path, more: tuple[str, ...], confidence: str) -> None:
    answer = judged(tmp_path, hang(), *more)
    assert (answer.kind, answer.confidence) == (Kind.COMPILE_HANG, confidence)
    assert names(answer.groups[0]) == ["b8.py"]


def exited(log: LogText, code: int) -> LogText:
    text = f"failed (exitcode: {code}) local_rank: 0 (pid: 77) of binary: python"
    launcher = LogText(process=70).torch(text, level="E", module=TORCHRUN, own=False)
    log.lines += launcher.lines
    return log


def test_a_launcher_says_that_it_killed_it(tmp_path: Path) -> None:
    answer = judged(tmp_path, exited(hang(), -9))
    assert answer.kind is Kind.COMPILE_HANG
    assert "signal 9 killed it" in answer.notes[-1]


# --- an end of its own is no hang -----------------------------------------------------------------


def test_a_launcher_says_that_it_ended_by_itself(tmp_path: Path) -> None:
    for code in (1, -11):
        answer = judged(tmp_path, exited(hang(), code))
        assert answer.kind is Kind.ERROR
        assert f"not a hang: it exited with code {code}" in answer.title


@pytest.mark.parametrize(
    "line",
    ["Fatal Python error: Segmentation fault", "bash: line 1:  77 Segmentation fault  python x"],
)
def test_a_crash_while_choices_are_compiled(
    tmp_path: Path, line: str, snapshot: SnapshotAssertion
) -> None:
    answer = judged(tmp_path, hang(), line)
    assert (answer.kind, answer.confidence) == (Kind.ERROR, "proven")
    assert answer.title == snapshot


PREFIXES: dict[str, Callable[[int], str]] = {
    "GitHub": lambda line: f"2026-11-15T00:25:{line % 60:02d}.4310000Z ",
    "ts": lambda line: f"Nov 15 00:25:{line % 60:02d} ",
    "ts -s": lambda line: f"[00:00:{line % 60:02d}] ",
    "seconds": lambda line: f"[{1763166329 + line}.431] ",
    "compose": lambda line: f"trainer_1  | 2026-11-15T00:25:{line % 60:02d}Z ",
    "syslog": lambda line: f"<14>1 2026-11-15T00:25:{line % 60:02d}Z node7 train 77 - - ",
    "pdsh": lambda line: "node07: ",
    "srun": lambda line: " 3: ",
    "grep -n": lambda line: f"{line + 1}:",
    "cat -n": lambda line: f"{line + 1:6d}\t",
    "no launcher that is known": lambda line: f"~~ {line * 3} ~~ ",
}


@pytest.mark.parametrize("name", PREFIXES)
def test_tracebacks_behind_whatever_stands_before_a_line(
    tmp_path: Path, name: str, snapshot: SnapshotAssertion
) -> None:
    log = hang()
    for line in (*WAITING[:-1], "ValueError: no such thing"):
        log.raw(line)
    log.lines = [PREFIXES[name](number) + line for number, line in enumerate(log.lines)]
    (answer,) = answers(log.write(tmp_path / "log"))
    assert (answer.kind, answer.stage, answer.confidence) == (Kind.ERROR, "autotune", "proven")
    assert answer.title == snapshot


def test_hosts_are_told_apart_by_name(tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = interleaved(done(prefix="node01: "), hang(prefix="node02: "))
    path.write_text("\n".join(lines) + "\n")
    found = {answer.program.label: answer.kind for answer in answers(path)}
    assert found == {"node01:": Kind.CLEAN, "node02:": Kind.COMPILE_HANG}


# --- several programs and no name before their lines ----------------------------------------------


def test_a_table_of_one_rank_ends_no_group_of_another(tmp_path: Path) -> None:
    first, second = done(process=5), hang(process=6)
    first.lines.insert(-2, "AUTOTUNE mm(8x8, 8x8)")
    path = tmp_path / "log"
    path.write_text("\n".join(interleaved(first, second)) + "\n")
    hanging, fine = answers(path)
    assert (names(hanging.groups[0]), fine.kind) == (["b8.py"], Kind.CLEAN)


def test_a_stack_goes_to_the_program_that_has_not_ended(tmp_path: Path) -> None:
    lines = [*interleaved(hang(process=6), done(process=5)), *WAITING, "KeyboardInterrupt"]
    path = tmp_path / "log"
    path.write_text("\n".join(lines) + "\n")
    hanging, fine = answers(path)
    assert (hanging.program.process, hanging.confidence) == (6, "proven")
    assert fine.kind is Kind.CLEAN


def test_an_exception_of_one_of_several_hides_no_hang(tmp_path: Path) -> None:
    error = (
        "Traceback (most recent call last):",
        '  File "/a/b.py", line 1, in f',
        "ValueError: x",
    )
    lines = [*interleaved(hang(process=5), hang(process=6)), *error]
    path = tmp_path / "log"
    path.write_text("\n".join(lines) + "\n")
    found = [(answer.kind, answer.program.process) for answer in answers(path)]
    assert sorted(found, key=lambda pair: pair[1]) == [
        (Kind.ERROR, 0),
        (Kind.COMPILE_HANG, 5),
        (Kind.COMPILE_HANG, 6),
    ]


# --- a log that holds too little ------------------------------------------------------------------


@pytest.mark.parametrize(
    "lines",
    [
        [LogText().torch("[__recompiles] Recompiling function f", module="guards.py").lines[0]],
        [LogText().torch("Not enough SMs to use max_autotune", level="W").lines[0]],
        [line for line in done().lines if "Step" not in line][:-1],
        [line for line in content(CLEAN).decode().splitlines() if line[:5] in ("W1115", "E1115")],
    ],
    ids=["an artifact", "a warning", "one logger", "errors of choices"],
)
def test_a_log_that_would_not_show_the_end_is_no_hang(tmp_path: Path, lines: list[str]) -> None:
    path = tmp_path / "log"
    path.write_text("\n".join(lines) + "\n")
    answer = only_answer(path)
    assert (answer.kind, answer.is_problem) == (Kind.UNKNOWN, False)


def test_what_is_ignored_at_the_end_does_not_spoil_a_clean_log(tmp_path: Path) -> None:
    answer = judged(
        tmp_path,
        done(),
        "Exception ignored in: <function Pool.__del__ at 0x7f>",
        "Traceback (most recent call last):",
        '  File "/usr/lib/python3.12/weakref.py", line 3, in remove',
        "TypeError: x",
    )
    assert answer.kind is Kind.CLEAN


# --- lines that are cut or joined -----------------------------------------------------------------


def test_a_result_that_is_cut_is_still_one(tmp_path: Path) -> None:
    """The kernel that the last line names has finished."""
    lines = content(HANG).split(b"\n")
    last = max(n for n, line in enumerate(lines) if b"Precompiling benchmark choice" in line)
    path = tmp_path / "log"
    path.write_bytes(b"\n".join(lines[: last + 1])[:-60])
    (group,) = only_answer(path).groups
    assert (len(group.stuck), len(group.finished), len(group.submitted)) == (8, 12, 20)


def test_a_name_that_is_cut_is_no_choice(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    log = hang()
    log.lines = [line[:110] for line in log.lines]  # As a terminal wraps them.
    answer = judged(tmp_path, log)
    assert answer.title == snapshot
    assert not answer.groups[0].choices


def test_lines_of_two_processes_that_were_joined(tmp_path: Path) -> None:
    log = LogText().torch("Multithreaded precompilation for 2 choices using 2 worker threads")
    log.torch(f"Submitted precompile for choice: {caller('a4')}")
    log.lines[-1] += log.torch(f"Submitted precompile for choice: {caller('b8')}").lines.pop()
    answer = judged(tmp_path, log.wait().finish("a4"))
    assert names(answer.groups[0]) == ["b8.py"]


def test_a_log_that_begins_too_late_says_so(tmp_path: Path) -> None:
    log = hang()
    del log.lines[:3]
    assert "more choices may be stuck than it names" in judged(tmp_path, log).notes[0]


def test_evidence_is_only_what_the_log_holds(tmp_path: Path) -> None:
    log = LogText()
    log.torch("Multithreaded precompilation for 9 choices using 4 worker threads", level="I")
    answer = judged(tmp_path, log.finish("a4"))
    assert not any("Waiting on futures" in evidence.text for evidence in answer.evidence)


# As torch writes them without any TORCH_LOGS.
RECOMPILE_LIMIT = (
    "torch._dynamo hit config.recompile_limit (8)",
    "   function: 'f' (/home/me/train.py:2)",
    "   last reason: 0/7: tensor 'x' size mismatch at index 0. expected 8, actual 9",
    'To log all recompilation reasons, use TORCH_LOGS="recompiles".',
)


def test_the_recompile_limit_is_told_from_its_warning_alone(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    log = tmp_path / "log.txt"
    header = "W1116 13:16:50.617000 77 torch/_dynamo/convert_frame.py:1994] [0/8] "
    log.write_text("".join(f"{header}{line}\n" for line in RECOMPILE_LIMIT))
    answer = only_answer(log)
    assert (answer.kind, answer.stage, answer.confidence) == (
        Kind.RECOMPILE_LIMIT,
        "dynamo",
        "proven",
    )
    assert answer.title.startswith(
        "f (/home/me/train.py:2) was compiled until torch reached recompile_limit (8); inputs"
    )
    assert answer.title == snapshot


def test_a_graph_from_the_cache_is_compiled(tmp_path: Path) -> None:
    """Where AOTAutograd's part is cached too, no other line says that the compile is over."""
    log = LogText().torch("fx graph cache hit for key fabc", level="I", module="codecache.py")
    later = judged(tmp_path, log)
    assert (later.kind, later.is_problem) == (Kind.RUN_TIME, True)
    log.torch("Cache Metrics:", level="I", module="remote_cache.py", own=False)
    assert judged(tmp_path, log).kind is Kind.CLEAN


def test_an_interruption_before_any_compile_is_not_after_compilation(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    log = LogText()
    log.torch("compile_threads set to 2", level="I", module="config.py", own=False)
    stack = ("Traceback (most recent call last):", '  File "/home/user/train.py", line 4, in load')
    answer = judged(tmp_path, log, *stack, "KeyboardInterrupt")
    assert answer.kind is Kind.INTERRUPTED
    assert answer.title == snapshot


def test_a_program_that_compiles_nothing_is_not_said_to_have_finished_compiles(
    tmp_path: Path,
    snapshot: SnapshotAssertion,
) -> None:
    begun = {"level": "I", "module": "config.py", "own": False}
    ended = {"level": "I", "module": "remote_cache.py", "own": False}
    log = LogText().torch("compile_threads set to 2", **begun)  # type: ignore[arg-type]
    answer = judged(tmp_path, log.torch("Cache Metrics: None", **ended))  # type: ignore[arg-type]
    assert (answer.kind, answer.is_problem) == (Kind.CLEAN, False)
    assert answer.title == snapshot


def test_the_rank_that_failed_first_leads(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """The other one failed because it was gone."""
    lines = [
        "[rank1]: Traceback (most recent call last):",
        '[rank1]:   File "/home/user/train.py", line 7, in <module>',
        "[rank1]: ValueError: bad batch",
        "[rank0]: Traceback (most recent call last):",
        '[rank0]:   File "/home/user/train.py", line 9, in <module>',
        "[rank0]: RuntimeError: Connection closed by peer",
    ]
    log = LogText()
    for line in lines:
        log.raw(line)
    first, second = answers(log.write(tmp_path / "log"))
    assert "ValueError: bad batch" in first.title
    assert second.title == snapshot


def test_a_compiler_that_hangs_is_headed_by_what_it_is(snapshot: SnapshotAssertion) -> None:
    answer = only_answer(RECORDED / "stall_in_compiler.log.gz")
    assert f"{answer.kind.value}: {answer.title}" == snapshot
    assert "C++ compiler itself does not finish" in answer.advice[0]
