"""Calls that are too large to be copied: made again on the program's own tensors, in tiles.

The tensors of most tests are small; what makes a call large is tried in whole programs at the end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx import GraphModule, symbolic_trace

from inductoscope.doctor.instructions import Instructions
from inductoscope.hangs.watch.stall import patience_of_doctor
from inductoscope.inside.compare import reference
from inductoscope.inside.compare.bug_or_rounding import EagerComparison
from inductoscope.inside.compare.graphs import ValuesInStep, as_function
from inductoscope.inside.compare.kernels import _judge_in_step
from inductoscope.inside.compare.large_calls import (
    CannotJudge,
    LargeCall,
    is_lack_of_memory,
    written_inputs,
)
from inductoscope.inside.compare.value_in_tiles import ValueInTiles
from inductoscope.inside.compare.values import memory_of, run
from inductoscope.inside.doctor import checked_graph
from inductoscope.inside.doctor.checked_graph import CheckedGraph
from inductoscope.inside.doctor.large_checks import distinct_blocks
from inductoscope.inside.memory_budget import has_room_for_copies
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.time_share import TimeShare
from inductoscope.model.process_position import ProcessPosition
from inductoscope.processes.memory import _cgroups_of
from inductoscope.recording.events import CallsUnchecked, Check, CompiledReturned, Entry
from support.graphs import captured, numbers
from support.programs import ONE_PROOF, Workplace

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tensor here has several tiles."""
    monkeypatch.setattr(reference, "TILE", 100)
    monkeypatch.setattr(reference, "_MANY", 100)


# --- which inputs are copied: those that the graph writes to --------------------------------------


def reads(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * 2 + y


def adds_in_place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(y)
    return x * 2


def writes_through_a_view(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x[0].data.copy_(y[0])
    return x + y


@pytest.mark.parametrize(
    ("function", "written"),
    [(reads, set()), (adds_in_place, {0}), (writes_through_a_view, {0})],
)
def test_operations_say_what_they_write_to(function: Function, written: set[int]) -> None:
    arguments = numbers(4, 4), numbers(4, 4)
    assert written_inputs(symbolic_trace(function), arguments) == written


def test_a_view_of_a_written_input_is_written_to_as_well() -> None:
    x = numbers(4, 4)
    assert written_inputs(symbolic_trace(adds_in_place), (x, x[1])) == {0, 1}


@pytest.mark.parametrize("error", [None, ValueError("a fault of the compiled code")])
def test_nothing_is_copied_and_what_the_program_holds_stays_as_it_was(
    error: Exception | None,
) -> None:
    x, y = numbers(30, 30), numbers(30, 30).cos()
    x.requires_grad_()
    saved = x.sin()  # For a backward pass of the program, which is to come.
    before = x.detach().clone()
    given: list[Any] = []

    def compiled(*inputs: torch.Tensor) -> torch.Tensor:
        given.append([memory_of(value) for value in inputs])
        result = adds_in_place(*inputs)
        if error is not None:
            raise error
        return result

    found = call_of(adds_in_place, x.detach(), y).beside_eager(compiled)
    assert found.error is error
    assert given == [[memory_of(x), memory_of(y)]]
    assert torch.equal(x, before)
    saved.sum().backward()


def test_autocast_keeps_no_casts_of_parameters() -> None:
    """They would stay until the program leaves autocast: half of a model in float32."""
    keeps: list[bool] = []

    def compiled(*inputs: torch.Tensor) -> torch.Tensor:
        keeps.append(torch.is_autocast_cache_enabled())
        return reads(*inputs)

    with torch.autocast("cpu", torch.bfloat16):
        call_of(reads, numbers(30, 30), numbers(30, 30)).beside_eager(compiled)
        assert torch.is_autocast_cache_enabled()
    assert keeps == [False]


def test_a_wrong_step_of_a_compiled_optimizer_is_found() -> None:
    """Its graph writes to nearly all of its inputs."""
    given = [numbers(30, 40).mul(n) for n in (1, 2, 3)]

    def step(momentum: torch.Tensor, gradient: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        momentum.mul_(0.9).add_(gradient)
        weight.sub_(momentum, alpha=0.01)
        return momentum.sum()

    def wrong(momentum: torch.Tensor, gradient: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        result = step(momentum, gradient, weight)
        weight[1, 7] += 0.5
        return result

    assert call_of(step, *given).beside_eager(step).comparison.is_exact
    (item,) = call_of(step, *given).beside_eager(wrong).comparison.wrong
    assert item.where.startswith("input 2 after the call")


@torch.library.custom_op("large_calls::count_up", mutates_args=())
def count_up(x: torch.Tensor) -> torch.Tensor:
    """Write to the argument, which the schema denies."""
    x.data.add_(1)
    return x.clone()


@count_up.register_fake
def _count_up(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_what_an_operator_writes_to_against_its_schema_is_undone() -> None:
    x = torch.zeros(30, 30)
    found = call_of(count_up, x).beside_eager(count_up).comparison
    assert found is not None
    assert found.is_exact
    assert not x.any()


def test_a_call_that_fails_midway_leaves_gradients_and_autocast_as_they_were() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad(), torch.autocast("cpu"):
            return x @ x

    module = captured(function, numbers(4, 4))
    assert written_inputs(module, [numbers(4, 3)]) is None
    with pytest.raises(RuntimeError):
        run(as_function(module), [numbers(4, 3)], backward=False)
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")


def test_sizes_that_depend_on_values_do_not_hinder_a_check() -> None:
    def nonzero(x: torch.Tensor) -> torch.Tensor:
        return x.nonzero()

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        module = captured(nonzero, numbers(4, 4))
    assert has_room_for_copies([numbers(4, 4)], module)
    assert written_inputs(module, [numbers(4, 4)]) == set()


# --- the judgement is the same as for small calls -------------------------------------------------


def call_of(function: Function, *arguments: torch.Tensor, backward: bool = False) -> LargeCall:
    module = captured(function, *arguments)
    written = written_inputs(module, arguments)
    assert written is not None
    return LargeCall(module, arguments, written, backward)


def compared(eager: Function, compiled: Function, *, backward: bool = False) -> EagerComparison:
    x = numbers(30, 30).requires_grad_(backward)
    found = call_of(eager, x, backward=backward).beside_eager(compiled).comparison
    assert found is not None
    return found


def product(x: torch.Tensor) -> torch.Tensor:
    return (x @ x.T).softmax(-1)


def one_is_off(x: torch.Tensor) -> torch.Tensor:
    found = product(x)
    found[17, 3] += 0.01
    return found


def one_is_nan(x: torch.Tensor) -> torch.Tensor:
    found = product(x)
    found[17, 3] = torch.nan
    return found


def test_the_same_values_are_right_to_the_last_bit() -> None:
    found = compared(product, product)
    assert found.is_exact
    assert not found.explained


def test_another_order_of_a_sum_is_within_rounding() -> None:
    found = compared(lambda x: x.sum() * 1000, lambda x: x.T.contiguous().sum(0).sum() * 1000)
    assert not found.wrong


@pytest.mark.parametrize(("compiled", "shown"), [(one_is_off, "index"), (one_is_nan, "nan")])
def test_one_wrong_element_is_found_in_its_tile(compiled: Function, shown: str) -> None:
    (wrong,) = compared(product, compiled).wrong
    assert shown in wrong.text
    assert wrong.text.startswith("output 0[")
    assert "1 of" in wrong.text


def test_a_wrong_integer_is_found() -> None:
    (wrong,) = compared(lambda x: (x > 0).int(), lambda x: (x > 0.5).int()).wrong
    assert "which rounding does not explain" in wrong.text


def test_where_integers_differ_most_they_are_judged() -> None:
    """Rounding explains one flipped integer in each of three tiles, and nothing of another."""
    seen = ValueInTiles(torch.zeros(10, 100, dtype=torch.int64))
    flipped = torch.zeros(10, 100, dtype=torch.int64)
    flipped[:3, 5] = 1
    wrong = flipped.clone()
    wrong[7] = 99
    seen.take_compiled(wrong)
    seen.take_sample(flipped)
    difference, is_wrong = seen.judged("output 0", ())
    assert is_wrong
    assert "output 0[7:8]" in difference.text


def test_nan_of_the_program_that_torch_refuses_is_no_fault_of_the_compiler() -> None:
    x = numbers(30, 30)
    x[2, 3] = torch.nan

    def checked(x: torch.Tensor) -> torch.Tensor:
        assert not x.isnan().any().item()
        return x * 2

    found = call_of(lambda x: x * 2, x).beside_eager(checked)
    assert found.refusal is not None
    assert found.refusal.text.startswith("input 0 holds NaN, first at index [2, 3]")


def test_a_wrong_gradient_is_found_though_the_output_is_right() -> None:
    def compiled(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + (x.cos() - x.cos().detach())

    found = compared(lambda x: x.sin(), compiled, backward=True)
    assert [item.where.startswith("gradient") for item in found.wrong] == [True]


def test_a_gradient_has_a_reference_in_float64() -> None:
    x = numbers(30, 30).requires_grad_()
    call = call_of(product, x, backward=True)
    call.beside_eager(lambda x: product(x) * (1 + 1e-5))
    (name,) = [name for name in call._seen if name.startswith("gradient")]
    assert name in call._more_about({name: call._seen[name]})


def test_batch_norm_writes_to_its_statistics_though_no_schema_says_so() -> None:
    norm = torch.nn.BatchNorm1d(30)
    x = numbers(30, 30)

    def function(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.batch_norm(x, mean, var, training=True)

    assert norm.running_mean is not None
    assert norm.running_var is not None
    arguments = x, norm.running_mean, norm.running_var
    call = call_of(function, *arguments)
    assert call.written == {1, 2}
    found = call.beside_eager(function).comparison
    assert found is not None
    assert not found.wrong
    assert not norm.running_mean.any(), "the program's own statistics stay as they were"


def only_complex(x: torch.Tensor) -> torch.Tensor:
    return torch.complex(x, x + 1)


def wrong_complex(x: torch.Tensor) -> torch.Tensor:
    found = only_complex(x)
    found[29, 29] += 1
    return found


@pytest.mark.parametrize(
    ("eager", "compiled"),
    [
        (only_complex, wrong_complex),
        (lambda x: only_complex(x).conj(), lambda x: wrong_complex(x).conj()),
        (lambda x: x.to(torch.float8_e5m2), lambda x: (x * 2).to(torch.float8_e5m2)),
    ],
    ids=["complex", "conjugated", "float8"],
)
def test_results_of_any_kind_are_compared(eager: Function, compiled: Function) -> None:
    assert not compared(eager, eager).wrong
    assert len(compared(eager, compiled).wrong) == 1


def test_a_number_is_compared_as_well() -> None:
    module = symbolic_trace(lambda x: (x * 2, 4))
    call = LargeCall(module, (numbers(3),), frozenset(), backward=False)
    found = call.beside_eager(lambda x: (x * 2, 99)).comparison
    assert found is not None
    assert [item.text for item in found.wrong] == ["output 1 is 99, in eager 4"]


def test_another_shape_is_wrong() -> None:
    (wrong,) = compared(product, lambda x: product(x)[:1]).wrong
    assert wrong.kind == "shape"


def test_a_write_to_an_input_that_eager_only_reads_is_wrong() -> None:
    (wrong,) = compared(lambda x: x * 2, lambda x: x.mul_(2)).wrong
    assert wrong.text == "compiled code writes to input 0, which eager only reads"


def test_noise_is_measured_once_and_serves_later_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    again = LargeCall._run_again

    def counted(self: LargeCall, mode: Any, keep: Any) -> None:
        runs.append(1)
        again(self, mode, keep)

    monkeypatch.setattr(LargeCall, "_run_again", counted)
    x, noise = numbers(30, 30), dict[str, float]()
    function = lambda x: (x @ x.T) * 1000  # noqa: E731
    module = captured(function, x)
    for _ in range(2):
        call = LargeCall(module, (x,), frozenset(), backward=False, known_noise=noise)
        found = call.beside_eager(lambda x: function(x) * (1 + 1.5e-6)).comparison
        assert found is not None
        assert found.is_within_rounding
    assert len(runs) == 1


def test_without_any_sample_of_rounding_nothing_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LargeCall, "_run_again", lambda self, mode, keep: None)
    with pytest.raises(CannotJudge):
        compared(product, lambda x: product(x) * (1 + 1e-3))


def test_values_of_any_shape_are_covered_by_their_tiles() -> None:
    for shape in [(), (0,), (3,), (1000,), (2, 1000), (1000, 2), (1, 7, 300), (3, 1, 1)]:
        value = torch.zeros(shape)
        for place in reference.tiles(value):
            place.of(value).add_(1)
        assert bool((value == 1).all()), shape


def test_infinity_on_both_sides_is_no_difference() -> None:
    seen = ValueInTiles(torch.tensor([1.0, torch.inf, torch.nan]))
    seen.take_compiled(torch.tensor([1.0, torch.inf, torch.nan]))
    assert seen.is_close


# --- values in step with compiled code ------------------------------------------------------------


def test_a_value_is_released_when_no_later_comparison_needs_it() -> None:
    def chain(x: torch.Tensor) -> torch.Tensor:
        return x.sin().cos().tanh()

    x = numbers(4)
    module = captured(chain, x)
    names = [node.name for node in module.graph.nodes if node.op.startswith("call")]
    compared = [(name, {before}) for before, name in zip(["x", *names], names, strict=False)]
    values = ValuesInStep(module, [x], {}, compared)
    made = x
    for name, function in zip(names, (torch.sin, torch.cos, torch.tanh), strict=True):
        made = function(made)
        assert torch.equal(values.value(name), made)
        buffer = torch.zeros(4)
        values.took_from(name, buffer)
        assert torch.equal(buffer, made), "the next kernel reads what eager reads"
    assert not [node for node in values.env if node.op.startswith("call")]


def products(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return ((x @ w) @ w) @ w


def test_for_equal_kernels_noise_is_sampled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong one among them differs by more than that, and is judged by samples of its own."""
    x, w = torch.randn(64, 64).bfloat16(), (torch.randn(64, 64) / 8).bfloat16()
    module = captured(products, x, w)
    names = [node.name for node in module.graph.nodes if node.op.startswith("call")]
    values = ValuesInStep(module, [x, w], {}, [(name, [set(names)]) for name in names])
    sampled: list[str] = []
    samples = values.samples
    monkeypatch.setattr(values, "samples", lambda name: (sampled.append(name), *samples(name))[1:])
    judged = {}
    for number, name in enumerate(names):
        eager = values.value(name)
        compiled = eager + eager.abs().max() * torch.randn(64, 64) * 2.0**-11
        compiled[5, 5] += 9 * (number == 2)
        judged[name] = _judge_in_step(values, name, name, compiled.bfloat16())
        values.took_from(name, eager.clone())
    assert sampled == [names[0], names[2]]
    assert values.explained == 1
    assert [difference is None for difference in judged.values()] == [True, True, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("filters", "more"),
    [((24, 16, 3, 3), {"padding": 1}), ((24, 4, 3, 3), {"groups": 4, "dilation": 2})],
)
def test_how_large_the_terms_of_a_convolution_are_takes_no_second_one(
    dtype: torch.dtype, filters: tuple[int, ...], more: dict[str, int]
) -> None:
    x, w = torch.randn(2, 16, 20, 21).to(dtype), torch.randn(filters).to(dtype)
    stride, padding, dilation = ([more.get(n, d)] * 2 for n, d in _CONVOLUTION)
    arguments = (x, w, None, stride, padding, dilation, False, [0, 0], more.get("groups", 1))
    found = reference._size_of_convolution(arguments, dtype).float()
    true = F.conv2d(x.abs().float(), w.abs().float(), **more)
    part = found / true
    if dtype is torch.float32:
        assert part.min() >= 1
    else:
        assert 0.9 < part.median() < 1.1


_CONVOLUTION = (("stride", 1), ("padding", 0), ("dilation", 1))


# --- parts of a large graph -----------------------------------------------------------------------


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).relu()
        return x.softmax(-1)


def test_of_layers_that_are_alike_one_is_tried() -> None:
    module: GraphModule = captured(Layers(), numbers(3, 4))
    operations = [node for node in module.graph.nodes if node.op.startswith("call")]
    assert len(operations) > 10
    blocks = distinct_blocks(operations)
    names = [str(node.target) for block in blocks for node in block]
    assert len(names) < len(operations) / 2
    assert any("softmax" in name for name in names)


# --- memory ---------------------------------------------------------------------------------------


def test_what_a_cgroup_leaves_counts_cached_files_as_free(tmp_path: Path) -> None:
    files = {"memory.max": "1000", "memory.current": "900", "memory.stat": "inactive_file 50\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    old = tmp_path / "memory"
    old.mkdir()
    files = {
        "memory.limit_in_bytes": "500",
        "memory.usage_in_bytes": "100",
        "memory.stat": "total_inactive_file 7\n",
    }
    for name, text in files.items():
        (old / name).write_text(text)
    left = {limit.free for limit in _cgroups_of(os.getpid(), tmp_path)}
    assert left <= {150, 407}
    assert left


def wrapped(error: Exception) -> Exception:
    outer = RuntimeError("backend='inductor' raised")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize(
    ("error", "is_lack"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (MemoryError(), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("Triton Error [CUDA]: out of memory"), True),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (wrapped(torch.OutOfMemoryError("of a backward graph")), True),
        (RuntimeError("shape mismatch"), False),
    ],
)
def test_a_lack_of_memory_is_told_from_a_failure(error: Exception, is_lack: bool) -> None:
    assert is_lack_of_memory(error) == is_lack


# --- how many calls are checked -------------------------------------------------------------------


@pytest.mark.parametrize(("saves_time", "checked"), [(True, [1]), (False, [1, 2, 3])])
def test_large_calls_after_the_first_have_to_take_little_time(
    saves_time: bool, checked: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They take little of no program here, which has just begun."""
    monkeypatch.setattr(checked_graph, "has_room_for_copies", lambda *_: False)
    monkeypatch.setattr(checked_graph, "MORE_CALLS", TimeShare(0.25))
    events: list[Any] = []
    monkeypatch.setattr(SCOPE, "active", True)
    monkeypatch.setattr(SCOPE, "emit", events.append)
    given = Instructions(investigate=False, saves_time=saves_time)
    x = numbers(30, 30)
    graph = CheckedGraph(captured(reads, x, x), "0/0", given, tmp_path, {}, None, "")
    graph.compiled = reads
    for _ in range(3):
        assert torch.equal(graph(x, x), reads(x, x))
    assert [event.call for event in events if isinstance(event, Check)] == checked
    assert any(isinstance(event, CallsUnchecked) for event in events) == saves_time


def test_a_check_that_takes_long_is_no_hang_of_the_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Compiled code has returned by then, which the recording says before values are judged."""
    monkeypatch.setattr(checked_graph, "has_room_for_copies", lambda *_: False)
    events: list[Any] = []
    monkeypatch.setattr(SCOPE, "active", True)
    monkeypatch.setattr(SCOPE, "emit", events.append)
    judge = LargeCall._judged

    def judged(call: LargeCall, found: EagerComparison) -> EagerComparison:
        events.append("judged")
        return judge(call, found)

    monkeypatch.setattr(LargeCall, "_judged", judged)
    x = numbers(30, 30)
    graph = CheckedGraph(
        captured(reads, x, x), "0/0", Instructions(investigate=False), tmp_path, {}, None, ""
    )
    graph.compiled = lambda x, y: reads(x, y) * 1.01
    graph(x, x)
    (returned,) = [event for event in events if isinstance(event, CompiledReturned)]
    assert events.index(returned) < events.index("judged")
    position = ProcessPosition()
    for event in events[: events.index("judged")]:
        position.take(Entry("", 0, 0.0, event))
    assert position.call is not None, "a process that dies now has died in the call"
    assert patience_of_doctor(60.0).limit(position) is None


# --- whole programs -------------------------------------------------------------------------------

LARGE = """
import resource
import sys

import torch


class Layer(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(size, size) / size**0.5)

    def forward(self, x):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return x + torch.nn.functional.silu((x * scale) @ self.weight)


torch.manual_seed(0)
model = torch.nn.Sequential(*(Layer(7000) for _ in range(3)))
with torch.no_grad():
    print(torch.compile(model)(torch.randn(8, 7000)).sum().item())
print("MiB", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10, file=sys.stderr)
"""
PLANT = """
@staticmethod
def rsqrt(x):
    return f"1.25 / std::sqrt({x})"


m.CppOverrides.rsqrt = rsqrt
"""


def memory_in(output: str) -> int:
    return int(output.rpartition("MiB ")[2].split()[0])


def test_a_model_of_half_a_gigabyte_is_checked_without_copies(workplace: Workplace) -> None:
    workplace.write("large.py", LARGE)
    plain = memory_in(workplace.run_plain("large.py").stderr)
    run = workplace.doctor("large.py")
    assert (run.verdict["verdict"], run.verdict["confidence"]) == ("clean", "proven")
    output = (workplace.folder / "examination/doctor/output.txt").read_text()
    assert memory_in(output) < 1.1 * plain + 1024


def test_a_fault_in_it_is_named_and_proven_in_a_part_of_the_graph(workplace: Workplace) -> None:
    workplace.write("large.py", LARGE)
    plant = workplace.plant("torch._inductor.codegen.cpp", PLANT)
    found = workplace.doctor("large.py", **plant).verdict
    assert (found["verdict"], found["stage"], found["confidence"]) == (
        "wrong-result",
        "codegen",
        "proven",
    )
    assert "rsqrt" in str(found["culprit"])


IN_BFLOAT16 = """
import torch


class Layer(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        make = lambda a, b: torch.nn.Parameter(torch.randn(a, b) / a**0.5)
        self.up, self.gate = make(size, 3 * size), make(size, 3 * size)
        self.down = make(3 * size, size)

    def forward(self, x):
        return x + (torch.nn.functional.gelu(x @ self.gate / 2) * (x @ self.up)) @ self.down / 2


torch.manual_seed(0)
model = torch.nn.Sequential(*(Layer(2048) for _ in range(4))).bfloat16()
with torch.no_grad():
    print(torch.compile(model)(torch.randn(8, 2048).bfloat16()).float().sum().item())
"""
# The slope of gelu is off by a tenth.
BENT = """
import torch
op = torch.ops.aten.gelu.default
m.decompositions[op] = lambda x, approximate="none": x * 0.5 * (1 + torch.erf(x * 0.78))
"""


def test_a_fault_that_rounding_hides_in_the_result_is_found_in_a_block(
    workplace: Workplace,
) -> None:
    workplace.write("large.py", IN_BFLOAT16)
    plant = workplace.plant("torch._inductor.decomposition", BENT)
    options = ("--no-workaround", *ONE_PROOF)
    found = workplace.doctor("large.py", options=options, **plant)
    assert "trying each distinct block" in found.stderr
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("wrong-result", "decomposition")
    assert found.verdict["culprit"]["op"] == "aten.gelu.default"
    assert found.verdict["repro"]["verified"]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As in every program under the doctor: a fork has no other threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
