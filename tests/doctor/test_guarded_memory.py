"""Buffers in guarded memory: a kernel that writes outside its buffer is named."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from inductoscope.doctor.compare.guarded_memory import GuardedMemory
from inductoscope.doctor.compare.kernels import KernelWatch


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
