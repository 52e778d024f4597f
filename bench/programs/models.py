"""The three models of the benchmark. Run as a script: compile one, then time its later calls."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

BATCHES = 40
SECONDS_PER_BATCH = 0.02


class ResidualNet(nn.Module):
    """A small ResNet-like net."""

    def __init__(self, width: int = 16, blocks: int = 3) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width))
        self.blocks = nn.ModuleList(self._block(width) for _ in range(blocks))
        self.head = nn.Linear(width, 10)

    @staticmethod
    def _block(width: int) -> nn.Module:
        conv = [nn.Conv2d(width, width, 3, padding=1) for _ in range(2)]
        norm = [nn.BatchNorm2d(width) for _ in range(2)]
        return nn.Sequential(conv[0], norm[0], nn.ReLU(), conv[1], norm[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        for block in self.blocks:
            x = torch.relu(x + block(x))
        return self.head(x.mean((2, 3)))


def mlp() -> Callable[[], object]:
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 64))
    compiled, x = torch.compile(model.eval()), torch.randn(32, 64)

    def call() -> object:
        with torch.no_grad():
            return compiled(x)

    return call


def encoder() -> Callable[[], object]:
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    return _training(layer, torch.randn(4, 16, 64))


def resnet() -> Callable[[], object]:
    return _training(ResidualNet(), torch.randn(2, 3, 32, 32))


def _training(model: nn.Module, x: torch.Tensor) -> Callable[[], object]:
    compiled = torch.compile(model)

    def call() -> object:
        model.zero_grad(set_to_none=True)
        return compiled(x).sum().backward()

    return call


MODELS = {
    "mlp forward": mlp,
    "encoder forward+backward": encoder,
    "resnet forward+backward": resnet,
}


def seconds_per_call(call: Callable[[], object]) -> float:
    """CPU seconds of one call on this thread: the least of many batches, as noise only adds."""
    for _ in range(20):
        call()
    start = time.thread_time()
    call()
    once = max(time.thread_time() - start, 1e-6)
    repeats = max(1, int(SECONDS_PER_BATCH / once))
    best = float("inf")
    for _ in range(BATCHES):
        start = time.thread_time()
        for _ in range(repeats):
            call()
        best = min(best, (time.thread_time() - start) / repeats)
    return best


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    call = MODELS[sys.argv[1]]()
    call()
    print(json.dumps({"seconds_per_call": seconds_per_call(call)}))
