"""From a fault back to the kernel that is to blame, in a recorded graph of a package.

The graph calls, in this order: cpp_fused_0 (buf0), extern_kernels.addmm (buf1), cpp_fused_relu_1
(buf2), topk (buf3 holds its results buf4 and buf5), cpp_fused_add_mul_2 (buf6 and others).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.doctor import judgement
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.failure import ERROR, HANG, NAN, SIGNAL, WRONG, Failure, Location
from inductoscope.doctor.finding import PROGRAM, FailureFinding, Flow, Noticed
from inductoscope.doctor.trail import look_up, name_as_recorded, trail_of
from inductoscope.doctor.verdict import Verdict, keep_verdict, read_verdict
from inductoscope.model.fault_trail import FaultTrail, GuiltyPlace, fault_trail
from inductoscope.model.fold import load
from inductoscope.torch_facts.stages import AOT_INDUCTOR
from inductoscope.views.report.terminal import Printer
from inductoscope.views.report.verdict import print_stored_verdict, print_trail, stored_verdict_view
from inductoscope.views.verdict_text import worded
from support.examples import stored
from support.findings import finding

ADDMM = "aoti_torch_cpu_addmm_out"  # as the C++ wrapper reports it


def trail(guilty: GuiltyPlace) -> FaultTrail | None:
    return fault_trail(load(stored("exported_package")), "aoti/0", guilty)


def kernels(found: FaultTrail | None) -> list[str]:
    assert found is not None
    return [step.kernel for step in found.steps]


def test_a_wrong_value_is_followed_from_the_output_to_the_kernel_that_makes_it() -> None:
    found = trail(GuiltyPlace(ADDMM, "buf1", outputs=(0,)))
    assert kernels(found) == [
        "cpp_fused_add_mul_2",
        "torch.ops.aten.topk.default",
        "cpp_fused_relu_1",
        "extern_kernels.addmm",
    ]
    assert found is not None
    assert found.reaches_fault
    assert [step.call for step in found.steps] == [5, 4, 3, 2]
    topk, last = found.steps[1], found.steps[-1]
    assert [buffer.name for buffer in topk.buffers] == ["buf4", "buf3"]
    # The operation with code, which the page selects; not the getitem that unpacks it.
    assert {(buffer.node, buffer.operation) for buffer in topk.buffers} == {
        ("topk", "aten.topk.default")
    }
    assert last.buffers[0].source.endswith("script.py:17")
    assert [(b.name, b.made_by) for b in last.reads][1:] == [
        ("buf0", "cpp_fused_0"),
        ("linear_weight", ""),
    ]


def test_another_output_has_another_trail() -> None:
    found = trail(GuiltyPlace(ADDMM, "buf1", outputs=(1,)))
    assert kernels(found)[0] == "torch.ops.aten.topk.default"


def test_a_trail_ends_at_the_kernel_that_fails() -> None:
    found = trail(GuiltyPlace(ADDMM, "buf1", fails="cpp_fused_relu_1"))
    assert kernels(found) == ["cpp_fused_relu_1", "extern_kernels.addmm"]


def test_a_kernel_that_fails_by_itself_is_the_whole_trail() -> None:
    found = trail(GuiltyPlace("cpp_fused_relu_1"))
    assert kernels(found) == ["cpp_fused_relu_1"]
    assert found is not None
    assert found.steps[0].buffers == ()
    assert [buffer.name for buffer in found.steps[0].reads] == ["buf1"]


def test_who_read_a_buffer_before_it_was_overwritten_is_not_on_the_trail() -> None:
    """`cpp_fused_relu_1` reads buf1 in call 3; topk, in call 4, would overwrite it too late."""
    late = trail(GuiltyPlace("aoti_torch_cpu_topk", "buf1", overwrites=True))
    assert kernels(late) == ["torch.ops.aten.topk.default"]
    assert late is not None
    assert not late.reaches_fault


@pytest.mark.parametrize(
    "guilty",
    [
        GuiltyPlace("cpp_fused_of_another_graph", "buf1"),
        GuiltyPlace(ADDMM, "buf99"),
        GuiltyPlace(ADDMM, "buf2"),  # Another kernel makes it.
    ],
)
def test_names_that_the_recorded_graph_does_not_have_give_no_trail(guilty: GuiltyPlace) -> None:
    assert trail(guilty) is None


def found_in(place: Location, failure: Failure) -> FailureFinding:
    found = FailureFinding().claimed(Noticed("aoti/0")).claimed(failure, PROGRAM)
    return found.claimed(Flow(AOT_INDUCTOR)).claimed(place, PROGRAM)


def test_the_doctor_says_what_is_wrong_at_both_ends_and_how_that_is_known(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    snapshot: SnapshotAssertion,
) -> None:
    failure = Failure(WRONG, "output 0 is 5 at index [0]\nmore", where=("output 0",))
    place = Location(kernel=ADDMM, buffer="buf1", text="buf1 is 5, in eager 3", how="compared")
    found = trail_of(found_in(place, failure), load(stored("exported_package")))
    assert found is not None
    assert (found.fault, found.wrong, found.how) == (
        "output 0 is 5 at index [0]",
        "buf1 is 5, in eager 3",
        "compared",
    )
    keep_verdict(Verdict("wrong-result", "wrapper", "wrong", trail=found), tmp_path)
    kept = read_verdict(tmp_path)
    assert kept is not None
    assert kept.trail == found
    print_trail(Printer(), found)
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    start = printed.index("output 0 is 5 at index [0]")
    assert printed[start + 1].startswith("← buf6 (aten.mul.Tensor")
    assert printed == snapshot


def test_nan_is_followed_back_past_the_kernels_that_only_pass_it_on() -> None:
    """It shows in output 0, which the last kernel makes of what three others have computed."""
    failure = Failure(NAN, "output 0 is nan at index [2, 1]", where=("output 0",))
    text = "buf2 is nan at index [0, 3] where eager and float64 are finite"
    place = Location(kernel="cpp_fused_relu_1", buffer="buf2", text=text, how="compared")
    found = trail_of(found_in(place, failure), load(stored("exported_package")))
    assert kernels(found) == [
        "cpp_fused_add_mul_2",
        "torch.ops.aten.topk.default",
        "cpp_fused_relu_1",
    ]
    assert found is not None
    assert found.reaches_fault
    assert (found.fault, found.wrong) == (failure.text, text)
    # What it reads is named, and not accused: nothing in it was NaN.
    assert [(read.name, read.made_by) for read in found.steps[-1].reads] == [
        ("buf1", "extern_kernels.addmm")
    ]


@pytest.mark.parametrize("kind", [SIGNAL, ERROR, HANG])
def test_what_dies_raises_or_hangs_in_a_kernel_leaves_a_trail_to_it(kind: str) -> None:
    recording = load(stored("exported_package"))
    failure = Failure(kind, "it fails", stage="runtime", function="cpp_fused_relu_1")
    place = Location(kernel="cpp_fused_relu_1", text="died", how="the last kernel launched")
    found = trail_of(found_in(place, failure), recording)
    assert kernels(found) == ["cpp_fused_relu_1"]
    assert found is not None
    assert found.reaches_fault
    earlier = trail_of(found_in(Location(kernel=ADDMM, buffer="buf1"), failure), recording)
    assert kernels(earlier) == ["cpp_fused_relu_1", "extern_kernels.addmm"]
    if kind == SIGNAL:
        no_package = FailureFinding().claimed(Noticed("aoti/0")).claimed(failure, PROGRAM)
        assert kernels(trail_of(no_package, recording)) == ["cpp_fused_relu_1"]


@pytest.mark.parametrize(
    "failure",
    [
        Failure(WRONG, "input 0 differs", where=("input 0 after the call",)),
        Failure(WRONG, "output 7 differs", where=("output 7",)),  # There are fewer.
        Failure(ERROR, "index out of bounds", function="check_bounds"),
        Failure(HANG, "it does not end"),
    ],
)
def test_where_the_fault_shows_elsewhere_no_output_is_accused(failure: Failure) -> None:
    place = Location(kernel=ADDMM, buffer="buf1")
    found = trail_of(found_in(place, failure), load(stored("exported_package")))
    assert kernels(found) == ["extern_kernels.addmm"]
    assert found is not None
    assert not found.reaches_fault


@pytest.mark.parametrize(
    ("operation", "line", "kernel"),
    [
        ("aten._softmax.default", 16, "cpp_fused__softmax_add_2"),
        ("aten.add.Tensor", 16, "cpp_fused__softmax_add_2"),
        ("aten.add.Tensor", 15, None),  # In layer_norm and in gelu.
        ("aten.tanh.default", 16, None),
    ],
    ids=["before it is decomposed", "the line decides", "ambiguous", "not in the program"],
)
def test_the_kernel_of_the_smallest_graph_is_looked_up_in_the_program(
    operation: str, line: int, kernel: str | None
) -> None:
    """The recorded graph has no cpp_fused_0: that is what the reproducer's kernel is called."""
    place = Location(stage="codegen", kernel="cpp_fused_0", operation=operation)
    source = f"/scripts/training_step/script.py:{line}"
    sizes: dict[str, Any] = {"nodes": 1, "of": 4, "operations": (operation,), "sources": (source,)}
    found = finding(Failure(WRONG, "output 0 is 5"), location=place, **sizes)
    verdict = judgement.verdict_on(found)
    name_as_recorded(verdict, found, load(stored("training_step")))
    assert verdict.culprit.kernel == kernel
    assert verdict.program is not None
    assert (verdict.program.function, verdict.program.kernel) == ("forward", kernel)
    said = worded(verdict).summary
    assert said.startswith(
        f"The compiled program gives a wrong result at {source} in compile 0/0 ("
    )
    assert said.endswith(". Reduced to 1 of 4 graph nodes (kernel cpp_fused_0).")


def test_the_line_is_that_of_the_operation_to_blame_and_not_the_last_of_the_smallest_graph() -> (
    None
):
    gelu, softmax = (f"/scripts/training_step/script.py:{line}" for line in (15, 16))
    alone = ("aten.gelu.default",)
    place = Location(stage="codegen", kernel="cpp_fused_0", operation="x", wrong_alone=alone)
    sizes: dict[str, Any] = {"nodes": 2, "of": 4, "sources": (gelu, softmax)}
    found = finding(Failure(WRONG, "output 0 is 5"), location=place, **sizes)
    verdict = judgement.verdict_on(found)
    assert verdict.culprit.source == softmax
    name_as_recorded(verdict, found, load(stored("training_step")))
    assert verdict.culprit.source == gelu


def test_processes_that_number_different_functions_alike_name_none() -> None:
    found = finding(Failure(WRONG, "output 0 is 5"), location=Location(kernel="cpp_fused_0"))
    recording = load(stored("training_step"))
    other = replace(recording.compiles[0], process="2", function="validate")
    verdict = judgement.verdict_on(found)
    name_as_recorded(verdict, found, replace(recording, compiles=(*recording.compiles, other)))
    assert verdict.program is not None
    assert verdict.program.function == ""


def test_a_kernel_of_a_package_has_the_name_that_it_has_in_the_recording() -> None:
    failure = Failure(WRONG, "output 0 is 5", where=("output 0",))
    found = found_in(Location(stage="wrapper", kernel=ADDMM, buffer="buf1"), failure)
    verdict = judgement.verdict_on(found)
    name_as_recorded(verdict, found, load(stored("exported_package")))
    assert verdict.culprit.kernel == "extern_kernels.addmm"


def test_a_trail_that_cannot_be_made_leaves_the_verdict_as_it_is() -> None:
    """The recording may be damaged where nobody has looked before."""
    said: list[str] = []
    damaged = replace(load(stored("exported_package")), compiles=(None,))  # type: ignore[arg-type]
    case = cast("ProgramCase", SimpleNamespace(recording=damaged, say=said.append))
    failure = Failure(WRONG, "output 0 differs", where=("output 0",))
    place = Location(kernel=ADDMM, buffer="buf1")
    found = found_in(place, failure)
    verdict = judgement.verdict_on(found)
    look_up(verdict, found, case)
    assert (verdict.culprit.kernel, verdict.trail) == (ADDMM, None)
    assert "AttributeError" in said[0]


def test_a_stored_trail_without_steps_is_not_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A verdict may come from elsewhere, or from another version of the tool."""
    nothing = FaultTrail("0/0", "0/0 inference", calls=1, steps=())
    keep_verdict(Verdict("wrong-result", "wrapper", "It is wrong.", trail=nothing), tmp_path)
    recording = replace(load(stored("exported_package")), path=str(tmp_path))
    view = stored_verdict_view(recording)
    assert view is not None
    print_stored_verdict(Printer(), str(tmp_path))
    printed = capsys.readouterr().out
    assert "It is wrong." in printed
    assert "Trail" not in printed
