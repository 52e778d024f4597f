"""Loop bodies that need no proof: what a look says, the proof says too."""

from __future__ import annotations

import pytest

from inductoscope.analysis.bounds.accesses import PointBudget
from inductoscope.analysis.bounds.kernels import (
    JudgedGraph,
    PlainBody,
    fits_plainly,
    read_plain_body,
    stays_plainly_inside,
)
from inductoscope.analysis.bounds.verdicts import Proven
from inductoscope.model.fold import load
from inductoscope.model.memory import GraphMemory, Room, read_memory
from inductoscope.model.schedule import read_schedule
from inductoscope.torch_facts.triton_indices import LARGEST_NARROW
from support.examples import NAMES, stored

BODY = """\
var_ranges = {p0: 8, p1: 4}
index0 = 4*p0 + p1
index1 = p0
def body(self, ops):
    get_index = self.get_index('index0')
    load = ops.load('arg0_1', get_index)
    get_index_1 = self.get_index('index1')
    store = ops.store('buf0', get_index_1, load, None)
    return store"""


def _memory(**sizes: tuple[str, ...]) -> GraphMemory:
    strides = {1: ("1",), 2: ("4", "1")}
    return GraphMemory({name: Room(size, strides[len(size)]) for name, size in sizes.items()})


def test_a_plain_body_is_read_without_a_syntax_tree() -> None:
    found = read_plain_body(BODY)
    assert found == PlainBody(points=32, largest={"arg0_1": 31, "buf0": 7})


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("p0: 8", "p0: s0"),
        ("p0: 8", "p0: 0"),
        ("4*p0 + p1", "4*p0 - p1"),
        ("4*p0 + p1", "ModularIndexing(p0, 1, 4)"),
        ("4*p0 + p1", "4*p0 + indirect0"),
        ("4*p0 + p1", "s0*p0 + p1"),
        ("load, None)", "load, None)\n    set_indirect0 = self.set_indirect0(load)"),
        ("    return", "    b = ops.bucketize(load, ('arg1_1', 4, 0, 1), 0)\n    return"),
        ("    return", "    m = ops.masked(load, self.masked_subblock1, 0.0)\n    return"),
        ("    return store", "    return store\ndef masked_subblock1(self, ops):\n    return 1"),
        ("'index1')", "'index9')"),
    ],
)
def test_what_takes_more_than_a_look_is_left_to_the_proof(written: str, instead: str) -> None:
    assert written in BODY
    assert read_plain_body(BODY.replace(written, instead)) is None


def test_a_body_that_leaves_its_buffer_is_not_plainly_inside() -> None:
    assert stays_plainly_inside(BODY, _memory(arg0_1=("8", "4"), buf0=("8",)))
    for memory in (
        _memory(arg0_1=("8", "4"), buf0=("7",)),
        _memory(arg0_1=("7", "4"), buf0=("8",)),
        _memory(arg0_1=("s0", "4"), buf0=("8",)),
        _memory(arg0_1=("8", "4")),
    ):
        assert not stays_plainly_inside(BODY, memory)
    shifted = BODY.replace("4*p0 + p1", "4*p0 + p1 + 1")
    assert not stays_plainly_inside(shifted, _memory(arg0_1=("8", "4"), buf0=("8",)))


def test_an_index_beyond_the_type_does_not_fit_plainly() -> None:
    assert fits_plainly([BODY], 32)
    assert not fits_plainly([BODY], 31)
    wide = BODY.replace("4*p0", "4000000000*p0")
    assert not fits_plainly([wide], LARGEST_NARROW)


# How many accesses of each recording a look settles; the others have symbols, or no bodies.
PLAIN_ACCESSES = {
    "exported_package": 3,
    "graph_breaks": 8,
    "h200_autotune": 2,
    "h200_seed": 20,
    "profiled_layers": 63,
    "refused_by_compiler": 2,
    "relu_add_sum": 2,
    "training_step": 55,
}


@pytest.mark.parametrize("name", NAMES)
def test_the_proof_agrees_about_every_recorded_body(name: str) -> None:
    recording = load(stored(name))
    judged_plainly = 0
    for compile_ in recording.compiles:
        for graph in compile_.inductor:
            memory = read_memory(recording, compile_, graph)
            judged = JudgedGraph(recording, compile_, graph, PointBudget(0))
            scheduled = read_schedule(recording, graph.scheduled_after or graph.scheduled_before)
            plain = {
                leaf.name
                for node in scheduled
                for leaf in node.leaves
                if leaf.body and stays_plainly_inside(recording.payload(leaf.body), memory)
            }
            found = [access for access in judged.accesses if access.node in plain]
            assert all(isinstance(access.verdict, Proven) for access in found), name
            judged_plainly += len(found)
    assert judged_plainly == PLAIN_ACCESSES.get(name, 0)
