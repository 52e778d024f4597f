"""`inductoscope run` on programs that raise: the first line says what happened, and where."""

from __future__ import annotations

import pytest

from inductoscope.analysis.rules import diagnose
from support.programs import Workplace

pytestmark = [pytest.mark.spread, pytest.mark.usefixtures("python_as_it_is")]

# A custom operator promises as many values as it is given, and returns half of them.
WRONG_PROMISE = """
import sys, threading, torch
print(sys.excepthook is sys.__excepthook__, flush=True)

def load():
    raise KeyError("no such file")

loader = threading.Thread(target=load, name="loader")
loader.start(); loader.join()

@torch.library.custom_op("my::half", mutates_args=())
def half(x: torch.Tensor) -> torch.Tensor:
    return x[: x.shape[0] // 2].clone()

@half.register_fake
def _(x):
    return torch.empty_like(x)

@torch.compile
def f(x):
    y = x.sin()
    return half(y) + 1

f(torch.ones(8))
"""


def test_a_wrong_fake_kernel_fails_inside_the_compiled_graph(workplace: Workplace) -> None:
    workplace.write("train.py", WRONG_PROMISE)
    plain, outcome = workplace.run_plain("train.py"), workplace.run("train.py")

    assert outcome.exit_code == plain.exit_code == 1
    assert outcome.stdout == plain.stdout == "True\n"
    assert outcome.program_stderr.count("Traceback") == plain.stderr.count("Traceback") == 2
    said = " ".join(outcome.stderr.partition("inductoscope: ")[2].split())
    assert said.startswith(
        "the program failed with AssertionError inside compiled graph 0/0 (train.py:22) "
        "ended with exit code 1"
    )
    assert "no problem found" not in said
    titles = [finding.title for finding in diagnose(outcome.recording)]
    assert "Thread loader of the program failed with KeyError at train.py:6, outside" in titles[1]
