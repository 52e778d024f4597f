"""A fully convolutional network labels pixels, on top of a narrow ResNet."""

import torch
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.resnet import BasicBlock, ResNet
from torchvision.models.segmentation.fcn import FCN, FCNHead

torch.manual_seed(0)
backbone = IntermediateLayerGetter(ResNet(BasicBlock, [1, 1, 1, 1]), {"layer3": "out"})
model = FCN(backbone, FCNHead(256, 5)).eval()
compiled = torch.compile(model)
with torch.no_grad():
    labels = compiled(torch.randn(1, 3, 64, 64))["out"]
print(labels.norm().item(), tuple(labels.shape))
