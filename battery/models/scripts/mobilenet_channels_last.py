"""MobileNet v3 on pictures in channels-last format."""

import torch
from torchvision.models import mobilenet_v3_small

torch.manual_seed(0)
model = mobilenet_v3_small(width_mult=0.5, num_classes=10).eval()
model = model.to(memory_format=torch.channels_last)
compiled = torch.compile(model)
pictures = torch.randn(2, 3, 64, 64).to(memory_format=torch.channels_last)
with torch.no_grad():
    print(compiled(pictures).tolist())
