"""C++ kernels are generated and not compiled: enough to see, in seconds, what was scheduled.

Only for a process that compiles rebuilt graphs and runs none of them.
"""

from __future__ import annotations

from typing import Any

from inductoscope.capture.vector_probes import trust_compiler

TORCH_NAMES = {
    "torch._inductor.async_compile": ("AsyncCompile.cpp", "AsyncCompile.cpp_pybinding"),
    "torch._inductor.select_algorithm": ("AlgorithmSelectorCache.make_benchmark_fn",),
}


def write_cpp_only() -> None:
    """From now on this process starts no C++ compiler."""
    from torch._inductor import async_compile

    compiler = async_compile.AsyncCompile
    for name in ("cpp", "cpp_pybinding"):
        if hasattr(compiler, name):
            setattr(compiler, name, lambda *args, **kwargs: _not_compiled)
    # Whether the compiler knows an instruction set is found out by compiling something.
    trust_compiler()


def _not_compiled(*args: Any, **kwargs: Any) -> None:
    raise RuntimeError("This kernel was generated and not compiled.")


def time_nothing() -> None:
    """Choices that would be timed are taken in the order in which torch lists them."""
    from torch._inductor import select_algorithm

    def make_benchmark_fn(cls: type, *args: Any, **kwargs: Any) -> Any:
        return lambda choices: {choice: 1.0 + n * 1e-3 for n, choice in enumerate(choices)}

    cache = select_algorithm.AlgorithmSelectorCache
    if hasattr(cache, "make_benchmark_fn"):
        cache.make_benchmark_fn = classmethod(make_benchmark_fn)
