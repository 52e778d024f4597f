"""A value that is right when it is made, and wrong when it is read: who has overwritten it?"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._inductor.codegen import wrapper
from torch.fx import symbolic_trace

from inductoscope.inside.compare.kernels import KernelWatch, LiveBuffers, WatchedGraph
from inductoscope.inside.search.wrong_result_location import lowering_or_codegen
from inductoscope.torch_facts import stages


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
