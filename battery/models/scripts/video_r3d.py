"""Three-dimensional convolutions on a short film."""

import torch
from torchvision.models.video.resnet import BasicBlock, BasicStem, Conv3DSimple, VideoResNet

torch.manual_seed(0)
model = VideoResNet(BasicBlock, [Conv3DSimple] * 4, [1, 1, 1, 1], BasicStem, num_classes=8).eval()
compiled = torch.compile(model)
with torch.no_grad():
    print(compiled(torch.randn(1, 3, 4, 32, 32)).tolist())
