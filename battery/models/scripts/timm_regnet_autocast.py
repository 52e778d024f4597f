"""A small RegNet under bfloat16 autocast."""

import timm
import torch

torch.manual_seed(0)
model = timm.create_model("regnetx_002", num_classes=10).eval()
compiled = torch.compile(model)
with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
    print(compiled(torch.randn(1, 3, 64, 64)).float().norm().item())
