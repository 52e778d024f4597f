"""An image is warped: eager has a vectorised kernel for it, Inductor gathers element by element."""

import torch


@torch.compile
def warp(image, grid):
    return torch.nn.functional.grid_sample(image, grid, align_corners=False).relu()


image, grid = torch.randn(4, 16, 128, 128), torch.rand(4, 128, 128, 2) * 2 - 1
for _ in range(40):
    result = warp(image, grid)
print(result.shape)
