"""CoAtNet's pattern: convolutions first, then attention with relative positions."""

import timm
import torch

torch.manual_seed(0)
model = timm.create_model(
    "coatnet_nano_rw_224",
    img_size=64,
    num_classes=10,
    depths=(1, 1, 1, 1),
    embed_dim=(16, 32, 64, 64),
    stem_width=(8, 16),
).eval()
compiled = torch.compile(model)
with torch.no_grad():
    print(compiled(torch.randn(1, 3, 64, 64)).tolist())
