"""Answers while the user still watches: what is told, and when, during one examination."""

from __future__ import annotations

import itertools
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from support.programs import ONE_PROOF, TOOL, Workplace

pytestmark = pytest.mark.spread

PROGRAM = """
import sys, torch

@torch.compile
def scaled(x):
    return torch.tanh(x * 2.0) + 1.0

x = torch.randn(4, 16)
sys.exit(0 if torch.allclose(scaled(x), torch.tanh(x * 2.0) + 1.0) else 1)
"""
# The code that is generated for tanh computes something else.
WRONG_TANH = """
m.CppVecOverrides.tanh = staticmethod(lambda x: f"{x}.sin()")
m.CppOverrides.tanh = staticmethod(lambda x: f"std::sin({x})")
"""
# The same, but the kernel reads from an address at which there is nothing.
DEADLY_TANH = """
deadly = staticmethod(lambda x: f"({x} * decltype({x})(*(volatile float*)nullptr))")
m.CppVecOverrides.tanh = m.CppOverrides.tanh = deadly
"""
CPP = "torch._inductor.codegen.cpp"


def growing_file(path: Path, child: subprocess.Popen[bytes]) -> list[dict[str, Any]]:
    """Every state of a file, until a process ends."""
    seen: list[dict[str, Any]] = []
    while True:
        is_over = child.poll() is not None
        if path.exists():
            state = json.loads(path.read_text())  # Never half a file.
            if not seen or seen[-1] != state:
                seen.append(state)
        if is_over:
            return seen
        time.sleep(0.02)


def test_the_json_file_grows_with_what_is_known(workplace: Workplace) -> None:
    workplace.write("scaled.py", PROGRAM)
    workplace.plant(CPP, WRONG_TANH)
    command = [*TOOL, "doctor", "--output", "examination", "--json", "verdict.json", *ONE_PROOF]
    child = subprocess.Popen(
        [*command, "scaled.py"],
        cwd=workplace.folder,
        # Named from here, and found by the reproducer too, which runs in another folder.
        env=workplace.environment(PYTHONPATH="plant"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    *earlier, last = growing_file(workplace.folder / "verdict.json", child)
    assert all(state["partial"] for state in earlier)
    assert not last["partial"]
    assert earlier[0]["verdict"] == last["verdict"] == "wrong-result"
    # Each state knows all that the one before it knew, and more.
    known = [set(state["known"]) for state in (*earlier, last)]
    assert all(before <= after for before, after in itertools.pairwise(known))
    assert known[-1] == {"kind", "place", "graph", "proof", "workaround"}
    assert last["known"]["kind"] <= last["known"]["place"] <= last["known"]["proof"]
    # The culprit was there before there was a reproducer.
    first_place = next(state for state in earlier if "place" in state["known"])
    assert first_place["stage"] == last["stage"] == "codegen"
    assert first_place["culprit"]["kernel"] == "cpp_fused_add_mul_tanh_0"
    assert first_place["repro"] is None
    assert last["repro"]["verified"]
    # Of three operations in that kernel none is named before it is known to be wrong.
    named = [state["culprit"]["op"] for state in earlier if state["culprit"]["op"]]
    assert set(named) == {"aten.tanh.default"}


def test_quick_stops_at_the_culprit(workplace: Workplace) -> None:
    workplace.write("scaled.py", PROGRAM)
    planted = workplace.plant(CPP, WRONG_TANH)
    found = workplace.doctor("scaled.py", options=("--quick",), **planted)
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("wrong-result", "codegen")
    assert "tanh" in json.dumps(found.verdict["culprit"])
    assert (found.verdict["repro"], found.verdict["workaround"]) == (None, None)
    # No script has shown it without the tool.
    assert found.verdict["confidence"] == "likely"
    assert set(found.verdict["known"]) == {"kind", "place"}
    # So there is more to come, for whoever wants it.
    assert found.verdict["partial"]
    assert "To go on:" in found.stdout
    options = ("--resume", "examination", "--json", "verdict.json", "--no-workaround", *ONE_PROOF)
    workplace.call([*TOOL, "doctor", *options], **planted)
    verdict = json.loads((workplace.folder / "verdict.json").read_text())
    assert (verdict["stage"], verdict["partial"]) == ("codegen", False)
    assert verdict["repro"]["verified"]


def test_a_kernel_that_kills_the_program_takes_one_run_of_it(workplace: Workplace) -> None:
    workplace.write("scaled.py", PROGRAM)
    options = (*ONE_PROOF, "--no-workaround")
    found = workplace.doctor("scaled.py", options=options, **workplace.plant(CPP, DEADLY_TANH))
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("crash", "runtime")
    assert "tanh" in json.dumps(found.verdict["culprit"])
    assert found.verdict["repro"]["verified"]
    # It died in a fork, so that the program was still there to be examined.
    assert "running it again" not in found.stderr
    # Where the time went: the program's run, and steps in it.
    steps = {entry["step"] for entry in found.verdict["time"]}
    assert {"cutting the graph down", "writing the reproducer"} <= steps
    assert all(entry["seconds"] >= 0 for entry in found.verdict["time"])


def test_what_breaks_inside_the_tool_is_not_blamed_on_torch(workplace: Workplace) -> None:
    workplace.write("scaled.py", PROGRAM)
    planted = workplace.plant("inductoscope.inside.doctor.checked_graph", "raise ValueError('own')")
    found = workplace.doctor("scaled.py", **planted)
    assert found.verdict["verdict"] == "unknown"
    assert "fails only under inductoscope" in found.verdict["summary"]
    assert not any(found.verdict["culprit"].values())


def test_a_healthy_program_is_told_nothing_on_the_way(workplace: Workplace) -> None:
    workplace.write("scaled.py", PROGRAM)
    found = workplace.doctor("scaled.py")
    assert (found.verdict["verdict"], found.verdict["known"]) == ("clean", {})
    assert "→" not in found.stderr
