"""Buffers in guarded memory: a kernel that writes outside its buffer is named."""

from __future__ import annotations

import ctypes
import math
import re
import types
from typing import Any

import pytest
import torch
from torch.fx import symbolic_trace

from inductoscope.inside.compare.guarded_memory import GuardedMemory, first_memory_fault
from inductoscope.inside.compare.kernels import KernelWatch
from inductoscope.inside.repro.failure_script import filled_memory_text
from inductoscope.inside.search.candidate import Candidate


def model(x: torch.Tensor) -> torch.Tensor:
    return torch.cos(torch.sin(x) @ torch.ones(20, 20)) + 1


def run_guarded() -> tuple[GuardedMemory, torch.Tensor]:
    memory = GuardedMemory(keeps_blocks=True)
    torch._dynamo.reset()
    options = {"fx_graph_cache": False}
    with memory.active(), KernelWatch(compare=False, on_kernel=memory.note).watching():
        return memory, torch.compile(model, options=options)(torch.ones(20, 20))


def test_healthy_code_leaves_the_zones_intact_and_its_result_is_the_same() -> None:
    memory, result = run_guarded()
    assert memory.overrun == ""
    torch.testing.assert_close(result, model(torch.ones(20, 20)))


def test_a_kernel_that_writes_past_its_buffer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._inductor.codegen.cpp as cpp

    original = cpp.CppScheduling.define_kernel

    def define_kernel(self: Any, source: str, *args: Any, **kwargs: Any) -> Any:
        if ".cos()" in source or "std::cos" in source:
            source = source.replace("store(in_out_ptr0 +", "store(in_out_ptr0 + 16 +")
        return original(self, source, *args, **kwargs)

    monkeypatch.setattr(cpp.CppScheduling, "define_kernel", define_kernel)
    memory, _ = run_guarded()
    assert memory.overrun.startswith("kernel cpp_fused_")
    assert "cos" in memory.overrun
    assert "writes outside buffer" in memory.overrun


def test_a_read_past_the_end_is_named_with_its_element_though_the_result_is_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sum over 37 elements adds up to 40 of them; the three that follow happen to be 0."""
    import torch._inductor.codegen.cpp as cpp

    original = cpp.CppScheduling.define_kernel

    def define_kernel(self: Any, source: str, *args: Any, **kwargs: Any) -> Any:
        source = re.sub(r"\((?:36|37|32)L\)", "(40L)", source)
        return original(self, source, *args, **kwargs)

    monkeypatch.setattr(cpp.CppScheduling, "define_kernel", define_kernel)
    torch._dynamo.reset()
    options = {"fx_graph_cache": False}

    def compiled() -> Any:
        return torch.compile(lambda x: (x @ torch.ones(8, 37)).sum(), options=options)

    found = first_memory_fault(compiled, [torch.ones(1, 8)])
    assert found is not None
    assert found.text.startswith("kernel cpp_fused_")
    assert "reads element 37 of buffer buf" in found.text
    assert "of shape (1, 37), which has 37 elements (0 to 36)" in found.text


def test_a_wrapper_that_was_loaded_before_gets_filled_buffers_for_a_while() -> None:
    wrapper = types.ModuleType("wrapper")
    allocate = wrapper.__dict__["empty_strided_cpu"] = torch.empty_strided
    with GuardedMemory().active_in([wrapper]):
        made = wrapper.empty_strided_cpu((2, 3), (3, 1), torch.float32)
    assert made.isnan().all()
    # Compiled code makes views of its outputs at a distance from where their memory begins.
    assert (made.storage_offset(), made.untyped_storage().nbytes()) == (0, 24)
    assert wrapper.empty_strided_cpu is allocate


def test_inputs_that_share_memory_keep_on_sharing_it() -> None:
    base = torch.arange(6.0)
    alone, first, second = GuardedMemory().copies([torch.ones(4), base[:3], base])
    second[0] = 7
    assert first[0] == 7
    beside = torch.empty(0).set_(alone.untyped_storage(), 0, (4,), (1,))
    assert beside.equal(torch.ones(4))


def test_a_script_with_filled_memory_has_nan_beside_its_inputs() -> None:
    candidate = Candidate(symbolic_trace(lambda x: torch.sin(x)), (torch.ones(4),), guarded=True)
    names: dict[str, Any] = {"torch": torch, "ctypes": ctypes}
    text = filled_memory_text(candidate)
    exec(text.partition("# Compiled code")[0], names)
    (value,) = names["in_filled_memory"]([torch.ones(4)])
    assert value.equal(torch.ones(4))
    # A view of an output begins where its memory begins, not where the zone does.
    assert value.storage_offset() == 0
    around = (ctypes.c_float * 6).from_address(value.data_ptr() - 4)
    assert [math.isnan(number) for number in around] == [True, *[False] * 4, True]
    assert "_empty_strided_cpu = filled" in text
