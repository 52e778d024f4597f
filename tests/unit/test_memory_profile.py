"""Where memory goes, without torch: plans of wrappers, lives of blocks, results of two runs."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.profiling import memory_trials
from inductoscope.profiling.memory_blocks import StepProfile, devices_of, profiles_of
from inductoscope.profiling.memory_trace import (
    WEIGHT,
    AllocationEvent,
    CallResult,
    HeldMemory,
    NamedMemory,
    ProcessMemory,
    StepPeak,
    TensorSummary,
    TracedStep,
    WrapperCall,
)
from inductoscope.profiling.memory_trials import alternatives_for, compare_results
from inductoscope.profiling.timings import read_measured, write_measured
from inductoscope.profiling.turns import ProgramRuns, TimedRun
from inductoscope.torch_facts.python_wrappers import named_wrapper, plan_of
from inductoscope.views.report.memory_profile import print_memory
from inductoscope.views.report.terminal import Printer
from support.json_schema import violations

EXAMPLE = Path(__file__).resolve().parents[1] / "data" / "profiles" / "memory.json"

# Two products in a row. The second one could not write over what it reads.
WRAPPER = """\
class Runner:
    def call(self, args):
        primals_1, primals_2, s0 = args
        args.clear()
        buf0 = empty_strided_cpu((s0, 256), (256, 1), torch.float32)
        extern_kernels.mm(primals_1, primals_2, out=buf0)
        del primals_1
        buf1 = buf0; del buf0  # reuse
        cpp_fused_sin_0(buf1)
        buf2 = empty_strided_cpu((s0, 256), (256, 1), torch.float32)
        extern_kernels.mm(buf1, primals_2, out=buf2)
        del buf1
        return (buf2, )

runner = Runner()
call = runner.call
"""
MIB = 1 << 20


# --- what a wrapper plans for ---------------------------------------------------------------------


def test_a_plan_is_what_a_wrapper_holds_at_once() -> None:
    plan = plan_of(WRAPPER, {"s0": 1024}, {"primals_1": MIB, "primals_2": 1024}.get)
    assert plan is not None
    assert (plan.peak, plan.unknown) == (2 * MIB, ())
    assert set(plan.at_peak) == {"primals_2", "buf0", "buf2"}
    (missed,) = plan.missed
    assert (missed.new, missed.old, missed.kernel) == ("buf2", "buf0", "extern_kernels.mm")
    assert "library" in missed.reason


def test_an_input_that_nobody_else_holds_is_free_once_it_was_read() -> None:
    sizes = {"primals_1": MIB, "primals_2": 1024}
    plan = plan_of(WRAPPER, {"s0": 1024}, sizes.get, frozenset({"primals_1"}))
    assert plan is not None
    assert plan.peak == MIB


def test_a_size_that_nobody_knows_makes_the_plan_incomplete() -> None:
    plan = plan_of(WRAPPER, {}, lambda name: None)
    assert plan is not None
    assert plan.unknown == ("buf0", "buf2")


def test_what_is_no_wrapper_has_no_plan() -> None:
    assert plan_of("this is not Python (", {}, lambda name: None) is None
    assert plan_of("x = 1", {}, lambda name: None) is None


def test_a_rewritten_wrapper_returns_what_it_returned_and_names_its_memory() -> None:
    code = named_wrapper("wrapper.py", WRAPPER)
    assert code is not None
    named: dict[str, Any] = {}
    left: list[Any] = []
    scope: dict[str, Any] = {
        "empty_strided_cpu": lambda *sizes: list(sizes),
        "torch": type("torch", (), {"float32": 4}),
        "extern_kernels": type("kernels", (), {"mm": staticmethod(lambda *a, out: None)}),
        "cpp_fused_sin_0": lambda buffer: None,
        "inductoscope_entered": lambda: None,
        "inductoscope_named": named.update,
        "inductoscope_left": left.append,
    }
    exec(code, scope)
    result = scope["call"](["x", "w", 3])
    assert left == [result]
    assert result[0] is named["buf2"]
    assert named["buf1"] is named["buf0"]
    assert named["primals_1"] == "x"


# --- lives of blocks ------------------------------------------------------------------------------


def traced() -> TracedStep:
    """A weight of 100 bytes, a temporary of 60 whose address is used again, an output of 30."""
    return TracedStep(
        function="step",
        kind="function",
        place="bench.py:4",
        number=2,
        begin=1_000_000_000,
        end=1_009_000_000,
        events=(
            event(1_001_000_000, 7, 60, 160),
            event(1_002_000_000, 8, 30, 190),
            event(1_003_000_000, 7, -60, 130),
            event(1_004_000_000, 7, 10, 140),
            event(1_005_000_000, 9, -5, 135),
        ),
        names=(
            NamedMemory(1_001_000_500, 7, 60, "buf0", "w.py"),
            NamedMemory(1_002_000_500, 8, 30, "buf1", "w.py"),
        ),
        calls=(WrapperCall("w.py", 1_000_500_000, 1_003_500_000, returned=(8,)),),
        before=(HeldMemory(1, 95, "cpu", WEIGHT, "layer.weight"),),
    )


def event(at: int, address: int, size: int, total: int) -> AllocationEvent:
    return AllocationEvent(at, address, size, total, "cpu", "aten::mm")


def test_every_byte_at_the_peak_belongs_to_a_block() -> None:
    (device,) = devices_of(traced())
    assert (device.base, device.peak, device.unknown) == (100, 190, 0)
    assert [block.bytes for block in device.at_peak] == [95, 60, 30, 5]
    assert sum(block.bytes for block in device.at_peak) + device.unknown == device.peak
    assert {b.bytes: [n.name for n in b.names] for b in device.blocks if b.names} == {
        60: ["buf0"],
        30: ["buf1"],
    }


def test_blocks_say_what_they_are() -> None:
    (profile,) = profiles_of((ProcessMemory(1, (traced(),)),))
    kinds = {block.bytes: profile.labels[block.number].kind for block in profile.device.blocks}
    assert kinds == {95: "weight", 60: "temporary", 30: "output", 10: "eager operation", 5: "held"}
    (call,) = profile.calls
    assert (call.measured, call.predicted, call.agrees) == (90, None, False)


def test_what_eager_makes_is_put_down_to_the_programs_line() -> None:
    made = NamedMemory(1_001_000_500, 7, 60, "aten.sin.default", "", "model.py:3")
    (profile,) = profiles_of((ProcessMemory(1, (replace(traced(), names=(made,), calls=()),)),))
    labels = {block.bytes: profile.labels[block.number] for block in profile.device.blocks}
    assert (labels[60].kind, labels[60].name) == ("eager operation", "")
    assert (labels[60].operation, labels[60].source) == ("aten.sin.default", "model.py:3")
    assert (labels[30].operation, labels[30].source) == ("aten::mm", "")


def test_what_a_process_writes_is_read_back(tmp_path: Path) -> None:
    found = ProcessMemory(7, (traced(),), notes=("a note",))
    write_measured(found, tmp_path)
    (tmp_path / "8.ProcessMemory.json").write_text('{"pid": ')
    assert read_measured(ProcessMemory, tmp_path) == (found,)


def test_a_step_whose_memory_was_not_seen_counts_as_none() -> None:
    seen = StepPeak("step", 2, {"cpu": 190}), StepPeak("step", 3, {}), StepPeak("step", 4, {"x": 1})
    (profile,) = profiles_of((ProcessMemory(1, (traced(),), seen),))
    assert (profile.peaks, profile.varies) == ({2: 190}, False)


def test_sizes_of_buffers_with_less_than_a_byte_and_with_a_largest() -> None:
    text = WRAPPER.replace("torch.float32", "torch.bits4x2").replace("(s0, 256)", "(max(1, s0), 4)")
    plan = plan_of(text, {"s0": 1024}, lambda name: 0)
    assert plan is not None
    assert (plan.peak, plan.unknown) == (2 * (1023 * 256 + 4), ())


# --- what is worth a trial ------------------------------------------------------------------------


def test_a_small_program_has_nothing_to_gain() -> None:
    (profile,) = profiles_of((ProcessMemory(1, (traced(),)),))
    assert alternatives_for(profile, {}) == ()


def test_temporaries_at_the_peak_are_worth_another_plan() -> None:
    large = enlarged(traced())
    changes = [each.change for each in alternatives_for(large, {})]
    assert changes == [
        "torch._inductor.config.memory_planning = True",
        "torch._inductor.config.reorder_for_peak_memory = False",
    ]
    off = {"torch._inductor.config.inplace_buffers": "False"}
    assert "torch._inductor.config.inplace_buffers = True" in [
        each.change for each in alternatives_for(large, off)
    ]


def enlarged(step: TracedStep) -> StepProfile:
    events = tuple(replace(e, bytes=e.bytes * MIB, total=e.total * MIB) for e in step.events)
    (profile,) = profiles_of((ProcessMemory(1, (replace(step, events=events, before=()),)),))
    return profile


# --- results of two runs --------------------------------------------------------------------------


def result(total: float, norm: float = 10.0, dtype: str = "torch.float32") -> CallResult:
    return CallResult("function f", 1, (TensorSummary((4, 4), dtype, total, norm, (total,)),))


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        (result(1.0), result(1.0), True),
        (result(1.0), result(1.00001), True),
        (result(1.0), result(1.1), False),
        (result(1.0, dtype="torch.bfloat16"), result(1.01, dtype="torch.bfloat16"), True),
        (result(float("nan")), result(float("nan")), True),
        (result(1.0), result(float("nan")), False),
        (result(1.0), CallResult("function f", 1, ()), False),
        # Nothing that both returned: nothing is known.
        (result(1.0), CallResult("function g", 1, ()), False),
    ],
)
def test_results_are_the_same_within_rounding(
    first: CallResult, second: CallResult, is_same: bool
) -> None:
    assert compare_results([first], [second]).is_same is is_same


@dataclass(frozen=True)
class Rerun:
    """The program as it is, run again: how it ended, and what its calls returned."""

    exit_code: int | None
    seen: tuple[ProcessMemory, ...]
    why: str


@pytest.mark.parametrize(
    "again",
    [
        Rerun(0, (ProcessMemory(2, results=(result(1.0),)),), ""),
        Rerun(0, (ProcessMemory(2, results=(result(9.0),)),), "results differ from run to run"),
        Rerun(0, (), "gave no results to compare"),
        Rerun(3, (), "ended with exit code 3"),
        Rerun(None, (), "did not end in time"),
    ],
)
def test_results_differ_from_run_to_run_only_if_a_second_run_shows_it(
    again: Rerun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way that is tried gives other results; what that says depends on the program itself."""
    large = enlarged(traced())
    alternative = alternatives_for(large, {})[0]
    peaks = (StepPeak("step", 2, {"cpu": 1}),)
    tried = (ProcessMemory(3, peaks=peaks, results=(result(5.0),)),)
    runs = {
        alternative.change: (TimedRun(0, 1.0, ()), tried),
        memory_trials.BASE.name: (TimedRun(again.exit_code, 1.0, ()), again.seen),
    }
    monkeypatch.setattr(memory_trials, "run_traced", lambda given, variant: runs[variant.name])
    base = (ProcessMemory(1, results=(result(1.0),)),)
    given = ProgramRuns([], tmp_path, print)
    (found,) = memory_trials.try_alternatives(given, large, base, [alternative])
    # Results that judge nothing are not shown as if they did.
    assert bool(found.results and found.results.different) is (again.why == "")
    assert (again.why in found.error) if again.why else (found.error == "")
    assert ("from run to run" in found.error) is ("from run to run" in again.why)


# --- on the terminal ------------------------------------------------------------------------------


def test_what_is_wrapped_stays_in_its_column() -> None:
    view = json.loads(EXAMPLE.read_text("utf-8"))
    block = max((b for b in view["steps"][0]["blocks"] if b["at_peak"]), key=lambda b: b["bytes"])
    block |= {"bytes": 1 << 30, "kind": "saved for backward", "name": "a" * 40, "graph": "b" * 40}
    out = io.StringIO()
    printer = Printer(out)
    assert printer.width == 80
    print_memory(printer, view)
    lines = out.getvalue().splitlines()
    place = next(n for n, line in enumerate(lines) if "a" * 40 in line)
    assert max(map(len, lines)) <= 80
    assert lines[place + 1].startswith(" " * 16)
    assert lines[place + 1].strip().startswith("b")


def test_blocks_that_were_not_kept_are_told(snapshot: SnapshotAssertion) -> None:
    view = json.loads(EXAMPLE.read_text("utf-8"))
    view["steps"][0]["left_out"] = {"blocks": 1250, "bytes_at_peak": 40960}
    out = io.StringIO()
    print_memory(Printer(out), view)
    (told,) = [line for line in out.getvalue().splitlines() if "not kept" in line]
    assert " ".join(told.split()) == snapshot


# --- as JSON --------------------------------------------------------------------------------------


def test_the_kept_example_is_as_the_schema_says_and_adds_up() -> None:
    view = json.loads(EXAMPLE.read_text("utf-8"))
    assert violations("profile", view) == []
    (step,) = view["steps"]
    there = sum(block["bytes"] for block in step["blocks"] if block["at_peak"])
    assert there + step["unknown_bytes"] == step["peak_bytes"]
    assert max(event["total"] for event in step["events"]) == step["peak_bytes"]
    assert step["events"][-1]["total"] == step["end_bytes"]
    # What the wrappers plan for is what was measured.
    assert [graph["agrees"] for graph in step["graphs"]] == [True, True]
