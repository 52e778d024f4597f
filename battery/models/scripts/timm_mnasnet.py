"""MnasNet's smallest form, inference."""

import timm
import torch

torch.manual_seed(0)
model = timm.create_model("mnasnet_small", num_classes=10).eval()
compiled = torch.compile(model)
with torch.no_grad():
    print(compiled(torch.randn(1, 3, 64, 64)).tolist())
