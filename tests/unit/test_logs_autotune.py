"""Which choices are stuck, and which are not, by what a log says of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.hangs.logs.answers import Answer, Kind
from inductoscope.hangs.logs.lines import Origin, Program
from inductoscope.hangs.logs.program import AutotuneFold, GroupState
from inductoscope.torch_facts.log_choices import parse_choice, whole_choice
from support.logged import LogText, caller, only_answer, stuck_names


@pytest.fixture
def judged(tmp_path: Path):  # type: ignore[no-untyped-def]
    def judge(log: LogText) -> Answer:
        return only_answer(log.write(tmp_path / "log.txt"))

    return judge


# --- choices --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind", "name", "configuration"),
    [
        (
            "TritonTemplateCaller(/a/b.py, ACC_TYPE='tl.float32', EVEN_K=True, num_warps=8)",
            "TritonTemplateCaller",
            "/a/b.py",
            {"ACC_TYPE": "tl.float32", "EVEN_K": True, "num_warps": 8},
        ),
        ("ExternKernelCaller(extern_kernels.mm)", "ExternKernelCaller", "extern_kernels.mm", {}),
        ("CUTLASSTemplateCaller(source_file=/a/b.cu)", "CUTLASSTemplateCaller", "/a/b.cu", {}),
        ("CUDATemplateCaller(source_file=/a/b.cu)", "CUDATemplateCaller", "/a/b.cu", {}),
        (
            "ROCmTemplateCaller(source_file=/a/b.cpp, {'backend': 'ROCm', 'tile': (1, 2), 'k': 4})",
            "ROCmTemplateCaller",
            "/a/b.cpp",
            {"backend": "ROCm", "tile": "(1, 2)", "k": 4},
        ),
        ("SubgraphCaller(decompose_k_mm_4)", "SubgraphCaller", "decompose_k_mm_4", {}),
        ("NVUniversalGemmCaller(sm90_gemm)", "NVUniversalGemmCaller", "sm90_gemm", {}),
        (
            "<torch._inductor.codegen.cpp_template_kernel.CppTemplateCaller object at 0x7f12>",
            "CppTemplateCaller",
            "0x7f12",
            {},
        ),
        (
            "DataProcessorChoiceCallerWrapper(SubgraphCaller(one, split=2))",
            "SubgraphCaller",
            "one",
            {"split": 2},
        ),
        ("TomorrowsCaller(a(b, c), [1, 2], x='a, b=3', y=1.5)", "TomorrowsCaller", "a(b, c)", None),
    ],
)
def test_any_caller_is_read(text: str, kind: str, name: str, configuration: object) -> None:
    choice = parse_choice(text)
    assert (choice.kind, choice.name, choice.text) == (kind, name, text)
    assert configuration in (None, choice.configuration)


def test_quotes_and_brackets_hide_commas() -> None:
    choice = parse_choice("TomorrowsCaller(a, x='a, b=3', shape=(1, 2), y=1.5)")
    assert choice.configuration == {"x": "a, b=3", "shape": "(1, 2)", "y": 1.5}


def test_only_parentheses_end_a_choice() -> None:
    named = "C(/a/b.py, WHERE=a < b, SIZES=[4)"
    assert whole_choice(f"{named}, elapsed time") == named
    assert whole_choice("C(/a/b.py, WHERE=(a < b)") is None


def test_text_that_is_no_choice_is_kept() -> None:
    assert parse_choice("something else").name == "something else"


# --- groups ---------------------------------------------------------------------------------------


def test_what_was_submitted_and_did_not_finish_is_stuck(judged) -> None:  # type: ignore[no-untyped-def]
    answer = judged(LogText().group("a4", "b4", "c8").wait().finish("a4", "b4"))
    assert answer.kind is Kind.COMPILE_HANG
    assert answer.confidence == "likely"  # The log may just have been read too early.
    assert stuck_names(answer.groups[0]) == ["c8.py"]


def test_the_pool_of_worker_processes_has_lines_of_its_own(judged) -> None:  # type: ignore[no-untyped-def]
    answer = judged(LogText().group("a4", "b8", pool=True).wait().finish("a4"))
    assert stuck_names(answer.groups[0]) == ["b8.py"]
    assert answer.groups[0].stuck[0].to_pool


def test_a_choice_that_failed_is_not_stuck(judged) -> None:  # type: ignore[no-untyped-def]
    log = LogText().group("a4", "b4", "c4").wait().finish("a4")
    log.torch(f"Exception out of resource: for benchmark choice {caller('b4')}", level="E")
    log.torch("Traceback (most recent call last):", level="E")
    answer = judged(log)
    assert stuck_names(answer.groups[0]) == ["c4.py"]
    assert answer.groups[0].failed[0].message == "out of resource:"


def test_a_message_of_several_lines_names_its_choice_on_the_last(
    judged, snapshot: SnapshotAssertion
) -> None:  # type: ignore[no-untyped-def]
    log = LogText().group("a4", "b4").wait()
    log.torch("Exception error: ptxas", level="E")
    log.torch(f"died here for benchmark choice {caller('a4')}", level="E")
    group = judged(log).groups[0]
    assert stuck_names(group) == ["b4.py"]
    assert group.failed[0].message == snapshot


def test_what_has_not_begun_waits_for_a_thread(judged) -> None:  # type: ignore[no-untyped-def]
    log = LogText().group("a4", "b8", threads=2)
    log.torch(f"Submitted precompile for choice: {caller('c4')}").wait().finish("a4")
    group = judged(log).groups[0]
    assert stuck_names(group) == ["b8.py"]
    assert [state.choice.short_name for state in group.queued] == ["c4.py"]


def test_a_choice_that_is_skipped_is_not_stuck(judged) -> None:  # type: ignore[no-untyped-def]
    log = LogText().group("a4", "b4")
    log.torch(f"Skipping already seen choice: {caller('c4')}").wait().finish("a4")
    assert stuck_names(judged(log).groups[0]) == ["b4.py"]


def test_torch_still_waits_for_threads_that_timed_out(judged) -> None:  # type: ignore[no-untyped-def]
    log = LogText().group("a4", "b8").wait().finish("a4")
    log.torch("Precompilation timeout after 300s: 1 of 2 futures did not complete", level="W")
    log.torch(f"Marking choice as failed due to timeout: {caller('b8')}", level="W")
    answer = judged(log)
    assert (answer.kind, answer.confidence) == (Kind.COMPILE_HANG, "proven")
    assert stuck_names(answer.groups[0]) == ["b8.py"]
    assert answer.groups[0].timed_out_after == 300


def test_but_not_once_it_went_on(judged) -> None:  # type: ignore[no-untyped-def]
    log = LogText().group("a4", "b8").wait().finish("a4")
    log.torch(f"Marking choice as failed due to timeout: {caller('b8')}", level="W")
    log.torch("Precompilation elapsed time: 300.02s").torch("Starting autotuning")
    log.torch("Autotuning elapsed time: 0.10s").torch("fusing", module="scheduler.py")
    answer = judged(log)
    assert (answer.kind, answer.stage) == (Kind.INDUCTOR, "scheduler")


def test_a_later_stage_of_the_same_compile_shows_that_nothing_is_stuck(judged) -> None:  # type: ignore[no-untyped-def]
    log = LogText().group("a4", "b8").wait().finish("a4")
    log.torch("Generating kernel code", module="torch/_inductor/codegen/simd.py")
    assert judged(log).kind is Kind.INDUCTOR


def test_a_group_that_nobody_waits_for_is_pending(judged) -> None:  # type: ignore[no-untyped-def]
    log = LogText().group("a4", "b4").group("c4", "d4").wait().finish("c4")
    answer = judged(log)
    assert [stuck_names(group) for group in answer.groups] == [["d4.py"]]


def test_the_same_choice_in_two_groups(judged) -> None:  # type: ignore[no-untyped-def]
    log = LogText().group("a4", "b4").wait().finish("a4", "b4")
    log.torch("Precompilation elapsed time: 2s").torch("Starting autotuning")
    log.torch("Autotuning elapsed time: 0.10s")
    log.group("a4", "b4").wait().finish("b4")
    assert [stuck_names(group) for group in judged(log).groups] == [["a4.py"]]


def test_a_wait_for_one_of_several_groups_says_so(judged, snapshot: SnapshotAssertion) -> None:  # type: ignore[no-untyped-def]
    answer = judged(LogText().group("a4", "b4").group("c4").wait())
    assert answer.kind is Kind.COMPILE_HANG
    assert answer.title == snapshot
    assert all(not group.stuck for group in answer.groups)


def test_at_level_info_the_names_are_missing(judged, snapshot: SnapshotAssertion) -> None:  # type: ignore[no-untyped-def]
    log = LogText()
    log.torch("Multithreaded precompilation for 9 choices using 4 worker threads", level="I")
    log.finish("a4", "b4")
    answer = judged(log)
    assert answer.title == snapshot
    assert 'TORCH_LOGS="+inductor"' in answer.advice[0]


def test_a_log_that_ends_with_submissions(judged, snapshot: SnapshotAssertion) -> None:  # type: ignore[no-untyped-def]
    log = LogText()
    log.torch("Multithreaded precompilation for 9 choices using 4 worker threads", level="I")
    answer = judged(log)
    assert (answer.kind, answer.confidence) == (Kind.COMPILE_HANG, "likely")
    assert answer.title == snapshot


def test_an_error_before_the_stop_is_said(judged) -> None:  # type: ignore[no-untyped-def]
    log = LogText().torch("worker 3 died", level="E", module="async_compile.py")
    answer = judged(log.group("a4", "b8").wait().finish("a4"))
    assert answer.kind is Kind.COMPILE_HANG
    assert "1 logged error; the first: worker 3 died" in answer.notes[0]


def test_a_stall_in_benchmarking_of_compiled_choices(judged) -> None:  # type: ignore[no-untyped-def]
    log = LogText().group("a4").wait().finish("a4")
    log.torch("Precompilation elapsed time: 2s").torch("Starting autotuning")
    answer = judged(log)
    assert answer.kind is Kind.BENCHMARK_HANG
    assert "All choices are compiled" in answer.advice[0]


def test_old_pythons_compile_while_they_benchmark(judged, snapshot: SnapshotAssertion) -> None:  # type: ignore[no-untyped-def]
    log = LogText().torch("Max autotune selects from 12 choices.").torch("Starting precompilation")
    log.torch("[BENCHMARK DEBUG] Starting autotuning for 'addmm' with shapes: [], device: cuda")
    log.torch("Precompilation elapsed time: 0.00s").torch("Starting autotuning")
    answer = judged(log)
    assert answer.kind is Kind.BENCHMARK_HANG
    assert answer.title == snapshot
    assert "Python 3.11.8 and older" in answer.advice[0]


def test_the_table_of_results_ends_a_group(judged) -> None:  # type: ignore[no-untyped-def]
    log = LogText().group("a4", "b4").wait().finish("a4", "b4")
    log.torch("Starting autotuning").raw("AUTOTUNE mm(8x8, 8x8)")
    assert judged(log).kind is not Kind.BENCHMARK_HANG


def test_a_thread_may_be_faster_than_the_one_that_submits(judged) -> None:  # type: ignore[no-untyped-def]
    log = LogText()
    log.torch("Multithreaded precompilation for 2 choices using 2 worker threads", level="I")
    log.start("a4").torch(f"Submitted precompile for choice: {caller('a4')}")
    log.torch(f"Submitted precompile for choice: {caller('b4')}").start("b4")
    log.wait().finish("a4")
    group = judged(log).groups[0]
    assert (len(group.submitted), stuck_names(group)) == (2, ["b4.py"])


def test_a_log_that_is_cut_at_its_start(judged) -> None:  # type: ignore[no-untyped-def]
    log = LogText().group("a4", "b4", "c4").wait().finish("a4")
    del log.lines[:4]
    assert "b4.py" in stuck_names(judged(log).groups[0])


def test_single_messages_can_be_taken_too() -> None:
    fold = AutotuneFold()
    origin = Origin(Program("live", process=1), compile_id="0/0")
    for text in (
        f"Submitted precompile for choice: {caller('a4')}",
        f"Submitted precompile for choice: {caller('b4')}",
        "Waiting on futures",
        f"Precompiling benchmark choice {caller('a4')} took 0.50s",
    ):
        fold.take(text, origin)
    fold.take("something else", origin)
    (group,) = fold.groups
    assert group.stage is GroupState.AWAITED
    assert [state.seconds for state in group.finished] == [0.5]
    assert stuck_names(group) == ["b4.py"]
