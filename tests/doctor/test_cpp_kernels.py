"""Kernels and buffers of compiled code whose wrapper is C++: AOTInductor, and cpp_wrapper=True."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._inductor.codecache import PyCodeCache
from torch._inductor.graph import GraphLowering

from inductoscope.inside.compare.guarded_memory import GuardedMemory, first_memory_fault
from inductoscope.inside.compare.kernels import KeptWrappers, KernelWatch
from inductoscope.inside.search.forks import Forks
from inductoscope.recording.events import KernelLaunched

TWO_WAYS = ("aot_inductor", "cpp_wrapper")


class Model(torch.nn.Module):
    """Of everything a bit: weights, an operator with several results, an input that is written."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(16, 8)
        self.embedding = torch.nn.Embedding(10, 16)
        self.register_buffer("calls", torch.arange(12.0))

    def forward(self, x: torch.Tensor, index: torch.Tensor, total: torch.Tensor) -> Any:
        p = torch.softmax(torch.relu(self.linear(self.embedding(index) + x)), -1)
        values, places = torch.topk(p, 3)
        total.add_(values.sum())
        self.calls.add_(1)
        return values.cumsum(-1), places, torch.cos(p @ p.T), self.calls.sum()


def inputs(batch: int) -> tuple[torch.Tensor, ...]:
    made = torch.Generator().manual_seed(batch)
    x, index = torch.randn(batch, 16, generator=made), torch.arange(batch) % 10
    return x, index, torch.zeros(4)


def compiled(way: str, module: torch.nn.Module, *example: torch.Tensor) -> Callable[..., Any]:
    if way == "cpp_wrapper":
        torch._dynamo.reset()
        options = {"cpp_wrapper": True, "fx_graph_cache": False}
        return torch.compile(module, dynamic=True, options=options)
    batch = torch.export.Dim("batch", min=2, max=64)
    shapes = [{0: batch} if len(value) == 5 else None for value in example]
    exported = torch.export.export(module, example, dynamic_shapes=tuple(shapes))
    path = torch._inductor.aot_compile(exported.module(), example)
    runner = torch._C._aoti.AOTIModelContainerRunnerCpu(path, 1)
    return lambda *values: runner.run(list(values))


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.mark.parametrize("way", TWO_WAYS)
def test_a_healthy_model_diverges_nowhere_and_reads_only_its_own_memory(way: str) -> None:
    kernels: list[str] = []
    watch = KernelWatch(on_kernel=kernels.append)
    memory = GuardedMemory()
    model, eager = Model(), Model()
    eager.load_state_dict(model.state_dict())
    with memory.active(), watch.watching():
        function = compiled(way, model, *inputs(5))
        for batch in (5, 7):
            given, same = inputs(batch), inputs(batch)
            for mine, other in zip(function(*given), eager(*same), strict=True):
                torch.testing.assert_close(mine, other)
            torch.testing.assert_close(given, same)
    assert watch.divergences == []
    assert "aoti_torch_cpu_topk" in kernels
    (graph,) = watch.graphs
    assert graph.expected is not None
    # Inputs and weights that are written count like buffers.
    assert set(graph.written) <= set(graph.checked)
    assert len(graph.written) == 2


# --- planted faults -------------------------------------------------------------------------------


def function(x: torch.Tensor, total: torch.Tensor) -> Any:
    """Three kernels, and matrix products between them."""
    y = torch.cos(torch.sin(x) @ torch.ones(20, 20))
    total.add_(torch.tanh(y @ y.T).sum())
    return torch.exp(y @ y) + 1


class Planted(torch.nn.Module):
    def forward(self, x: torch.Tensor, total: torch.Tensor) -> Any:
        return function(x, total)


GIVEN = (torch.ones(20, 20), torch.zeros(4))


WRONG = (".cos()", ".cos()", ".sin()")
OVERRUN = (".exp()", "store(in_out_ptr0 +", "store(in_out_ptr0 + 16 +")
READ = (".exp()", "loadu(in_out_ptr0 +", "loadu(in_out_ptr0 + 4 +")
WILD = (".exp()", "loadu(in_out_ptr0 +", "loadu(in_out_ptr0 + (1LL << 44) +")


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Each fault: which generated kernel it is put into, and what is replaced there."""
    import torch._inductor.codegen.cpp as cpp

    original = cpp.CppScheduling.define_kernel

    def plant(*faults: tuple[str, str, str]) -> None:
        def define_kernel(self: Any, source: str, *args: Any, **kwargs: Any) -> Any:
            for where, old, new in faults:
                if where in source:
                    assert old in source
                    source = source.replace(old, new)
            return original(self, source, *args, **kwargs)

        monkeypatch.setattr(cpp.CppScheduling, "define_kernel", define_kernel)

    return plant


@pytest.mark.parametrize("way", TWO_WAYS)
def test_a_wrong_kernel_and_one_that_writes_past_its_buffer_are_named(
    way: str, planted: Any
) -> None:
    planted(WRONG, OVERRUN)
    memory = GuardedMemory(keeps_blocks=True)
    watch = KernelWatch(on_kernel=memory.note)
    with memory.active(), watch.watching():
        compiled(way, Planted(), *GIVEN)(*GIVEN)
    first = watch.divergences[0]
    assert first.kernel.startswith("cpp_fused_cos")
    assert first.node == "cos"
    assert first.buffer.startswith("buf")
    assert re.match(r"kernel cpp_fused_\w*exp\w* writes outside buffer buf\d+ ", memory.overrun)


class Enough(Exception):
    pass


def test_an_exception_of_a_listener_ends_the_run_and_comes_out_as_itself(planted: Any) -> None:
    planted(WRONG, OVERRUN)
    kernels: list[str] = []

    def stop(found: Any) -> None:
        raise Enough

    watch = KernelWatch(on_divergence=stop, on_kernel=kernels.append)
    with pytest.raises(Enough), GuardedMemory().active(), watch.watching():
        compiled("cpp_wrapper", Planted(), *GIVEN)(*GIVEN)
    assert kernels[-1].startswith("cpp_fused_cos")


def test_code_that_was_loaded_before_reports_while_it_is_watched(
    planted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(WRONG)  # What is loaded before is not guarded: an overrun would be real.
    kept = KeptWrappers()
    codegen, load = GraphLowering.codegen, PyCodeCache.__dict__["load_by_key_path"].__func__

    def codegen_kept(*args: Any) -> Any:
        return kept.generate(codegen, *args)

    def load_kept(*args: Any, **kwargs: Any) -> Any:
        return kept.load(load, *args, **kwargs)

    monkeypatch.setattr(GraphLowering, "codegen", codegen_kept)
    monkeypatch.setattr(PyCodeCache, "load_by_key_path", classmethod(load_kept))
    function = compiled("cpp_wrapper", Planted(), *GIVEN)
    function(*GIVEN)
    watch = KernelWatch()
    with watch.watching_loaded(kept.wrappers):
        function(*GIVEN)
    assert watch.divergences[0].node == "cos"
    count = len(watch.divergences)
    function(*GIVEN)
    assert len(watch.divergences) == count


def test_a_silent_read_past_the_end_is_found_and_its_kernel_named(planted: Any) -> None:
    planted(READ)
    found = first_memory_fault(lambda: compiled("cpp_wrapper", Planted(), *GIVEN), GIVEN)
    assert found is not None
    assert found.is_outside
    assert "exp" in found.kernel
    # 20 by 20 elements, read from the fifth on.
    assert re.search(r"reads element 400 of buffer buf\d+ of shape \(20, 20\)", found.text)
    assert "which has 400 elements (0 to 399)" in found.text


def test_of_a_process_that_dies_in_a_kernel_the_last_one_launched_is_known(planted: Any) -> None:
    planted(WILD)

    def work() -> None:
        with KernelWatch(compare=False).watching():
            compiled("cpp_wrapper", Planted(), *GIVEN)(*GIVEN)

    answer = Forks(seconds=300).ask(work)
    assert answer.signal == signal.SIGSEGV
    launched = [event.kernel for event in answer.events if isinstance(event, KernelLaunched)]
    assert "exp" in launched[-1]
