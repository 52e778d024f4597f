"""A product with choices by timing, on a GPU that is not there; TRITON_PTXAS_PATH is its ptxas."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from support import virtual_gpu

virtual_gpu.install()

import torch  # noqa: E402
import torch._inductor.config as config  # noqa: E402

config.max_autotune_gemm_backends = "ATEN,TRITON"
config.test_configs.max_mm_configs = 3

with virtual_gpu.tensors():
    a, b = virtual_gpu.tensor(512, 256), virtual_gpu.tensor(256, 512)
    torch.compile(lambda a, b: torch.relu(a @ b), options={"max_autotune": True})(a, b)
print("done")
