"""From what was found to a verdict: its words, its JSON, and how it looks on a terminal."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inductoscope.doctor.failure import (
    ERROR,
    HANG,
    LOST_CHECK,
    NAN,
    SIGNAL,
    WRONG,
    Failure,
    Location,
    SuppressingAxis,
    WrongValue,
)
from inductoscope.doctor.finding import (
    WHOLE_GRAPH,
    Noticed,
    NotShownAgain,
    ReplacedPart,
    ReplacedParts,
    Repro,
    Suppressed,
    Workaround,
)
from inductoscope.doctor.instructions import (
    OWN_VARIABLES,
    VARIABLE,
    Instructions,
    instructions_from,
)
from inductoscope.doctor.verdict import Culprit, Verdict
from inductoscope.inside.search.axes import AXES, suppressing
from inductoscope.recording.events import NotedDifference
from inductoscope.verdicts import CLEAN, NOT_A_BUG
from inductoscope.views.report.terminal import Printer
from inductoscope.views.report.verdict import print_verdict
from inductoscope.views.verdict_text import issue_text
from support.findings import finding, verdict_on

OTHER_STRIDES = "output 3 has strides (1, 2), in eager (2, 1)"
STRIDES = NotedDifference(compile="0/0", aspect="stride", where="output 3", text=OTHER_STRIDES)
VALUE = "output 0 is 10 at index [0], in eager 9, in float64 9"


def suppressed_by(name: str, application: str = "") -> SuppressingAxis:
    return suppressing(next(axis for axis in AXES if axis.name == name), application)


WRONG_LOWERING = finding(
    Failure(WRONG, VALUE, aspect="value", texts=(VALUE, "output 1 differs too")),
    Suppressed((suppressed_by("lowerings", "div"), suppressed_by("fusion"))),
    location=Location(
        stage="lowering",
        operation="aten.div.Tensor_mode",
        kernel="cpp_fused_floor_divide_0",
        text="buf0 differs in it",
        how="each buffer was compared with its node",
    ),
    in_program=Location(
        stage="lowering",
        kernel="cpp_fused_floor_divide_mean_sin_2",
        text="buf7 differs",
        how="every kernel was compared",
    ),
    smallest=Failure(
        WRONG,
        "output 0 is 5 at index [2], in eager 4; 1 of 8 elements is wrong",
        aspect="value",
        values=(WrongValue("output 0", (2,), "5", "4", wrong=1, elements=8),),
    ),
    candidates=30,
    nodes=1,
    of=12,
    operations=("aten.div.Tensor_mode",),
    sources=("/elsewhere/model.py:12",),
)


# --- what is wrong, and where ---------------------------------------------------------------------


def test_a_wrong_result_is_blamed_on_the_stage_where_it_is_made() -> None:
    verdict = verdict_on(WRONG_LOWERING)
    assert (verdict.verdict, verdict.stage, verdict.confidence) == (
        "wrong-result",
        "lowering",
        "proven",
    )
    assert verdict.culprit == Culprit(
        op="aten.div.Tensor_mode",
        kernel="cpp_fused_floor_divide_mean_sin_2",
        config="fusion of kernels",
        source="/elsewhere/model.py:12",
    )
    assert verdict.summary == (
        "The compiled program gives a wrong result at /elsewhere/model.py:12, because of "
        "aten.div.Tensor_mode (stage lowering, kernel cpp_fused_floor_divide_mean_sin_2): "
        f"{VALUE}. Reduced to 1 of 12 graph nodes (kernel cpp_fused_floor_divide_0): "
        "output 0 is 5 at index [2], in eager 4."
    )


def test_every_claim_comes_with_how_it_is_known() -> None:
    *evidence, size = [
        (item["what"], item["where"]) for item in verdict_on(WRONG_LOWERING).evidence
    ]
    assert evidence == [
        (VALUE, "compile 0/0"),
        ("output 1 differs too", "compile 0/0"),
        (
            "in the smallest graph: output 0 is 5 at index [2], in eager 4; 1 of 8 elements is "
            "wrong",
            "a fork of the program",
        ),
        (
            "in the program it is kernel cpp_fused_floor_divide_mean_sin_2: buf7 differs",
            "every kernel was compared",
        ),
        (
            "in the smallest graph: buf0 differs in it",
            "each buffer was compared with its node",
        ),
        (
            "the failure disappears without lowering to loops (the one that matters: div)",
            "the smallest graph",
        ),
        ("the failure disappears without fusion of kernels", "the smallest graph"),
    ]
    assert size[0].startswith("1 of 12 graph nodes is enough to show it")
    assert size[1] == "30 candidates tried"


def test_a_pass_is_named_with_its_patterns_and_with_what_it_changed() -> None:
    verdict = verdict_on(
        finding(
            Failure(WRONG, VALUE, aspect="value"),
            location=Location(
                stage="joint-pass",
                pass_name="pass_patterns_1",
                names=("mul_softmax_pattern", "pass_patterns_1"),
                operation="aten.mul.Tensor",
                removed=("aten.mul.Tensor",),
                added=("aten.sub.Tensor",),
                how="the graph before and after each pass was run",
            ),
            operations=("aten.mul.Tensor", "aten.amax.default"),
        )
    )
    assert (verdict.verdict, verdict.stage) == ("wrong-result", "joint-pass")
    assert verdict.culprit.pass_ == "pass_patterns_1, mul_softmax_pattern"
    assert verdict.culprit.op == "aten.mul.Tensor, aten.amax.default"
    assert ", because of the pass pass_patterns_1 (stage joint-pass)" in verdict.summary
    took = {"what": "the pass removed aten.mul.Tensor and added aten.sub.Tensor"}
    assert {**took, "where": "joint-pass"} in verdict.evidence


def test_a_pass_of_the_program_is_named_with_its_line() -> None:
    verdict = verdict_on(
        finding(
            Failure(ERROR, "RuntimeError: mat1 and mat2 must have the same dtype", stage="runtime"),
            location=Location(
                stage="post-grad-pass",
                pass_name="post_grad_custom_post_pass",
                operation="aten.mm.default",
                own_pass="halve_weights (/home/me/train.py:12)",
                how="the graph was run in eager before and after each pass",
            ),
        )
    )
    assert verdict.culprit.pass_ == "post_grad_custom_post_pass, halve_weights"
    who = "because of the pass halve_weights at /home/me/train.py:12, which is not torch's"
    assert who in verdict.summary


def test_nan_has_a_verdict_of_its_own() -> None:
    verdict = verdict_on(
        finding(Failure(NAN, "output 0 is nan"), location=Location(stage="codegen"))
    )
    assert (verdict.verdict, verdict.stage) == ("nan", "codegen")
    assert verdict.summary.startswith("The compiled program gives NaN or Inf where eager is finite")


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        ("", "The compiled program returns where eager raises an error"),
        ("KeyError", "The compiled program raises another error than eager"),
    ],
)
def test_a_lost_check_gives_no_result_that_could_be_wrong(raised: str, said: str) -> None:
    lost = Failure(LOST_CHECK, "eager raises ValueError", aspect=raised, eager_error="ValueError")
    verdict = verdict_on(finding(lost, location=Location(stage="lowering")))
    assert verdict.verdict == "wrong-result"
    assert verdict.summary.startswith(f"{said} (stage lowering): eager raises ValueError")


def test_values_that_only_a_part_of_the_graph_shows_are_not_the_programs() -> None:
    value = WrongValue("output 1", (0,), "2", "1")
    shown = Failure(WRONG, "output 1 is 2 at index [0], in eager 1", values=(value,))
    found = finding(Failure(WRONG, "output 10 differs"), reproduces=False)
    verdict = verdict_on(found.claimed(shown, WHOLE_GRAPH))
    assert verdict.values == []


def test_a_graph_that_was_reduced_but_tells_no_more_is_told() -> None:
    """The place is then known in the whole graph alone."""
    values = [WrongValue(f"output {number}", (), "2", "1") for number in (1, 10)]
    smallest = Failure(WRONG, "output 10 is 2, in eager 1", values=tuple(values))
    verdict = verdict_on(finding(Failure(WRONG, VALUE), smallest=smallest, nodes=2, of=40))
    assert verdict.reduction is not None
    assert verdict.reduction.kernel is None
    assert verdict.summary.endswith("Reduced to 2 of 40 graph nodes: output 10 is 2, in eager 1.")


@pytest.mark.parametrize(
    ("stage", "verdict"),
    [
        ("lowering", "crash"),
        ("scheduler", "crash"),
        ("runtime", "crash"),
        ("cpp-compile", "compile-error"),
        ("triton-compile", "compile-error"),
        ("dynamo", "not-inductor"),
        ("aot", "not-inductor"),
    ],
)
def test_an_error_is_judged_by_the_stage_that_raised_it(stage: str, verdict: str) -> None:
    failure = Failure(ERROR, "KeyError: 'buf0'", stage=stage, aspect="KeyError", detail="op3")
    functions = ["get (torch/_inductor/a.py:3)", "run (torch/_inductor/b.py:4)"]
    got = verdict_on(
        finding(failure, location=Location(function="get" if stage == "lowering" else ""))
    )
    assert (got.verdict, got.stage, got.confidence) == (verdict, stage, "proven")
    got = verdict_on(finding(replace(failure, functions=tuple(functions))))
    said = [item["what"] for item in got.evidence]
    assert f"raised in {functions[0]}" in said
    assert f"called from {functions[1]}" in said
    assert "while processing op3" in said


def test_an_error_without_an_operation_is_summed_up_by_the_function_that_raised() -> None:
    failure = Failure(ERROR, "KeyError: 'buf0'\nmore", stage="scheduler")
    verdict = verdict_on(finding(failure, location=Location(function="Scheduler.fuse")))
    assert verdict.culprit.function == "Scheduler.fuse"
    assert verdict.summary == (
        "The compiler, or a kernel it generated, crashed, in Scheduler.fuse (stage scheduler): "
        "KeyError: 'buf0'"
    )


def test_what_the_native_compiler_said_is_cut_down_to_its_complaint() -> None:
    messages = "In file included from x:\nx.cpp:3: error: 'foo' was not declared\n  foo();\n  ^~~"
    failure = Failure(ERROR, "text", stage="cpp-compile", messages=(messages,))
    evidence = verdict_on(finding(failure)).evidence
    assert {
        "what": "x.cpp:3: error: 'foo' was not declared\n  foo();\n  ^~~",
        "where": "what the native compiler said",
    } in evidence


@pytest.mark.parametrize(("kind", "verdict"), [(SIGNAL, "crash"), (HANG, "hang")])
def test_a_process_that_dies_or_stops_is_blamed_on_where_it_was(kind: str, verdict: str) -> None:
    failure = Failure(kind, "the process …", stage="post-grad-pass", detail="reinplace", aspect="x")
    got = verdict_on(finding(failure))
    assert (got.verdict, got.stage, got.confidence) == (verdict, "post-grad-pass", "proven")
    assert {"what": "while processing reinplace", "where": "post-grad-pass"} in got.evidence


def test_what_hangs_is_named_with_the_function_that_does_not_return() -> None:
    got = verdict_on(finding(Failure(HANG, "not finished", stage="lowering", function="stuck")))
    assert "in stuck, which loops or blocks (stage lowering)" in got.summary


def test_code_that_the_program_put_in_torchs_place_is_told() -> None:
    """The reproducer has torch's own again, so it cannot fail."""
    own = ReplacedPart("decomposition", "aten.gelu.default", "bad (planted.py:7)")
    got = verdict_on(finding(Failure(WRONG, VALUE, aspect="value"), ReplacedParts((own,))))
    text = "the decomposition of aten.gelu.default in use is bad (planted.py:7), not torch's"
    assert text in [item["what"] for item in got.evidence]


def test_what_goes_wrong_without_inductor_too_is_not_inductors() -> None:
    failure = Failure(WRONG, VALUE, aspect="value")
    assert verdict_on(finding(failure, location=Location(stage="aot"))).verdict == "not-inductor"


@pytest.mark.parametrize(("backend", "stage"), [("aot_eager", "aot"), ("my_backend", "user")])
def test_a_backend_that_is_not_inductor_is_named(backend: str, stage: str) -> None:
    verdict = verdict_on(
        finding(Failure(WRONG, VALUE, aspect="value"), noticed=Noticed("0/0", backend=backend))
    )
    assert (verdict.verdict, verdict.stage) == ("not-inductor", stage)
    assert verdict.culprit.function == backend


@pytest.mark.parametrize("kind", [WRONG, NAN])
def test_a_stage_that_only_a_suppressing_axis_tells_is_likely(kind: str) -> None:
    place = Location(how="each buffer was compared; its loop body could not be told")
    got = verdict_on(
        finding(
            Failure(kind, VALUE, aspect="value"),
            Suppressed((suppressed_by("fusion"),)),
            location=place,
        )
    )
    assert (got.stage, got.confidence) == ("scheduler", "likely")


@pytest.mark.parametrize("axis", AXES, ids=lambda axis: axis.name)
def test_where_no_stage_is_known_that_of_the_one_suppressing_axis_is_blamed(axis: Any) -> None:
    verdict = verdict_on(
        finding(Failure(WRONG, VALUE, aspect="value"), Suppressed((suppressed_by(axis.name),)))
    )
    assert (verdict.stage, verdict.culprit.config) == (axis.stage, axis.title)


@pytest.mark.parametrize(
    ("graphs_are_right", "stage"), [(True, "scheduler"), (False, "decomposition")]
)
def test_graphs_that_are_right_are_not_blamed(graphs_are_right: bool, stage: str) -> None:
    """Without the one decomposition there is nothing to fuse: both make it go away."""
    axes = [suppressed_by("fusion"), suppressed_by("decompositions")]
    place = Location(graphs_are_right=graphs_are_right)
    failure = Failure(WRONG, VALUE, aspect="value")
    assert verdict_on(finding(failure, Suppressed(tuple(axes)), location=place)).stage == stage


@pytest.mark.parametrize(("nodes", "confidence"), [(2, "proven"), (400, "likely")])
def test_a_large_graph_that_does_not_end_may_be_slow(nodes: int, confidence: str) -> None:
    failure = Failure(HANG, "not finished after 60 s", stage="scheduler")
    assert verdict_on(finding(failure, nodes=nodes)).confidence == confidence


def test_of_several_suppressing_axes_the_most_telling_one_is_blamed() -> None:
    axes = [suppressed_by("lowerings"), suppressed_by("vectorisation")]
    verdict = verdict_on(finding(Failure(WRONG, VALUE, aspect="value"), Suppressed(tuple(axes))))
    assert (verdict.stage, verdict.culprit.config) == ("codegen", "vectorisation of C++ loops")


# --- how sure -------------------------------------------------------------------------------------


def test_a_stage_that_only_a_suppressing_axis_points_at_is_likely() -> None:
    verdict = verdict_on(
        finding(Failure(WRONG, VALUE, aspect="value"), Suppressed((suppressed_by("fusion"),)))
    )
    assert verdict.confidence == "likely"


def test_without_a_stage_nothing_is_known() -> None:
    verdict = verdict_on(finding(Failure(WRONG, VALUE, aspect="value")))
    assert (verdict.stage, verdict.confidence) == ("none", "unknown")
    assert "(stage" not in verdict.summary


def test_what_did_not_show_again_is_at_most_likely_and_says_so() -> None:
    verdict = verdict_on(
        finding(Failure(ERROR, "text", stage="lowering"), NotShownAgain(), reproduces=False)
    )
    assert verdict.confidence == "likely"
    assert "the graph alone did not fail again" in verdict.evidence[-1]["what"]


def test_before_it_was_tried_again_nothing_is_said_of_the_graph_alone() -> None:
    """After Ctrl-C, for instance."""
    failure = Failure(ERROR, "text", stage="lowering")
    verdict = verdict_on(finding(failure, reproduces=False, is_complete=False))
    assert (verdict.confidence, verdict.partial) == ("likely", True)
    assert not any("the graph alone" in each["what"] for each in verdict.evidence)


def test_a_place_below_the_current_folder_is_seen_from_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    verdict = verdict_on(finding(Failure(WRONG, VALUE), sources=("x:1", f"{tmp_path}/m/a.py:7")))
    assert verdict.culprit.source == "m/a.py:7"


def test_only_a_clean_verdict_is_no_problem() -> None:
    """The exit code of the command is 1 for a problem, else 0."""
    assert not Verdict(CLEAN, "none", "Nothing wrong.").is_problem
    assert Verdict(NOT_A_BUG, "user", "Eager fails too.").is_problem
    assert verdict_on(WRONG_LOWERING).is_problem


# --- the object -----------------------------------------------------------------------------------


def whole_verdict() -> Verdict:
    verdict = verdict_on(WRONG_LOWERING)
    verdict.repro = Repro("repro.py", True, 3, 3, 2)
    verdict.workaround = Workaround("do without it", True, 1.02, "config.x = 1")
    verdict.recording, verdict.seconds = "path", 41.0
    return verdict


def test_the_object_has_the_keys_of_the_design() -> None:
    """The schema that others rely on: design.md, 'What the doctor hands over'."""
    data = json.loads(json.dumps(whole_verdict().as_data()))
    keys = "schema verdict stage culprit summary confidence evidence repro workaround recording"
    further = {"issue", "partial", "runs", "notes", "not_checked", "output", "trail", "values"}
    further |= {"known", "time", "program", "reduction"}
    assert set(data) - further == {
        *keys.split(),
        "seconds",
    }
    assert set(data["culprit"]) == {"op", "pass", "kernel", "function", "config", "source"}
    assert all(set(item) == {"what", "where"} for item in data["evidence"])
    assert data["repro"] == {
        "path": "repro.py", "verified": True, "failed": 3, "of": 3, "nodes": 2
    }  # fmt: skip
    # What a slow program gains by it, where that was measured.
    gains = {"predicted", "saved"}
    assert set(data["workaround"]) - {"code"} - gains == {"text", "verified", "slowdown"}
    assert (data["schema"], data["recording"], data["seconds"]) == (1, "path", 41.0)


def test_the_object_tells_the_program_from_the_smallest_graph() -> None:
    data = whole_verdict().as_data()
    program, reduction = data["program"], data["reduction"]
    assert (program["nodes"], program["kernel"]) == (12, "cpp_fused_floor_divide_mean_sin_2")
    assert (program["text"], program["compile"]) == (VALUE, "0/0")
    assert (reduction["nodes"], reduction["kernel"]) == (1, "cpp_fused_floor_divide_0")
    assert [value["index"] for value in reduction["values"]] == [(2,)]
    assert (data["values"], data["culprit"]["kernel"]) == (program["values"], program["kernel"])


def test_a_kernel_that_only_the_smallest_graph_has_is_not_the_programs() -> None:
    place = Location(stage="codegen", kernel="cpp_fused_tanh_0", how="so")
    verdict = verdict_on(finding(Failure(WRONG, VALUE), location=place, nodes=1, of=12))
    assert verdict.culprit.kernel is None
    assert verdict.summary.endswith("Reduced to 1 of 12 graph nodes (kernel cpp_fused_tanh_0).")
    assert "cpp_fused_tanh_0 (of the reproducer)" in printed(verdict)


def test_what_only_the_smallest_graph_shows_is_not_said_of_the_program() -> None:
    own = Failure(ERROR, "CppCompileError: in add_mul", functions=("build (cpp.py:1)",))
    small = Failure(
        ERROR,
        "CppCompileError: in mul",
        functions=("build (cpp.py:2)",),
        messages=("a.cpp: error: no mul",),
    )
    place = Location(stage="cpp-compile", text=small.text)
    found = finding(own, location=place, smallest=small, nodes=1, of=2)
    evidence = verdict_on(found).evidence
    assert [item["what"] for item in evidence][:4] == [
        own.text,
        f"in the smallest graph: {small.text}",
        "raised in build (cpp.py:1)",
        "a.cpp: error: no mul",
    ]
    assert evidence[3]["where"] == "what the native compiler said of the smallest graph"


def test_what_fails_only_under_a_condition_is_said_with_the_condition() -> None:
    noticed = Noticed("0/0", condition="with Inductor's own random numbers")
    verdict = verdict_on(finding(Failure(WRONG, VALUE), noticed=noticed))
    assert f": with Inductor's own random numbers: {VALUE}" in verdict.summary
    assert verdict.evidence[0]["where"] == "compile 0/0, with Inductor's own random numbers"


def test_an_object_of_which_little_is_known_has_the_same_keys() -> None:
    data = Verdict(CLEAN, "none", "Nothing wrong.").as_data()
    assert data.keys() == whole_verdict().as_data().keys()
    assert data["culprit"].keys() == whole_verdict().as_data()["culprit"].keys()
    assert (data["repro"], data["workaround"], data["culprit"]["pass"]) == (None, None, None)


def test_instructions_survive_the_way_through_the_environment() -> None:
    instructions = Instructions(
        calls=3,
        failure=Failure("wrong", "text"),
        workaround="a = 'ü'\nb",
        backend="off",
        counts=(STRIDES,),
    )
    environment = instructions.environment()
    assert instructions_from(environment) == instructions
    assert environment["OMP_THREAD_LIMIT"] == "1", "no thread that a fork would not have"
    assert "MKL_NUM_THREADS" not in environment, "Inductor would generate no parallel loops"
    assert environment["TORCHDYNAMO_DISABLE"] == "1"
    assert "TORCHDYNAMO_DISABLE" not in Instructions().environment()
    assert VARIABLE in OWN_VARIABLES


# --- on a terminal --------------------------------------------------------------------------------


def printed(verdict: Verdict) -> str:
    page = io.StringIO()
    print_verdict(Printer(page), verdict)
    return page.getvalue()


def unproven() -> Verdict:
    return replace(
        whole_verdict(),
        partial=True,
        repro=Repro("repro.py", False, 1, 3, 2),
        workaround=Workaround("do without it", False),
    )


def with_notes() -> Verdict:
    notes = [STRIDES, STRIDES, replace(STRIDES, compile="1/0")]
    return Verdict(CLEAN, "none", "Nothing wrong.", notes=notes, recording="path")


@pytest.mark.parametrize("verdict", [whole_verdict(), unproven(), with_notes()])
def test_a_verdict_can_be_read(verdict: Verdict, snapshot: Any) -> None:
    assert printed(verdict) == snapshot


def test_a_note_is_data() -> None:
    assert with_notes().as_data()["notes"][0] == {
        "compile": "0/0", "aspect": "stride", "where": "output 3", "text": OTHER_STRIDES
    }  # fmt: skip


HOSTILE = "\x1b[2J\x1b]0;title\x07[bold red]markup[/] :smile: \u202eback\r\nnext"


def test_text_from_a_stranger_is_shown_as_text() -> None:
    verdict = Verdict("crash", HOSTILE, HOSTILE, HOSTILE)
    verdict.culprit = Culprit(*[HOSTILE] * 6)
    verdict.add(HOSTILE, HOSTILE)
    verdict.repro = Repro(HOSTILE, True, 3, 3, 2)
    verdict.workaround = Workaround(HOSTILE, True, 1.0, HOSTILE)
    verdict.issue = verdict.recording = HOSTILE
    text = printed(verdict)
    assert not set("\x1b\x07\u202e\r") & set(text)
    assert "\\x1b[2J\\x1b]0;title\\x07[bold" in text
    assert "[/] :smile: \\u202eback\\x0d" in text


def test_a_bug_report_holds_what_the_tracker_asks_for(tmp_path: Path) -> None:
    script = tmp_path / "repro.py"
    script.write_text(
        '"""Wrong: floor division\n\ntorch 2.13.0, Linux. Exits with 1.\n"""\nx = 1\n'
    )
    verdict = whole_verdict()
    verdict.repro = Repro(str(script), True, 3, 3, 2)
    (tmp_path / "repro-output.txt").write_text("AssertionError: not close")
    text = issue_text(verdict)
    assert text.startswith("# [inductor] Wrong: floor division\n")
    for part in (verdict.summary, "x = 1\n```", "AssertionError: not close", "config.x = 1"):
        assert part in text
    assert text.endswith("## Versions\n\ntorch 2.13.0, Linux\n")
