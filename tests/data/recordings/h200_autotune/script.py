"""On a GPU: a matrix product whose implementation is chosen by timing Triton templates."""

import torch

OPTIONS = {"max_autotune": True, "max_autotune_gemm_backends": "TRITON,ATEN"}

product = torch.compile(lambda a, b: torch.relu(a @ b), options=OPTIONS)
a = torch.randn(512, 512, device="cuda", dtype=torch.bfloat16)
print(product(a, a).float().norm().item())
