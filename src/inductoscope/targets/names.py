"""Private torch names that a device which is not there needs; `inductoscope env` checks them."""

from __future__ import annotations

from inductoscope.vocabulary import stages
from inductoscope.vocabulary.torch_names import TorchName

_HEURISTICS = "torch._inductor.runtime.triton_heuristics"

# Stage, and the name that something in `target` or `recompile` relies on.
TARGET_NAMES: tuple[tuple[str, TorchName], ...] = (
    (stages.AOT, TorchName("torch._inductor.compile_fx", "compile_fx")),
    (stages.AOT, TorchName("torch._subclasses.fake_tensor", "FakeTensorMode.avoid_device_init")),
    (stages.AOT, TorchName("torch._subclasses.fake_tensor", "init_gpu_context")),
    (stages.SCHEDULER, TorchName("torch._inductor.scheduler", "has_triton")),
    (stages.WRAPPER, TorchName("torch._inductor.async_compile", "AsyncCompile.triton")),
    (stages.TRITON_COMPILE, TorchName(_HEURISTICS, "TritonCompileResult.make_launcher")),
    (stages.TRITON_COMPILE, TorchName(_HEURISTICS, "CachingAutotuner.bench")),
    (
        stages.AUTOTUNE,
        TorchName("torch._inductor.select_algorithm", "AlgorithmSelectorCache.make_benchmark_fn"),
    ),
)
