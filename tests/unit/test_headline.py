"""Which operation of a fused kernel a verdict names: all evidence votes."""

from __future__ import annotations

from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.doctor.failure import ERROR, WRONG, Failure, Location, SuppressingAxis
from inductoscope.doctor.finding import (
    PROGRAM,
    Claim,
    FailureFinding,
    ReplacedPart,
    ReplacedParts,
    Suppressed,
)
from inductoscope.doctor.judgement import headline_of, short
from support.findings import finding, verdict_on

# What a gelu is made of; the kernel's only buffer holds the result of the last.
GELU = ("aten.mul.Tensor", "aten.erf.default", "aten.add.Tensor", "aten.mul.Tensor")
LOWERING = SuppressingAxis("x", "lowering", "lowering to loops", "erf_1", names_operations=True)
VECTORS = SuppressingAxis("y", "codegen", "vectorisation of C++ loops", "a C++ kernel", rank=1)


def in_kernel(*facts: Any, alone: tuple[str, ...] = (), **more: Any) -> FailureFinding:
    place = Location(
        stage="codegen",
        operation=GELU[-1],
        kernel="cpp_fused_gelu_0",
        how="its loop body is right",
        names=GELU,
        wrong_alone=alone,
    )
    failure = Failure(WRONG, "output 0 is 1 at index [0], in eager 2", aspect="value")
    usual: dict[str, Any] = {"operations": ("aten.gelu.default",), "nodes": 1}
    return finding(failure, *facts, location=place, **{**usual, **more})


@pytest.mark.parametrize(
    "found",
    [
        in_kernel(alone=("aten.erf.default",)),
        in_kernel(Suppressed((VECTORS, LOWERING))),
        in_kernel(Suppressed((LOWERING,)), alone=("aten.erf.default",)),
        # The last operation of the kernel is an innocent neighbour of the one that is to blame.
        in_kernel(alone=("aten.erf.default",), operations=("aten.gelu.default", GELU[-1])),
    ],
    ids=["wrong on its own", "its lowering matters", "both", "a larger graph"],
)
def test_the_operation_that_matters_is_named_and_not_the_last_one(found: FailureFinding) -> None:
    verdict = verdict_on(found)
    assert headline_of(found).operation == "aten.erf.default"
    assert "because of aten.erf.default" in verdict.summary
    assert str(verdict.culprit.op).startswith("aten.erf.default")
    assert verdict.confidence == "proven"


def test_it_is_said_what_the_operation_is_a_part_of(snapshot: SnapshotAssertion) -> None:
    verdict = verdict_on(in_kernel(alone=("aten.erf.default",)))
    assert verdict.summary == snapshot
    assert verdict.culprit.op == "aten.erf.default, aten.gelu.default"
    said = [item["what"] for item in verdict.evidence]
    assert said == snapshot


@pytest.mark.parametrize(
    ("operation", "whose"),
    [
        ("aten.erf.default", ", whose lowering is the program's own, own_erf at /elsewhere/m.py:7"),
        ("aten.add.Tensor", ""),  # Not what is named.
    ],
)
def test_a_lowering_that_is_the_programs_own_is_called_so(operation: str, whose: str) -> None:
    part = ReplacedPart("lowering", operation, "own_erf (/elsewhere/m.py:7)")
    verdict = verdict_on(in_kernel(ReplacedParts((part,)), alone=("aten.erf.default",)))
    named = f"because of aten.erf.default in aten.gelu.default{whose} (stage codegen, kernel"
    assert named in verdict.summary
    said = [item["what"] for item in verdict.evidence]
    assert f"the lowering of {operation} in use is {part.function}, not torch's" in said


def test_without_more_evidence_the_smallest_graph_decides() -> None:
    found = in_kernel(Suppressed((VECTORS,)))
    assert headline_of(found).operation == "aten.gelu.default"
    assert verdict_on(found).culprit.op == "aten.gelu.default"


def test_where_nothing_decides_the_node_of_the_buffer_is_named() -> None:
    found = in_kernel(operations=("aten.exp.default", "aten.sub.Tensor", "aten.gelu.default"))
    assert headline_of(found).names == []
    assert verdict_on(found).culprit.op == "aten.mul.Tensor"


def test_of_a_kernel_in_the_whole_graph_no_operation_is_named_before_one_is_known() -> None:
    whole = in_kernel(operations=(), nodes=0, of=40, is_complete=False)
    culprit = verdict_on(whole).culprit
    assert (culprit.kernel, culprit.op) == ("cpp_fused_gelu_0", None)
    known = in_kernel(alone=("aten.erf.default",), operations=(), nodes=0, of=40)
    assert verdict_on(known).culprit.op == "aten.erf.default"


def test_evidence_that_does_not_agree_makes_the_verdict_less_sure() -> None:
    found = in_kernel(Suppressed((LOWERING,)), alone=("aten.add.Tensor",))
    headline, verdict = headline_of(found), verdict_on(found)
    assert (headline.operation, headline.rivals) == ("aten.add.Tensor", ("erf_1",))
    assert verdict.confidence == "likely"
    assert any("does not agree: it may as well be erf_1" in e["what"] for e in verdict.evidence)


def test_several_operations_that_are_wrong_share_a_vote() -> None:
    found = in_kernel(Suppressed((LOWERING,)), alone=("aten.add.Tensor", "aten.erf.default"))
    assert headline_of(found).operation == "aten.erf.default"
    assert headline_of(found).rivals == ()


def test_a_pass_is_named_as_before(snapshot: SnapshotAssertion) -> None:
    place = Location(stage="post-grad-pass", pass_name="fold", operation=GELU[0], how="two runs")
    found = finding(Failure(WRONG, "text"), location=place)
    assert headline_of(found).names == []
    assert verdict_on(found).summary == snapshot


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aten.erf.default", "erf"),
        ("erf_12", "erf"),
        ("aten._softmax.default", "_softmax"),
        ("prims.convert_element_type.default", "convert_element_type"),
        ("log1p", "log1p"),
    ],
)
def test_operations_and_nodes_are_compared_by_name(name: str, expected: str) -> None:
    assert short(name) == expected


def test_in_a_crash_the_operation_that_reads_a_wrong_index_is_not_the_one_to_blame() -> None:
    """Eager's `index` refuses the index with another error, so the crash "disappears" with it."""
    place = Location(
        stage="codegen",
        operation="aten.argmax.default",
        kernel="triton_per_fused_argmax_0",
        how="its loop body is right",
        names=("aten.argmax.default",),
    )
    reads = SuppressingAxis("x", "lowering", "lowering to loops", "index", names_operations=True)
    found = finding(
        Failure(ERROR, "CUDA error: an illegal memory access was encountered"),
        Suppressed((reads,)),
        location=place,
        operations=("aten.argmax.default", "aten.index.Tensor"),
        nodes=2,
    )
    assert headline_of(found).operation == "aten.argmax.default"


def test_a_kernel_has_the_name_that_it_has_in_the_program(snapshot: SnapshotAssertion) -> None:
    """The kernel of the smallest graph is nowhere in the program."""
    guilty = Location(stage="codegen", kernel="cpp_fused_addmm_gelu_3", text="buf7 is 2", how="so")
    found = in_kernel()
    found = FailureFinding((Claim(guilty, PROGRAM), *found.claims))
    verdict = verdict_on(found)
    assert verdict.culprit.kernel == "cpp_fused_addmm_gelu_3"
    said = [item["what"] for item in verdict.evidence]
    assert said == snapshot
    # What a kernel gets may be wrong already.
    lies = Location(stage="user", operation="shop::step", text="it lies", how="opcheck")
    assert verdict_on(found.claimed(lies)).culprit.kernel is None
