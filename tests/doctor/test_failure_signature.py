"""Signs of failure: what the end of a fork says, and which failures are the machine's."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest
import torch
import torch._inductor.config
from torch._inductor.kernel.custom_op import CustomOpConfig, register_custom_op_autotuning

from inductoscope.doctor.failure import (
    ERROR,
    HANG,
    LOST_CHECK,
    NAN,
    SIGNAL,
    WRONG,
    Failure,
    advice_on_machine,
)
from inductoscope.errors import ToolFailure
from inductoscope.inside.repro.replaced_functions import check_tuned_operators
from inductoscope.inside.search.failure_signature import failure_of_answer, failure_of_error
from inductoscope.inside.search.forks import ForkAnswer
from inductoscope.inside.search.location import is_benchmark
from inductoscope.recording.codec import encode
from inductoscope.recording.events import CompileFailed, Event, KernelLaunched, StageEnd, StageStart
from support.examples import entries

# --- a fork that was given up ---------------------------------------------------------------------


def given_up(entered_at: float) -> Failure:
    """The failure of a fork that was ended after 60 s, in a stage that it entered then."""
    fusing = entries(StageStart(stage="scheduler", detail="op3"))
    answer = ForkAnswer(timed_out=True, seconds=60.0, entered_at=entered_at, entries=fusing)
    found = failure_of_answer(answer)
    assert found is not None
    assert (found.kind, found.text) == (HANG, "not finished after 60 s")
    return found


def test_a_fork_that_spent_its_time_in_a_stage_hangs_there() -> None:
    assert (given_up(entered_at=5.0).stage, given_up(entered_at=29.0).stage) == ("scheduler",) * 2


def test_a_fork_that_had_only_just_come_to_a_stage_is_not_said_to_hang_there() -> None:
    assert (given_up(entered_at=31.0).stage, given_up(entered_at=59.0).stage) == ("", "")


def test_a_hang_and_a_slow_compile_are_not_one_bug() -> None:
    assert given_up(entered_at=5.0).is_same_as(given_up(entered_at=10.0))
    assert not given_up(entered_at=5.0).is_same_as(given_up(entered_at=59.0))


def lost(eager_error: str, aspect: str = "") -> Failure:
    return Failure(LOST_CHECK, "text", aspect=aspect, eager_error=eager_error)


def test_a_lost_check_is_the_same_whatever_its_numbers() -> None:
    outside = lost("IndexError: index 7 is out of bounds for dimension 0")
    assert outside.is_same_as(lost("IndexError: index 1 is out of bounds for dimension 2"))
    assert not outside.is_same_as(lost("IndexError: too many indices for tensor of dimension 2"))
    assert not outside.is_same_as(replace(outside, aspect="RuntimeError"))


def test_a_fork_that_died_says_what_eager_had_raised() -> None:
    note = {"kind": "note", "eager_error": "IndexError: index 7", "node": "getitem"}
    found = failure_of_answer(ForkAnswer(signal=signal.SIGABRT, notes=[note]))
    assert found is not None
    told = (found.kind, found.eager_error, found.detail)
    assert told == (SIGNAL, "IndexError: index 7", "getitem")


# --- a fork that ended by itself ------------------------------------------------------------------


def test_a_fork_without_a_failure_has_none() -> None:
    assert failure_of_answer(ForkAnswer(is_done=True, result={"failure": None})) is None


@pytest.mark.parametrize(
    ("events", "stage", "text"),
    [
        (
            [StageStart(stage="codegen")],
            "codegen",
            "the process died of SIGSEGV in stage codegen",
        ),
        (
            [KernelLaunched(kernel="cpp_fused_sin_0")],
            "runtime",
            "the process died of SIGSEGV in kernel cpp_fused_sin_0",
        ),
        ([], "runtime", "the process died of SIGSEGV in stage runtime"),
    ],
    ids=["in the compiler", "in a kernel", "without a word"],
)
def test_a_fork_that_was_killed_tells_where(events: list[Event], stage: str, text: str) -> None:
    found = failure_of_answer(ForkAnswer(signal=signal.SIGSEGV, entries=entries(*events)))
    assert found is not None
    assert (found.kind, found.stage, found.text) == (SIGNAL, stage, text)


def error_in(stage: str, detail: str = "", graph: str = "") -> CompileFailed:
    return CompileFailed(
        stage=stage, detail=detail, graph=graph, type="KeyError", message="1", traceback=""
    )


def test_an_error_is_put_into_the_stage_that_the_hooks_saw() -> None:
    raised = encode(Failure(ERROR, "KeyError: 1", aspect="KeyError"))
    seen = entries(error_in("lowering", detail="aten.sin", graph="0/0"))
    found = failure_of_answer(ForkAnswer(result={"failure": raised}, entries=seen))
    assert found is not None
    assert (found.stage, found.detail) == ("lowering", "aten.sin")
    unseen = failure_of_answer(ForkAnswer(result={"failure": raised}))
    assert unseen is not None
    assert unseen.stage == "runtime"


def test_what_fails_between_stages_fails_over_what_the_last_one_left() -> None:
    ended = [StageEnd(stage=name, seconds=0.0) for name in ("joint-pass", "guards")]
    seen = entries(*ended, error_in("inductor"))
    raised = encode(Failure(ERROR, "RuntimeError: no", aspect="RuntimeError"))
    found = failure_of_answer(ForkAnswer(result={"failure": raised}, entries=seen))
    assert found is not None
    assert (found.stage, found.after) == ("inductor", "joint-pass")


# --- what is the machine's ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "advice"),
    [
        (Failure(ERROR, "", aspect="InvalidCxxCompiler"), "name one that works in CXX"),
        (Failure(ERROR, "", aspect="TritonMissing"), "Install triton"),
        (
            Failure(ERROR, "", message="'9' is not a valid IntermediateValueDebuggingLevel"),
            "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER",
        ),
        (Failure(ERROR, "OSError: [Errno 28] No space left on device"), "another TMPDIR"),
        (Failure(ERROR, "", message="cc1plus: Disk quota exceeded"), "another TMPDIR"),
        (
            Failure(ERROR, "", message="g++: Killed signal terminated program cc1plus"),
            "more of it",
        ),
        (Failure(ERROR, "OSError: [Errno 12] Cannot allocate memory"), "let less run"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_for_a_failure_of_the_machine_there_is_advice(failure: Failure, advice: str) -> None:
    assert advice in advice_on_machine(failure)


@pytest.mark.parametrize(
    "failure",
    [
        Failure(ERROR, "CppCompileError: 'tmp0' was not declared", aspect="CppCompileError"),
        Failure(WRONG, "output 0 is 2, in eager 1", aspect="value"),
        Failure(HANG, "not finished after 60 s: No space left on device"),
    ],
    ids=["the compiler's", "a wrong result", "a hang"],
)
def test_for_a_failure_of_the_compiler_there_is_none(failure: Failure) -> None:
    assert advice_on_machine(failure) == ""


# --- memory that was filled -----------------------------------------------------------------------


def test_what_was_never_written_is_nan_in_filled_memory_and_anything_in_the_program() -> None:
    in_program = Failure(WRONG, "output 0 is 0, in eager 8.5", aspect="value")
    in_filled = Failure(NAN, "output 0 is nan", aspect="nan", memory_was_filled=True)
    assert in_filled.is_same_as(in_program)
    assert in_program.updated_with(in_filled) == in_program, "the verdict is about the program"
    in_usual = Failure(NAN, "output 0 is nan", aspect="nan")
    assert not in_usual.is_same_as(in_program), "another bug"


def test_a_kernel_complains_alike_in_a_package_and_without_one() -> None:
    """So what fails in a package can be searched with torch.compile, which is much faster."""
    said = "index out of bounds: 0 <= tmp2 < 10L"
    alone = failure_of_error(RuntimeError(f"kernel, /tmp/cache/pz/cpzp.main.cpp:21, {said}"))
    packaged = failure_of_error(
        RuntimeError(f"{said}\nException raised from cpp_fused_1 at /tmp/cpzp.kernel.cpp:86")
    )
    assert alone.text == packaged.text == f"RuntimeError: {said}"
    assert alone.is_same_as(packaged)


# --- while choices are timed ----------------------------------------------------------------------


@torch.library.custom_op("signature::pick", mutates_args=())
def pick(table: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    if int(place.min()) < 1:
        raise ValueError("places count from 1")
    return table[place - 1]


@pick.register_fake
def _(table: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    return table.new_empty(place.shape[0], table.shape[1])


def test_an_operator_that_refuses_the_inputs_of_a_benchmark() -> None:
    """Inductor makes up inputs to time choices with; its integers are zeros."""
    register_custom_op_autotuning(
        pick, configs=[CustomOpConfig(lambda table, place: table.index_select(0, place - 1))]
    )
    table, place = torch.randn(5, 4), torch.tensor([1, 5])
    assert torch.equal(torch.ops.signature.pick(table, place), table[[0, 4]])
    with (
        torch._inductor.config.patch(force_disable_caches=True),
        pytest.raises(Exception, match="places count from 1") as raised,
    ):
        torch.compile(torch.ops.signature.pick)(table, place)
    failure = failure_of_error(raised.value)
    assert failure.kind == ERROR
    assert is_benchmark(failure.functions)
    # A script without the registration would not fail.
    graph = torch.fx.Graph()
    graph.call_function(torch.ops.signature.pick.default, (graph.placeholder("a"),) * 2)
    with pytest.raises(ToolFailure, match=r"variants of signature\.pick\.default"):
        check_tuned_operators(torch.fx.GraphModule({}, graph))


def test_an_operator_that_refuses_the_programs_own_inputs_is_no_benchmark() -> None:
    with pytest.raises(ValueError, match="places count from 1") as raised:
        torch.ops.signature.pick(torch.randn(5, 4), torch.tensor([0]))
    assert not is_benchmark(failure_of_error(raised.value).functions)
