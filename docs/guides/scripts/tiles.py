"""On which tile of a floor is each foot? A tile is 0.1 wide."""

import torch


def tiles(position, width):
    tile = torch.floor_divide(position, width)
    height = torch.sin(position) * 0.5
    return tile, height.mean()


position = torch.tensor([0.1, 0.3, 0.5, 0.6, 0.7, 0.9, 1.0, 1.2])
width = torch.full((8,), 0.1)
wanted, _ = tiles(position, width)
compiled, _ = torch.compile(tiles)(position, width)
print("eager:   ", wanted.int().tolist())
print("compiled:", compiled.int().tolist())
