"""Running a graph at a size that breaks it: which errors show a fault."""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.inside.search.size_trial_child import WatchedCompiler, what_was_raised
from inductoscope.model.fold import load
from inductoscope.targets.work_list import captured_graphs
from support.examples import stored


def failing_compiler() -> None:
    """Stands for Inductor where a graph has no lowering."""
    raise NotImplementedError("no lowering")


def test_an_error_of_a_kernel_shows_a_fault(snapshot: SnapshotAssertion) -> None:
    text, fails = what_was_raised(IndexError("out of bounds"), WatchedCompiler(failing_compiler))
    assert fails
    assert text == snapshot


def test_a_backward_that_cannot_be_compiled_shows_none(snapshot: SnapshotAssertion) -> None:
    compiler = WatchedCompiler(failing_compiler)
    with pytest.raises(NotImplementedError) as raised:
        compiler()
    text, fails = what_was_raised(raised.value, compiler)
    assert not fails
    assert text == snapshot


def test_an_exported_program_can_be_tried_though_dynamo_captured_nothing() -> None:
    recording = load(stored("exported_package"))
    assert list(captured_graphs(recording)) == []
    (order,) = captured_graphs(recording, exported=True)
    assert (order.compile, order.learns) == ("aoti/0", False)
    shapes = [
        node["value"]["shape"] for node in order.graph["nodes"] if node["op"] == "placeholder"
    ]
    assert shapes == [["s77", 16]]
