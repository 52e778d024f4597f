"""Children: a named function with JSON in and JSON lines out, under limits; nothing is left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.errors import ToolFailure
from inductoscope.inside import start
from inductoscope.launch.environment import PartName
from inductoscope.processes.children import (
    Child,
    ChildCall,
    ChildLimits,
    ChildResult,
    run_child,
    run_program,
)
from inductoscope.processes.status import is_alive
from support.waiting import wait_until

FUNCTIONS = """
import os, subprocess, sys, time
def greet(channel, names):
    channel.ready()
    for name in names:
        channel.say("greeted", text=f"hello {name}")
def fail(channel):
    raise ValueError("too small")
def leave(channel):
    sys.exit(3)
def die(channel):
    os.abort()
def hang(channel):
    channel.ready()
    child = subprocess.Popen(["sleep", "100"])
    channel.say("started", pid=child.pid)
    time.sleep(100)
def fill(channel):
    bytearray(8 << 30)
def add(channel):
    for request in channel.requests:
        channel.say("sum", sum=sum(request))
"""


@pytest.fixture
def call(tmp_path: Path):
    """A call of one of the functions."""
    (tmp_path / "functions.py").write_text(FUNCTIONS)

    def make(name: str, **given: object) -> ChildCall:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return ChildCall(f"functions:{name}", given, environment, tmp_path)

    return make


def run(call: ChildCall, seconds: float = 30.0) -> ChildResult:
    return run_child(call, ChildLimits(seconds, memory_gib=4.0))


def test_a_function_gets_what_it_is_given_and_its_events_arrive(call) -> None:
    heard: list[str] = []
    found = run_child(
        call("greet", names=["x" * 200_000, "ü"]),
        ChildLimits(),
        lambda event: heard.append(event["event"]),
    )
    assert heard == ["ready", "greeted", "greeted", "done"]
    assert [len(event["text"]) for event in found.events if "text" in event] == [200_006, 7]
    assert (found.exit_code, found.problem) == (0, "")


@pytest.mark.parametrize(
    ("name", "exit_code", "problem"),
    [
        ("fail", 1, "ValueError: too small"),
        ("fill", 1, "MemoryError"),
        ("leave", 3, "exit code 3."),
        ("die", -6, "SIGABRT killed it."),
        ("no_such_function", 1, "AttributeError: "),
    ],
)
def test_how_a_child_failed_is_said(call, name: str, exit_code: int, problem: str) -> None:
    found = run(call(name))
    assert found.exit_code == exit_code
    assert found.problem.startswith(problem)


def test_a_child_whose_time_is_up_is_ended_with_all_that_it_started(
    call, snapshot: SnapshotAssertion
) -> None:
    found = run(call("hang"), seconds=0.5)
    assert found.exit_code is None
    assert found.problem == snapshot
    started = found.find("started")
    assert started is not None
    assert found.observed is not None
    assert started["pid"] in {process.pid for process in found.observed.tree.processes}
    assert wait_until(lambda: not is_alive(started["pid"]))


def test_requests_are_answered_until_no_more_come(call) -> None:
    child = Child(call("add"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for numbers in ([1, 2], [3, 4]):
            child.send(numbers)
        assert [child.answer("sum", 30)["sum"] for _ in range(2)] == [3, 7]
        with pytest.raises(ToolFailure, match="did not answer within"):
            child.answer("sum", 0.2)
    finally:
        child.end()
    assert child.process.poll() is not None


def test_a_child_ends_with_its_parent(call, tmp_path: Path) -> None:
    parent = f"""
import os, sys
from pathlib import Path
from inductoscope.processes.children import *
def heard(event):
    if event["event"] == "started":
        print(event["pid"], flush=True)
run_child(ChildCall("functions:hang", {{}}, dict(os.environ), Path({str(tmp_path)!r})),
          ChildLimits(100), heard)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    process = subprocess.Popen(
        [sys.executable, "-c", parent], env=environment, stdout=subprocess.PIPE, text=True
    )
    call("hang")
    assert process.stdout is not None
    grandchild = int(process.stdout.readline())
    process.kill()
    process.wait()
    assert wait_until(lambda: not is_alive(grandchild))


def test_a_program_is_limited_too(tmp_path: Path) -> None:
    (tmp_path / "given").write_text("words")
    limits = ChildLimits(20, memory_gib=1.0)
    code = run_program(["cat"], limits, tmp_path, environment={}, given="given")
    assert (code, (tmp_path / "stdout").read_text()) == (0, "words")
    slow = ChildLimits(0.2)
    assert run_program(["sleep", "20"], slow, tmp_path, environment={}) is None


def test_every_part_that_the_environment_may_name_is_in_the_table() -> None:
    assert set(start.PARTS) == set(get_args(PartName))
    for name in start.PARTS.values():
        module, _, function = name.partition(":")
        code = f"import {module}; assert callable({module}.{function})"
        subprocess.run([sys.executable, "-c", code], check=True)
