"""Claims of the summary, held against what torch itself logs about the same run."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from support.programs import Workplace

PROGRAM = """
import sys, torch

@torch.compile
def step(x, w):
    y = torch.relu(x @ w)
    print("a break")
    return torch.softmax(y, -1).sum()

for size in (8, 8, 12):
    step(torch.ones(size, 8, requires_grad=True), torch.ones(8, 8)).backward()
counted = torch._dynamo.utils.counters["graph_break"]
print("graph breaks:", sum(counted.values()), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """The summary of a run as data, and torch's log of the same run."""
    folder = tmp_path_factory.mktemp("claims")
    workplace = Workplace(folder, folder / "cache")
    workplace.write("claims.py", PROGRAM)
    done = workplace.run(
        "claims.py",
        options=("--fresh", "--json", "summary.json"),
        TORCH_LOGS="recompiles,output_code",
    )
    assert done.exit_code == 0, done.stderr
    return json.loads((workplace.folder / "summary.json").read_text()), done.stderr


@pytest.mark.parametrize(
    ("claim", "logged"),
    [
        ("graphs", r"\[__output_code\] Output code: *$"),
        ("recompiles", r"\[__recompiles\] Recompiling function"),
        ("kernel_calls", r"\[__output_code\] +(?:cpp|triton)_\w+\("),
        ("library_calls", r"\[__output_code\] .*(?:extern_kernels|torch\.ops)\.[\w.]+\("),
    ],
)
def test_a_count_of_the_summary_is_torchs_own(
    told: tuple[dict[str, Any], str], claim: str, logged: str
) -> None:
    summary, log = told
    found = len(re.findall(logged, log, re.MULTILINE))
    assert found, "the log has none of it, so it proves nothing"
    assert summary["totals"][claim] == found


def test_graph_breaks_are_those_that_torch_counts(told: tuple[dict[str, Any], str]) -> None:
    """In the log, a line that breaks the graph again is not repeated."""
    summary, log = told
    counted = re.search(r"^graph breaks: (\d+)$", log, re.MULTILINE)
    assert counted
    assert summary["totals"]["graph_breaks"] == int(counted[1]) > 0


def test_the_kernels_of_the_summary_are_those_that_torch_defines(
    told: tuple[dict[str, Any], str],
) -> None:
    summary, log = told
    defined = re.findall(r"\[__output_code\] (\w+) = async_compile\.cpp", log)
    assert summary["totals"]["kernels"] == {"C++": len(defined)}
