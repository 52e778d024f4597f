"""Private torch names that a device which is not there needs; `inductoscope env` checks them."""

from __future__ import annotations

from inductoscope.vocabulary.torch_names import TorchName

_HEURISTICS = "torch._inductor.runtime.triton_heuristics"

# Stage, and the name that something in `target` or `recompile` relies on.
TARGET_NAMES: tuple[tuple[str, TorchName], ...] = (
    ("aot", TorchName("torch._inductor.compile_fx", "compile_fx")),
    ("aot", TorchName("torch._subclasses.fake_tensor", "FakeTensorMode.avoid_device_init")),
    ("aot", TorchName("torch._subclasses.fake_tensor", "init_gpu_context")),
    ("scheduler", TorchName("torch._inductor.scheduler", "has_triton")),
    ("wrapper", TorchName("torch._inductor.async_compile", "AsyncCompile.triton")),
    ("triton-compile", TorchName(_HEURISTICS, "TritonCompileResult.make_launcher")),
    ("triton-compile", TorchName(_HEURISTICS, "CachingAutotuner.bench")),
    (
        "autotune",
        TorchName("torch._inductor.select_algorithm", "AlgorithmSelectorCache.make_benchmark_fn"),
    ),
)
