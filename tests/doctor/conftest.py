"""Fixtures that the tests of the doctor share in one process."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def _warm_compiler(_compile_once: None) -> None:
    """Compile something, as every program has done that the doctor forks.

    Each fork would otherwise begin with all that torch does before its first compile.
    """
    torch = pytest.importorskip("torch")
    config = pytest.importorskip("torch._inductor.config")
    # Libraries for this processor load. torch would try it, and start a Python for each kind.
    with config.patch({"cpp.vec_isa_ok": True}):
        torch.compile(lambda x: torch.nn.functional.gelu(x) + 1)(torch.ones(8, requires_grad=True))
    torch._dynamo.reset()
