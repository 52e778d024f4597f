"""Real compiles: healthy kernels are never accused, planted faults are found, with a size."""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from pathlib import Path

from inductoscope.analysis.bounds.kernels import judge_recording
from inductoscope.analysis.bounds.verdicts import Broken
from inductoscope.analysis.rules import diagnose
from support.examples import stored
from support.json_schema import violations
from support.programs import QUICK_PYTHON, Workplace

# Kernels are written, not compiled: what is judged are loop bodies, and this takes seconds.
HEALTHY = """
import sys
import torch, torch.nn.functional as F
from torch._functorch import config
from inductoscope.inside.recompiling import write_cpp_only

write_cpp_only()
config.force_non_lazy_backward_lowering = True
image, table = (lambda n: torch.randn(2, 3, n, n)), (lambda n: torch.randn(7, n))
PROGRAMS = {
    "pad": (lambda x: F.pad(x, (1, 2, 3, 0)) + 1, image),
    "cat": (lambda x: torch.cat([x + 1, x[:3] * 2, x], 0).sin(), table),
    "pooling": (lambda x: F.max_pool2d(x, 3, 2, 1) + 1, image),
    "embedding": (lambda x: F.embedding(torch.arange(5) % 7, x) + x[x[0].argmax() % 2], table),
    "slice_scatter": (lambda x: torch.slice_scatter(x, x[1:-1] * 2, 0, 1, -1), table),
    "upsample": (lambda x: F.interpolate(x, scale_factor=2.0) + 1, image),
    "views": (lambda x: x.view(-1, 2, x.shape[1] // 2).transpose(1, 2).reshape(-1) + 1,
              lambda n: torch.randn(4, 2 * n)),
}
for name, (function, make) in PROGRAMS.items():
    for dynamic in (False, True):
        torch._dynamo.reset()
        try:
            torch.compile(function, dynamic=dynamic)(make(8).requires_grad_())
        except RuntimeError as error:
            assert "generated and not compiled" in str(error), (name, error)
print("compiled", len(PROGRAMS))
"""

# Reads elements in pairs, and takes them apart again: right for even sizes. Of an odd size, the
# last pair has an element that is not there.
IN_PAIRS = """
import torch
from torch._inductor import ir

def relu(x):
    load, ops = x.make_loader(), m.ops

    def body(index):
        first = 2 * (index[-1] // 2)
        one, two = load([*index[:-1], first]), load([*index[:-1], first + 1])
        half = ops.constant(0.5, torch.float32)
        middle, apart = ops.mul(ops.add(one, two), half), ops.mul(ops.sub(one, two), half)
        zero = ops.constant(0, torch.int64)
        is_first = ops.eq(ops.index_expr(index[-1] - first, torch.int64), zero)
        return ops.relu(ops.where(is_first, ops.add(middle, apart), ops.sub(middle, apart)))

    size = list(x.get_size())
    return ir.Pointwise.create(
        device=x.get_device(), dtype=x.get_dtype(), inner_fn=body, ranges=size
    )

m.lowerings[torch.ops.aten.relu.default] = relu
"""
RELU = """
import torch

@torch.compile(dynamic=True)
def activate(x):
    return torch.relu(x) + 1

activate(torch.ones(3, 8))
"""


def test_healthy_operators_are_proven_and_never_accused(workplace: Workplace) -> None:
    script = workplace.write("healthy.py", HEALTHY)
    done = workplace.run(str(script))
    assert re.search(r"compiled \d+", done.stdout), done.stderr
    kinds = Counter(
        access.verdict.kind
        for graph in judge_recording(done.recording)
        for access in graph.accesses
    )
    assert kinds["broken"] == 0
    assert kinds["data-dependent"] > 0
    assert kinds["proven"] >= 0.95 * (kinds["proven"] + kinds["out-of-reach"])
    assert kinds["proven"] > 100


def test_an_error_at_odd_sizes_is_found_by_an_even_run_and_shown_by_running_it(
    workplace: Workplace,
) -> None:
    """The run itself is right. `--try` calls the graph with an odd size: NaN from outside."""
    planted = workplace.plant("torch._inductor.lowering", IN_PAIRS)
    run = workplace.run(str(workplace.write("relu.py", RELU)), **planted)
    assert run.exit_code == 0
    assert "reads outside" in run.stderr
    words = [sys.executable, "-m", "inductoscope", "bounds", str(run.recording_path), "--try"]
    done = workplace.call([*words, "--json", "-"], **planted)
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert violations("bounds", found) == []
    broken = [a for g in found["graphs"] for a in g["accesses"] if a["verdict"] == "broken"]
    assert "relu" in broken[0]["origins"]
    details = broken[0]["details"]
    assert details["position"] == details["end"]
    assert any(size % 2 for size in details["sizes"].values())
    (trial,) = found["trials"]
    assert trial["fails"], trial["text"]
    assert "nan" in trial["text"]


# One line of a lowering that goes wrong by one, in four ways, for one size and for all of them.
PLANTED = """
import torch
from torch._inductor import ir, lowering
from torch._inductor.lowering import ops
from inductoscope.inside.recompiling import write_cpp_only

write_cpp_only()
torch._inductor.config.force_disable_caches = True  # The graph is the same every time.

def in_row(x, place):
    row = ops.index_expr(place, torch.int64)
    return ops.lt(row, ops.index_expr(x.get_size()[-1], torch.int64))

FAULTS = {
    "too_far": lambda x, load, i: load([i[0], i[1] + 1]),
    "too_early": lambda x, load, i: load([i[0], i[1] - 1]),
    "row_too_far": lambda x, load, i: load([i[0] + 1, i[1]]),
    "mask_too_wide": lambda x, load, i: ops.masked(
        in_row(x, i[1]), lambda: load([i[0], i[1] + 1]), 0.0
    ),
}
for name, fault in FAULTS.items():
    def relu(x):
        load, body = x.make_loader(), fault
        return ir.Pointwise.create(
            device=x.get_device(), dtype=x.get_dtype(), ranges=list(x.get_size()),
            inner_fn=lambda index: body(x, load, index),
        )

    lowering.lowerings[torch.ops.aten.relu.default] = relu
    for dynamic in (False, True):
        torch._dynamo.reset()
        def function(x):
            return torch.relu(x) * 2
        function.__code__ = function.__code__.replace(co_name=name)
        try:
            torch.compile(function, dynamic=dynamic)(torch.ones(5, 8))
        except RuntimeError as error:
            assert "generated and not compiled" in str(error), error
"""


def test_every_planted_off_by_one_is_found(workplace: Workplace) -> None:
    run = workplace.run(str(workplace.write("planted.py", PLANTED)))
    assert run.exit_code == 0, run.stderr
    broken = Counter(
        graph.compile.function
        for graph in judge_recording(run.recording)
        for access in graph.accesses
        if isinstance(access.verdict, Broken)
    )
    assert broken == dict.fromkeys(("too_far", "too_early", "row_too_far", "mask_too_wide"), 2)
    found = [f for f in diagnose(run.recording) if f.rule == "out_of_bounds"]
    assert all("reads outside arg" in finding.title for finding in found)
    assert sum("size()" in finding.title for finding in found) == 4


# A GPU that is not there. The second function is compiled where torch always takes 32 bits, and
# adds no guard.
NARROW_INDICES = """
from support import virtual_gpu
import torch

virtual_gpu.install(precompiles=False)
from torch._inductor.codegen.simd import SIMDScheduling

def healthy(x):
    return x.flip(-1) * 2 + x.sum()

def planted(x):
    return x.flip(-1) * 2 + x.sum() + 1

with virtual_gpu.tensors():
    torch.compile(healthy, dynamic=True)(virtual_gpu.tensor(30, 40))
    SIMDScheduling.can_use_32bit_indexing = staticmethod(lambda numel, buffers: True)
    torch.compile(planted, dynamic=True)(virtual_gpu.tensor(30, 40))
"""


def test_indices_of_32_bits_that_no_guard_protects_are_found(workplace: Workplace) -> None:
    script = workplace.write("narrow.py", NARROW_INDICES)
    search = os.pathsep.join([str(Path(__file__).parents[1]), str(QUICK_PYTHON)])
    run = workplace.run(str(script), PYTHONPATH=search)
    assert run.exit_code == 0, run.stderr
    found = {
        (graph.compile.function, kernel.verdict.kind)
        for graph in judge_recording(run.recording)
        for kernel in graph.index_types
    }
    assert found == {("healthy", "proven"), ("planted", "broken")}
    findings = [f for f in diagnose(run.recording) if f.rule == "index_overflow"]
    assert findings
    assert all("do not fit into 32 bits" in finding.title for finding in findings)
    assert all("and the guards admit that" in finding.evidence[0] for finding in findings)


# Wrong for 17 rows, and for no other number of them.
WRONG_AT_17 = """
import torch
from torch._inductor import ir

def relu(x):
    load, ops, size = x.make_loader(), m.ops, list(x.get_size())

    def body(index):
        rows = ops.index_expr(size[0], torch.int64)
        is_17 = ops.eq(rows, ops.constant(17, torch.int64))
        one = ops.constant(1.0, torch.float32)
        value = ops.relu(load(index))
        return ops.where(is_17, ops.add(value, one), value)

    return ir.Pointwise.create(
        device=x.get_device(), dtype=x.get_dtype(), inner_fn=body, ranges=size
    )

m.lowerings[torch.ops.aten.relu.default] = relu
"""


def test_a_program_that_is_wrong_at_one_size_only(workplace: Workplace) -> None:
    """It was exported for 2 to 64 rows. Those that are tried before 17 are right."""
    planted = workplace.plant("torch._inductor.lowering", WRONG_AT_17)
    words = [sys.executable, "-m", "inductoscope", "bounds", str(stored("exported_package"))]
    done = workplace.call([*words, "--sizes", "--json", "-"], **planted)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert violations("bounds", found) == []
    (trial,) = found["trials"]
    assert trial["fails"]
    assert trial["sizes"] == {"s77": 17}
    assert "= 17, one more than 16, where vectors and tiles end (2 to 64): " in trial["text"]
    assert "differs from eager" in trial["text"]
