"""Values computed from indices: in which type, how large, and whether they fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.analysis.rules.finding import Finding
from inductoscope.analysis.rules.wrong_indices import narrow_value
from inductoscope.model.fold import load
from inductoscope.torch_facts.triton_indices import kernel_integers
from support.examples import NAMES, stored, write_recording

HEAD = """
@triton_heuristics.pointwise(
    triton_meta={'signature': {'out_ptr0': '*i64', 'xnumel': 'i32', 'r0_numel': 'i32',
                               'XBLOCK': 'constexpr'}},
)
@triton.jit"""
KERNEL = (
    HEAD
    + """
def triton_poi_fused_arange_mul_0(out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xnumel = 11
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
    {line}
    tl.store(out_ptr0 + (x0), tmp0, xmask)
"""
)
WIDE_INDEX = KERNEL.replace("[:]", "[:].to(tl.int64)")

BODY = """var_ranges = {{p0: 11}}
index0 = 1000000000*p0
index1 = p0
def body(self, ops):
    get_index = self.get_index('index0')
    index_expr = ops.index_expr(get_index, torch.{dtype})
    get_index_1 = self.get_index('index1')
    store = ops.store('buf0', get_index_1, index_expr, None)
    return store"""


def planted(
    folder: Path, line: str, *, kernel: str = KERNEL, asked: str = "int64", made: str = "int64"
) -> list[Finding]:
    """Findings in a recording whose one kernel has `line` for the loop body's index_expr."""
    graph, body, source, nodes = (f"{n:032x}" for n in range(4))
    value = {"shape": [11], "dtype": f"torch.{made}", "device": "cuda:0", "stride": [1]}
    leaf = {"name": "op0", "class": "SchedulerNode", "origins": ["mul"], "body": body}
    lines = [
        ["op0", "index_expr", line],
        ["op0", "store", "tl.store(out_ptr0 + (x0), tmp0, xmask)"],
    ]
    about: dict[str, Any] = {"compile": "0/0", "graph": "0/0 inference"}
    path = write_recording(
        folder,
        {"kind": "compile-start", "compile": "0/0", "function": "f", "file": "m.py", "line": 1},
        {"kind": "inductor-start", "phase": "inference", **about},
        {"kind": "graph", "stage": "post-grad", "payload": graph, **about},
        {"kind": "scheduler", "when": "after", "payload": nodes, **about},
        {
            "kind": "kernel",
            "name": "triton_poi_fused_arange_mul_0",
            "language": "Triton",
            "payload": source,
            "nodes": ["op0"],
            "lines": lines,
            **about,
        },
        payloads={
            graph: {"nodes": [{"name": "mul", "op": "call_function", "value": value}]},
            body: BODY.format(dtype=asked),
            source: kernel.replace("{line}", line),
            nodes: [leaf],
        },
    )
    return list(narrow_value(load(path)))


# As torch 2.11 writes it, and as 2.13 does: the cast comes when the product has wrapped already.
@pytest.mark.parametrize("line", ["tmp0 = 1000000000*x0", "tmp0 = (1000000000*x0).to(tl.int64)"])
def test_a_product_beyond_32_bits_is_found(
    tmp_path: Path, line: str, snapshot: SnapshotAssertion
) -> None:
    (finding,) = planted(tmp_path / "recording", line)
    assert finding.confidence == "proven"
    assert finding.title == snapshot
    assert line in finding.evidence[0]
    assert "the loop body asks for int64" in finding.evidence[1]
    assert "constant_and_index_propagation" in finding.advice


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("tmp0 = 1000000000*x0.to(tl.int64)", {}),  # cast first
        ("tmp0 = 1000000000*x0", {"kernel": WIDE_INDEX}),  # 64-bit indices
        ("tmp0 = 200000000*x0", {}),  # 2,000,000,000 fits
        ("tmp0 = 1000000000*x0", {"asked": "int32"}),  # eager wraps too
        ("tmp0 = 1000000000*x7", {}),  # nothing is known of x7
        ("tmp0 = 10000000000*x0", {}),  # a factor beyond 32 bits makes all of it 64
        ("tmp0 = 1000000000*x0", {"asked": "float32", "made": "int32"}),
    ],
)
def test_nothing_is_said_where_it_fits_or_is_not_known(
    tmp_path: Path, line: str, options: dict[str, str]
) -> None:
    assert planted(tmp_path / "recording", line, **options) == []


def test_an_index_that_goes_into_a_float_is_likely(tmp_path: Path) -> None:
    line = "tmp0 = (1000000000*x0).to(tl.float32)"
    (finding,) = planted(tmp_path / "recording", line, asked="float32")
    assert finding.confidence == "likely"


@pytest.mark.parametrize("name", NAMES)
def test_real_recordings_are_silent(name: str) -> None:
    assert list(narrow_value(load(stored(name)))) == []


def test_ranges_follow_how_indices_are_split() -> None:
    indices = kernel_integers(
        f"{HEAD}\ndef kernel(out_ptr0, xnumel, r0_numel, XBLOCK : tl.constexpr):\n"
        "    xnumel = 3500000\n    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]\n"
        "    x0 = (xindex % 5000)\n    x1 = xindex // 5000\n"
        "    r0_numel = 8\n    r0_index = tl.arange(0, 8)[None, :] + r0_offset\n"
    )
    assert indices is not None
    found = [indices.known[name].ends for name in ("x0", "x1", "r0_index")]
    assert found == [(0, 4999), (0, 699), (0, 7)]
    assert list(indices.wraps("tmp0 = x0*x1")) == []
    (wrap,) = indices.wraps("tmp0 = tl.load(in_ptr0 + ((x0*x1*1000) % 7), None)")
    assert (wrap.text, wrap.high, wrap.is_exact) == ("x0 * x1 * 1000", 3494301000, True)
    (wrap,) = indices.wraps("tmp0 = x0*x0*x0")
    assert not wrap.is_exact
