"""Memory runs out: another process, the tool or the program holds it, and the verdict says who."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from inductoscope.doctor.hypotheses import first_verdict
from inductoscope.doctor.lack_of_memory import holders
from inductoscope.processes.memory import MemoryLimit, MemoryUse, tightest_limit
from support.program_cases import COMPILED_ONE, ENDS_WELL, FAILS, PLAIN, End, check, written_case
from support.programs import TOOL, Workplace

GIB = 1 << 30
EVENTS = (COMPILED_ONE, check())


def use(
    program: int, *, free: int = 0, killed: int = 1, total: int = 16, shared: bool = True
) -> MemoryUse:
    """What was seen when memory was scarcest, in GiB; this tool's processes hold one."""
    limit = MemoryLimit("this machine", total * GIB, free * GIB, shared)
    return MemoryUse(limit, program * GIB, GIB, killed)


def killed(memory: MemoryUse) -> End:
    return End(137, "", signal=signal.SIGKILL, events=EVENTS, memory=memory)


def refused(gib: int, memory: MemoryUse) -> End:
    said = "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate"
    text = f"{said} {gib * GIB} bytes. Error code 12 (Cannot allocate memory)"
    return End(1, text, events=EVENTS, memory=memory)


# --- three verdicts -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "confidence"),
    [
        (refused(6, use(3)), "proven"),
        (killed(use(3)), "likely"),
    ],
)
def test_another_process_holds_the_memory(first: End, confidence: str, tmp_path: Path) -> None:
    """Of a process that was killed, nobody knows what it asked for."""
    case, asked = written_case(tmp_path, first)
    verdict = first_verdict(case)
    assert (verdict.verdict, verdict.confidence) == ("not-checked", confidence)
    assert verdict.summary.startswith("Other processes hold 12.0 of the 16.0 GiB of this machine")
    assert not asked


def test_the_tool_needs_more_than_there_is(tmp_path: Path) -> None:
    plain = End(memory=use(13, free=2, killed=0))
    case, _ = written_case(tmp_path, killed(use(15)), plain=[plain])
    verdict = first_verdict(case)
    assert verdict.verdict == "not-checked"
    assert verdict.summary.startswith("The program and what a check adds")
    seen = [each["what"] for each in verdict.evidence]
    assert "the OOM killer killed 1 process" in seen
    assert verdict.evidence[-1]["where"].startswith("without the tool")
    assert seen[-1] == (
        "of the 16.0 GiB of this machine: the program 13.0, inductoscope 1.0, other processes "
        "0.00, free 2.0"
    )


def test_the_program_asks_for_too_much_in_eager_as_well(tmp_path: Path) -> None:
    end = refused(40, use(9, free=6, killed=0))
    case, _ = written_case(tmp_path, end, plain=[end], off=[end])
    verdict = first_verdict(case)
    assert (verdict.verdict, verdict.confidence) == ("not-a-bug", "proven")
    assert verdict.summary.startswith("The program runs out of memory without torch.compile too")
    assert "it failed to allocate 40.0 GiB" in [each["what"] for each in verdict.evidence]


@pytest.mark.parametrize(
    ("gib", "verdict"),
    [
        (40, ("crash", "proven")),
        (1, ("not-checked", "likely")),
    ],
)
def test_only_the_compiled_program_asks_for_too_much(
    gib: int, verdict: tuple[str, str], tmp_path: Path
) -> None:
    """One more GiB may have been free, had the processes of this tool not held it."""
    end = refused(gib, use(15))
    case, _ = written_case(tmp_path, end, plain=[end], off=[ENDS_WELL])
    found = first_verdict(case)
    assert (found.verdict, found.confidence) == verdict
    assert found.summary.startswith("Compiled, the program needs more memory than in eager")


def test_a_kill_is_no_lack_of_memory_unless_the_kernel_says_so(tmp_path: Path) -> None:
    case, _ = written_case(tmp_path, killed(use(15, killed=0)), plain=[ENDS_WELL])
    assert first_verdict(case).summary.startswith("SIGKILL ended the program in one run")


def test_another_failure_of_the_program_without_the_tool_is_looked_into(tmp_path: Path) -> None:
    case, asked = written_case(tmp_path, killed(use(15)), plain=[FAILS])
    first_verdict(case)
    assert asked.count(PLAIN) == 1
    assert len(asked) > 1


def test_others_are_not_to_blame_where_memory_was_left(tmp_path: Path) -> None:
    """A MemoryError does not say what was asked for: it must have been more than all."""
    end = End(1, "MemoryError", events=EVENTS, memory=use(1, free=8, killed=0))
    case, _ = written_case(tmp_path, end, plain=[end], off=[end])
    assert first_verdict(case).verdict == "not-a-bug"


# --- whose limit it is ----------------------------------------------------------------------------

SLEEPS = "import time; print(flush=True); time.sleep(60)"


@pytest.mark.parametrize("which", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_a_limit_of_the_process_itself_counts(which: str) -> None:
    number = getattr(resource, which)

    def limit() -> None:
        resource.setrlimit(number, (GIB, GIB))

    command = [sys.executable, "-c", SLEEPS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=limit) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = tightest_limit(child.pid)
        child.kill()
    assert found.name == f"the process's limit {which}"
    assert found.total == GIB
    assert GIB // 2 < found.free < GIB


def test_of_its_own_limit_a_process_holds_everything_that_is_not_free(tmp_path: Path) -> None:
    end = refused(9, use(3, free=4, shared=False))
    case, _ = written_case(tmp_path, end)
    assert holders(case.first) == "of the 16.0 GiB of this machine: the program 12.0, free 4.0"


# --- whole programs -------------------------------------------------------------------------------

CALLED = """
import resource

import torch


@torch.compile(dynamic=True)
def function(x):
    return (x.sin() + 1).sum()


print(function(torch.randn(100)).item() < 1e9)
"""
SCARCE = """
x = torch.randn(24 << 20)
held = open("/proc/self/status").read().partition("VmData:")[2].split()[0]
resource.setrlimit(resource.RLIMIT_DATA, ((int(held) << 10) + (130 << 20),) * 2)
print(function(x).item() < 1e9)
"""


def test_a_call_beside_which_eager_does_not_fit_is_not_checked(workplace: Workplace) -> None:
    """Compiled code needs no memory for it; eager needs twice the 96 MiB of the input."""
    workplace.write("scarce.py", CALLED + SCARCE)
    found = workplace.doctor("scarce.py").verdict
    assert (found["verdict"], found["confidence"]) == ("clean", "likely")
    (text,) = [text for text in found["not_checked"] if text.startswith("call ")]
    assert "its own memory did not fit beside them" in text
    assert text.endswith("MiB were free of the process's limit RLIMIT_DATA")
    assert not [text for text in found["not_checked"] if "error in inductoscope" in text]


def test_a_program_asks_for_more_than_there_is(workplace: Workplace) -> None:
    workplace.write("greedy.py", CALLED + "torch.empty(1 << 44)\n")
    found = workplace.doctor("greedy.py").verdict
    assert (found["verdict"], found["confidence"]) == ("not-a-bug", "proven")
    said = [each["what"] for each in found["evidence"]]
    assert "it failed to allocate 65536.0 GiB" in said
    assert any(": the program 0." in text and "inductoscope 0." in text for text in said)


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup with a limit of 1000 MiB, without swap."""
    old = Path("/sys/fs/cgroup/memory")
    folder = (old if old.exists() else Path("/sys/fs/cgroup")) / f"test-{os.getpid()}"
    limit = "memory.limit_in_bytes" if old.exists() else "memory.max"
    try:
        folder.mkdir()
        (folder / limit).write_text(str(1000 << 20))
    except OSError:
        pytest.skip("this machine lets no test make a cgroup that limits memory")
    yield folder
    folder.rmdir()


def test_the_kernel_kills_a_program_that_takes_too_much(workplace: Workplace, cgroup: Path) -> None:
    workplace.write("greedy.py", CALLED + "kept = [torch.ones(8 << 20) for _ in range(99)]\n")
    enter = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
    tool = [*TOOL, "doctor", "--output", "out", "--json", "found.json", "greedy.py"]
    workplace.call(["sh", "-c", enter, str(cgroup), *tool])
    found = json.loads((workplace.folder / "found.json").read_text())
    assert (found["verdict"], found["confidence"]) == ("not-a-bug", "proven")
    assert "its counter oom_kill" in [each["where"] for each in found["evidence"]]
    assert any(str(cgroup) in each["what"] for each in found["evidence"])


def test_tensors_on_meta_are_compared_by_their_form(workplace: Workplace) -> None:
    """Beyond that they have nothing to compare, nor do they take memory."""
    text = """
    import torch

    model = torch.nn.Linear(100_000, 100_000, device="meta")
    print(torch.compile(model)(torch.empty(4, 100_000, device="meta")).shape)
    """
    workplace.write("meta.py", textwrap.dedent(text))
    found = workplace.doctor("meta.py").verdict
    assert (found["verdict"], found["confidence"]) == ("clean", "proven")
