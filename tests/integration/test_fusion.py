"""The fusion ledger beside torch's own log of the same run, and torch's own reasons."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from inductoscope.analysis.fusion import LedgerRow, ledger
from inductoscope.model.entities import Recording
from inductoscope.model.fold import load
from inductoscope.torch_facts.fusion_reasons import REASONS, explain_reason
from support.examples import inductoscope
from support.programs import QUICK_PYTHON, Outcome, Workplace

# Vertical, horizontal and reduction fusions, and refusals of several kinds, in one graph.
EVERY_KIND = """
import contextlib
import torch, torch._inductor.config as config

config.cpp.max_horizontal_fusion_size = 3

def several(x, y, weight, scale):
    a = torch.relu(x) + 1
    b = a * y
    soft = torch.softmax(b @ weight, dim=-1)
    shifted = b.flip(0) + y
    beside = [(x * n).sin() for n in range(2, 7)]
    scaled = weight * scale, y[:8] * scale
    part = y[:8] * 3
    both = part, torch.cat([part, y[:4]])
    sums = b.sum(-1), a.sum(0)
    return *sums, soft, x.t().contiguous(), shifted, *beside, *scaled, *both
"""

ON_THE_CPU = """
if __name__ == "__main__":
    torch.manual_seed(0)
    torch.compile(several)(
        torch.randn(64, 128), torch.randn(64, 128), torch.randn(128, 32), torch.randn(1)
    )
"""

ON_NO_GPU = """
from support import virtual_gpu
virtual_gpu.install()

class Enough(BaseException):
    pass

def stop(nodes):
    raise Enough  # Everything is fused: no kernel needs to be compiled for it.

config._post_fusion_custom_pass = stop
with virtual_gpu.tensors(), contextlib.suppress(Enough):
    shapes = ((64, 128), (64, 128), (128, 32), (1,))
    torch.compile(several)(*(virtual_gpu.tensor(*s, dtype=torch.float32) for s in shapes))
"""


@dataclass(frozen=True)
class Run:
    """A recording, and what torch itself logged of the same run."""

    path: Path
    log: str

    @property
    def recording(self) -> Recording:
        return load(self.path)


def recorded(folder: Path, program: str, **more: str) -> Run:
    folder.mkdir()
    workplace = Workplace(folder, folder / "cache")
    workplace.write("several.py", program)
    outcome: Outcome = workplace.run(
        "several.py", TORCH_LOGS="+fusion", TORCHINDUCTOR_VEC_ISA_OK="1", **more
    )
    assert outcome.exit_code == 0, outcome.stderr[-3000:]
    return Run(outcome.recording_path, outcome.stderr)


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return recorded(tmp_path_factory.mktemp("runs") / "cpu", EVERY_KIND + ON_THE_CPU)


@pytest.fixture(scope="module")
def on_no_gpu(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Triton kernels for a GPU that is not there: only their text is needed."""
    pytest.importorskip("triton")
    program = f"from support import virtual_gpu\n{EVERY_KIND}{ON_NO_GPU}"
    folder = tmp_path_factory.mktemp("runs") / "gpu"
    return recorded(
        folder, program, PYTHONPATH=f"{Path(__file__).parents[1]}{os.pathsep}{QUICK_PYTHON}"
    )


@pytest.fixture(params=["on_cpu", "on_no_gpu"])
def run(request: pytest.FixtureRequest) -> Run:
    found: Run = request.getfixturevalue(request.param)
    return found


# --- the ledger beside torch's own log ------------------------------------------------------------


@dataclass(frozen=True)
class Logged:
    """A line of TORCH_LOGS=+fusion: 'cannot fuse A with B: reason', or 'fusing A with B'."""

    round: int
    first: str
    second: str
    reason: str


def logged(text: str) -> Iterator[Logged]:
    round_ = 0
    for line in text.splitlines():
        said = line.partition("[__fusion] ")[2]
        round_ += said.startswith("fuse_nodes_once, candidates")
        if found := re.match(r"cannot fuse (\S+) with (\S+): (.*)", said):
            yield Logged(round_, *found.groups())
        elif found := re.match(r"fusing (\S+) with (\S+)$", said):
            yield Logged(round_, *found.groups(), reason="")


def test_the_ledger_says_of_every_pair_what_torchs_own_log_says(run: Run) -> None:
    lines = set(logged(run.log))
    rows = ledger(run.recording)
    items = [item for row in rows for item in row.considered]

    ours = {Logged(i.round, i.first, i.second, "") for i in items if i.outcome == "fused"}
    ours |= {
        Logged(i.round, i.first, i.second, reason)
        for i in items
        for reason in i.torch.split("; ")
        if reason
    }

    assert {line.reason for line in lines} >= {"", "no shared data"}
    assert ours == lines


def test_the_outcome_of_every_pair_follows_from_torchs_own_log(run: Run) -> None:
    """Two nodes are fused if and only if the log's 'fusing' lines put them into one group."""
    group: dict[str, set[str]] = {}
    for line in logged(run.log):
        if not line.reason:
            members = {*line.first.split("_"), *line.second.split("_")}
            for name in members:
                group[name] = members
    for row in ledger(run.recording):
        together = row.second in group.get(row.first, ())
        assert (row.outcome == "fused") == together, row


def test_every_kind_of_outcome_is_there(on_cpu: Run) -> None:
    rows = ledger(on_cpu.recording)
    fused = {row.kind for row in rows if row.outcome == "fused"}
    refused = {row.condition for row in rows if row.outcome == "refused"}
    assert fused >= {"vertical", "horizontal", "vertical reduction"}
    assert refused >= {
        "no shared data: another order",
        "memory deps did not match",
        "score_fusion_memory_threshold",
        "different loops",
        "cpp.max_horizontal_fusion_size",
    }
    never = {row.condition for row in rows if row.outcome == "never tried"}
    assert never == {"library call", "no kernel"}
    assert {row.confidence for row in rows} == {"proven"}


def row_of(rows: Iterable[LedgerRow], label: str) -> LedgerRow:
    return next(row for row in rows if row.condition == label)


def test_a_refusal_comes_with_the_values_that_decided(on_cpu: Run) -> None:
    rows = ledger(on_cpu.recording)
    flipped = row_of(rows, "memory deps did not match")
    assert flipped.torch == flipped.condition
    assert any(re.search(r"writes buf\d+\[", value) for value in flipped.values)
    assert any(re.search(r"reads buf\d+\[.*8064", value) for value in flipped.values)
    tiny = row_of(rows, "score_fusion_memory_threshold")
    assert "shared 4 bytes, score_fusion_memory_threshold 10" in tiny.values


def test_a_refusal_without_a_word_of_torch_is_told_from_what_torch_looked_at(on_cpu: Run) -> None:
    rows = ledger(on_cpu.recording)
    many = row_of(rows, "cpp.max_horizontal_fusion_size")
    assert many.torch == ""
    assert "3 + 3 operations" in many.reason
    assert "at most 3" in many.reason
    assert many.tries == ({"cpp.max_horizontal_fusion_size": 1024},)
    loops = row_of(rows, "different loops")
    assert loops.reason == (
        "Their loops differ. The first runs over 8192; the second over 64 x 128, reducing 128."
    )


def test_nodes_that_came_together_by_way_of_a_group_say_which(on_cpu: Run) -> None:
    rows = [row for row in ledger(on_cpu.recording) if "through the group" in row.reason]
    assert rows
    for row in rows:
        assert row.first not in row.reason.split(" ") or row.second not in row.reason.split(" ")
        assert len({*row.groups}) == 1


def test_what_might_help_is_tried_and_the_result_is_proven(on_cpu: Run) -> None:
    """The graph is compiled again: once as it was, once with the limit lifted."""
    row = row_of(ledger(on_cpu.recording), "cpp.max_horizontal_fusion_size")
    found = inductoscope("fusion", on_cpu.path, "--why", row.first, row.second, "--try", "--quiet")
    assert found.exit_code == 0
    assert "Tried by recompiling the graph (nothing was run or timed)" in found.stdout
    assert "Proven: with cpp.max_horizontal_fusion_size=1024 torch fuses the two." in found.words


# --- torch's reasons ------------------------------------------------------------------------------


def reasons_in_torch() -> Iterator[str]:
    """Every reason in the installed torch's source: read, not imported."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "_inductor"
    for path in (folder / "scheduler.py", folder / "choices.py", *(folder / "codegen").rglob("*")):
        text = path.read_text("utf-8") if path.suffix == ".py" else ""
        if "WhyNoFuse" in text:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and gives_reason(node.func) and node.args:
                    yield as_said(node.args[0])


def gives_reason(function: ast.expr) -> bool:
    """`why(...)`, or `WhyNoFuse(a, b)(...)`."""
    if isinstance(function, ast.Call):
        return isinstance(function.func, ast.Name) and function.func.id.startswith("WhyNoFuse")
    return isinstance(function, ast.Name) and function.id == "why"


def as_said(text: ast.expr) -> str:
    parts = text.values if isinstance(text, ast.JoinedStr) else [text]
    words = [str(part.value) if isinstance(part, ast.Constant) else "64" for part in parts]
    return "".join(words).replace("%s", "64")


def test_every_reason_of_the_installed_torch_is_explained() -> None:
    found = set(reasons_in_torch())
    assert len(found) > 50
    assert [reason for reason in found if not explain_reason(reason).words] == []


def test_a_reason_that_is_not_known_is_left_as_it_is() -> None:
    assert explain_reason("the moon is full").words == ""
    assert explain_reason("numel/rnumel mismatch (reduce) (" + ", " * 10_000).words == ""


def test_numbers_in_a_reason_go_into_the_words() -> None:
    found = explain_reason("numel/rnumel mismatch (non-reduce) (64, 128), (1, 1)")
    assert "computes 64 elements, the second 128" in found.words
    assert found.label == "numel/rnumel mismatch"


def test_every_reason_says_what_to_do_or_that_nothing_can_be_done() -> None:
    silent = [reason.pattern for reason in REASONS if not reason.change]
    assert silent == ["node1 must go before node2"]
