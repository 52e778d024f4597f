"""A package of AOTInductor with weights, a buffer that it changes, and a size that may differ."""

import tempfile

import torch
from torch.export import Dim


class Ranking(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(16, 8)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls.add_(1.0)
        best = torch.topk(torch.relu(self.linear(x)), 3)
        return best.values * 2, best.indices, self.calls + 1


rows = {"x": {0: Dim("rows", min=2, max=64)}}
program = torch.export.export(Ranking().eval(), (torch.ones(6, 16),), dynamic_shapes=rows)
with tempfile.TemporaryDirectory() as folder:
    path = torch._inductor.aoti_compile_and_package(program, package_path=f"{folder}/model.pt2")
    print(torch._inductor.aoti_load_package(path)(torch.ones(3, 16))[0].shape)
