"""Which kernel is to blame, and which operation inside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._inductor import config
from torch._inductor.codegen import cpp, wrapper
from torch.fx import symbolic_trace

from inductoscope.inside.compare.kernels import KernelWatch, LiveBuffers, WatchedGraph
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.forks import Forks
from inductoscope.inside.search.location import (
    locate_error,
    locate_wrong_result,
    lowering_or_codegen,
)
from inductoscope.inside.search.oracle import Oracle
from inductoscope.inside.search.shrink import NODES, Subject, apply_pass
from inductoscope.torch_facts import stages
from support.graphs import captured

Function = Callable[[torch.Tensor], torch.Tensor]


@pytest.mark.parametrize(
    ("name", "function", "backward"),
    [
        # The buffer that is wrong first is the sum of what is wrong.
        ("exp", lambda x: torch.softmax(x, dim=-1) * 2, False),
        ("tanh", lambda x: torch.nn.functional.gelu(x, approximate="tanh") + 1, False),
        # Not in the forward graph: the derivative of a gelu is a normal distribution.
        ("exp", lambda x: torch.nn.functional.gelu(x) * 2, True),
    ],
    ids=["softmax", "gelu", "the backward of gelu"],
)
def test_vector_code_of_one_operation_is_wrong(
    monkeypatch: pytest.MonkeyPatch, name: str, function: Function, backward: bool
) -> None:
    right = getattr(cpp.CppVecOverrides, name)
    wrong = staticmethod(lambda x: f"({right(x)} + decltype({x})(0.05))")
    monkeypatch.setattr(cpp.CppVecOverrides, name, wrong)
    torch.manual_seed(0)
    x = torch.randn(8, 64, requires_grad=backward)
    candidate = Candidate(captured(function, x), (x,), backward=backward)
    found = locate_wrong_result(candidate, Forks(), "value", closely=True)
    assert found.stage == "codegen"
    assert found.wrong_alone == (f"aten.{name}.default",)
    assert found.operation not in found.wrong_alone, "the kernel ends with another one"


def test_an_update_that_several_kernels_make_is_evaluated_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`index_add` copies first and then adds. The copy alone is not wrong: it is not all."""
    store = cpp.CppKernel.store

    def without_addition(self: cpp.CppKernel, name, index, value, mode=None):  # type: ignore[no-untyped-def]
        return store(self, name, index, value, None)

    monkeypatch.setattr(cpp.CppKernel, "store", without_addition)
    torch.manual_seed(0)
    inputs = torch.zeros(5), torch.randint(0, 5, (40,)), torch.rand(40)
    graph = captured(lambda bins, where, weights: bins.index_add(0, where, weights) + 1, *inputs)
    with config.patch({"cpp.simdlen": 0}):
        found = locate_wrong_result(Candidate(graph, inputs), Forks(), "value")
    assert found.stage == "codegen", found
    assert "index" in found.operation


def test_the_kernel_that_made_a_wrong_index_is_to_blame_and_not_the_one_that_reads_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = cpp.reduction_project

    def off_by_far(reduction_type: str, accumulator: str) -> str:
        right = project(reduction_type, accumulator)
        return f"({right} + 1000)" if reduction_type == "argmax" else right

    monkeypatch.setattr(cpp, "reduction_project", off_by_far)
    torch.manual_seed(0)
    inputs = torch.randn(6, 50), torch.randn(50, 8)
    graph = captured(lambda scores, table: table[scores.argmax(1).sort().values] + 1, *inputs)
    candidate = Candidate(graph, inputs)
    failure = Oracle(Forks(), watch_kernels=True).failure(candidate)
    assert failure is not None
    assert failure.kind in ("error", "signal"), failure
    found = locate_error(candidate, failure, Forks())
    assert found.kernel == "cpp_fused_argmax_0", found
    assert found.stage == "codegen"
    assert "then fails" in found.text


def layers_around_two_results(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """One kernel of many has two results: a product of matrices reads both."""
    for _ in range(5):
        x = torch.mm(x, w).sin() * 1.1 + 0.25
    x = torch.mm(torch.sigmoid(x) * 2 + 0.5, torch.cos(x).abs() + 1)
    for _ in range(3):
        x = torch.tanh(torch.mm(x, w) / 8)
    return x


@pytest.fixture
def second_result_is_wrong(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A fault that takes several operations: each of them is right in a kernel of its own."""
    store = cpp.CppKernel.store

    def store_wrongly(self: cpp.CppKernel, name, index, value, mode=None):  # type: ignore[no-untyped-def]
        is_second = bool({*self.args.output_buffers} - {name})
        return store(self, name, index, f"({value} * 1.5f)" if is_second else value, mode)

    monkeypatch.setattr(cpp.CppKernel, "store", store_wrongly)
    with config.patch({"cpp.simdlen": 0}):
        yield


@pytest.mark.usefixtures("second_result_is_wrong")
def test_what_takes_several_operations_is_cut_out_of_their_kernel_and_not_of_the_graph() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(16, 16), torch.randn(16, 16)
    candidate = Candidate(captured(layers_around_two_results, *inputs), inputs)
    location = locate_wrong_result(candidate, Forks(), "value")
    assert len(location.suspects) < len(location.of_kernel) < candidate.size
    # What the kernel computes, and nothing of those before and after it.
    targets = {node.target for node in candidate.operations if node.name in location.of_kernel}
    assert {torch.sigmoid, torch.cos} <= targets
    assert not {torch.mm, torch.tanh} & targets

    failure = Oracle(Forks()).failure(candidate)
    assert failure is not None
    trials = {}
    for of_kernel in ((), location.of_kernel):
        oracle = Oracle(Forks())
        subject = Subject(candidate, failure, [location.suspects], of_kernel)
        smallest = apply_pass(NODES, subject, oracle)
        assert smallest.size == 2
        trials[of_kernel] = oracle.forks.count
    assert trials[location.of_kernel] < trials[()], trials


# --- A value that is right when it is made, and wrong when it is read: who has overwritten it? ----


def live(**readers: set[str]) -> LiveBuffers:
    graph = WatchedGraph(symbolic_trace(torch.nn.ReLU()), {"buf1": ("mm", ("mm",))}, None)
    graph.readers.update(readers)
    return LiveBuffers(graph, ["buf0", "buf1", "buf2"])


def test_the_nodes_of_a_kernel_are_those_of_all_its_buffers_and_of_what_it_writes() -> None:
    origins: dict[str, tuple[str | None, tuple[str, ...]]] = {
        "buf0": ("sin", ("sin", "mul")),
        "buf1": ("exp", ("exp",)),
        "buf2": ("mm", ("mm",)),
    }
    graph = WatchedGraph(symbolic_trace(torch.nn.ReLU()), origins, None)
    # buf1 is never in memory, so no wrapper reports it.
    graph.together.update(buf0=("buf0", "buf1"), buf1=("buf0", "buf1"))
    assert graph.nodes_with("buf0", ["buf0"]) == ("sin", "mul", "exp")
    graph.rewritten["buf2"] = {"copy_"}
    assert graph.nodes_with("buf2", []) == ("copy_", "mm")


def test_the_kernel_after_which_a_buffer_has_changed_is_named() -> None:
    buffers = live(buf0={"buf2"})
    block = torch.ones(8)
    buf0, buf1 = block[:4], block[4:]
    assert buffers.after("first", {"buf0": buf0}) is None
    assert buffers.after("idle", {}) is None
    block[3:] = 7.0
    found = buffers.after("second", {"buf1": buf1})
    assert found is not None
    assert (found.kernel, found.buffer, found.node) == ("second", "buf0", "mm")
    assert found.text == (
        "buf0, which first has made and which is read later, is overwritten: "
        "it has memory of its own"
    )
    assert lowering_or_codegen(found)[0] == ""  # It may be the lowering as well as the code.


def test_memory_that_is_used_again_too_early_is_the_fault_of_the_wrapper() -> None:
    buffers = live(buf0={"buf2"})
    buf0 = torch.ones(4)
    assert buffers.after("first", {"buf0": buf0}) is None
    buf1 = buf0.view(2, 2).fill_(7.0)
    found = buffers.after("second", {"buf1": buf1})
    assert found is not None
    assert found.shares_memory_with == "buf1"
    assert found.text.endswith("buf1 has the same memory")
    assert lowering_or_codegen(found)[0] == stages.WRAPPER


def test_an_operator_that_gives_several_tensors_has_read_its_inputs() -> None:
    """As the operator of attention, after which the memory of its query is used again."""
    buffers = live(buf0={"buf1"})
    query = torch.ones(4)
    assert buffers.after("first", {"buf0": query}) is None
    assert buffers.after("attention", {"buf1": (torch.ones(4), torch.ones(4))}) is None
    assert buffers.after("third", {"buf2": query.fill_(7.0)}) is None


def test_what_cannot_be_read_as_bytes_is_left_alone() -> None:
    buffers = live(buf0={"buf2"})
    lazily = torch.ones(4, dtype=torch.complex64).conj()
    assert buffers.after("first", {"buf0": lazily}) is None
    assert buffers.after("second", {"buf1": torch.ones(4)}) is None


def test_a_kernel_may_write_to_what_nobody_reads_after_it() -> None:
    """It computes buf2 from buf0, in the same memory; nan is no change either."""
    buffers = live(buf0={"buf2", "only inside of the kernel"})
    buf0 = torch.full((4,), torch.nan)
    assert buffers.after("first", {"buf0": buf0}) is None
    assert buffers.after("second", {"buf1": torch.ones(4)}) is None
    assert buffers.after("third", {"buf2": buf0.fill_(7.0)}) is None


def test_a_buffer_that_the_graph_writes_to_again_may_change() -> None:
    buffers = live(buf0={"buf2"})
    buffers.graph.rewritten["buf0"] = {"index_put"}
    buf0 = torch.ones(4)
    assert buffers.after("first", {"buf0": buf0}) is None
    buf0.zero_()
    assert buffers.after("second", {}) is None


def test_a_wrapper_that_uses_memory_again_while_it_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its second product goes where the first one is, which is read after that."""
    plan, taken = wrapper.AllocateLine.plan, {}

    def plan_too_early(self: Any, state: Any) -> Any:
        key = wrapper.buffer_reuse_key(self.node)
        if key in taken:
            return wrapper.ReuseLine(self.wrapper, taken[key], self.node, delete_old=False)
        taken[key] = self.node
        return plan(self, state)

    monkeypatch.setattr(wrapper.AllocateLine, "plan", plan_too_early)

    def differ(x: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        a, b = torch.mm(x, left), torch.mm(x, right)
        return torch.tanh(a - b) + a.mean(dim=-1, keepdim=True)

    torch._dynamo.reset()
    watch = KernelWatch()
    with torch._inductor.config.patch(fx_graph_cache=False), watch.watching():
        torch.compile(differ)(torch.rand(8, 24), torch.rand(24, 16), torch.rand(24, 16))
    first = watch.divergences[0]
    assert first.is_overwritten
    assert first.kernel == "extern_kernels.mm"
    assert first.node == "mm_1"
    assert lowering_or_codegen(first)[0] == stages.WRAPPER
