"""A model of the size that people run, compiled: inference, or training with AdamW.

Prints numbers of each call. The architectures are the usual ones, without a library of models.
"""

from __future__ import annotations

import argparse
import itertools
import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Size:
    layers: int
    dim: int
    batch: int = 1
    length: int = 64


class Norm(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
        return (x.float() * scale).to(x.dtype) * self.weight


class Attention(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.heads = dim // 128
        self.query, self.output = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.key_value = nn.Linear(dim, 2 * dim)

    def forward(self, x: torch.Tensor, y: torch.Tensor, *, is_causal: bool) -> torch.Tensor:
        split = [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self._parts(x, y)]
        mixed = F.scaled_dot_product_attention(*split, is_causal=is_causal)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def _parts(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [self.query(x), *self.key_value(y).chunk(2, -1)]


class Gated(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.up, self.gate = nn.Linear(dim, 3 * dim), nn.Linear(dim, 3 * dim)
        self.down = nn.Linear(3 * dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """Each token is computed by all experts, and takes the two with the largest weights."""

    def __init__(self, dim: int, count: int = 8) -> None:
        super().__init__()
        self.router = nn.Linear(dim, count)
        self.up = nn.Parameter(torch.randn(count, dim, dim) / dim**0.5)
        self.down = nn.Parameter(torch.randn(count, dim, dim) / dim**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        share = torch.zeros_like(self.router(x)).scatter(-1, chosen, weights)
        hidden = F.silu(torch.einsum("btd,edh->bteh", x, self.up))
        return torch.einsum("bteh,ehd,bte->btd", hidden, self.down, share)


class Block(nn.Module):
    def __init__(self, dim: int, *, reads: bool = False, experts: bool = False) -> None:
        super().__init__()
        self.norms = nn.ModuleList(Norm(dim) for _ in range(3))
        self.attention = Attention(dim)
        self.cross = Attention(dim) if reads else None
        self.mlp = Experts(dim) if experts else Gated(dim)

    def forward(self, x: torch.Tensor, read: Any = None, is_causal: bool = True) -> torch.Tensor:
        y = self.norms[0](x)
        x = x + self.attention(y, y, is_causal=is_causal)
        if self.cross is not None:
            x = x + self.cross(self.norms[1](x), read, is_causal=False)
        return x + self.mlp(self.norms[2](x))


class Decoder(nn.Module):
    def __init__(self, size: Size, *, experts: bool = False, vocabulary: int = 16000) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, size.dim)
        self.blocks = nn.ModuleList(Block(size.dim, experts=experts) for _ in range(size.layers))
        self.norm, self.head = Norm(size.dim), nn.Linear(size.dim, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return 30 * torch.tanh(self.head(self.norm(x)) / 30)


class EncoderDecoder(nn.Module):
    def __init__(self, size: Size, vocabulary: int = 16000) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, size.dim)
        self.encoder = nn.ModuleList(Block(size.dim) for _ in range(size.layers // 2))
        self.decoder = nn.ModuleList(Block(size.dim, reads=True) for _ in range(size.layers // 2))
        self.head = nn.Linear(size.dim, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        read = x = self.embed(tokens)
        for block in self.encoder:
            read = block(read, is_causal=False)
        for block in self.decoder:
            x = block(x, read)
        return self.head(x)


class Vision(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, size.dim, 16, 16)
        self.blocks = nn.ModuleList(Block(size.dim) for _ in range(size.layers))
        self.norm, self.head = nn.LayerNorm(size.dim), nn.Linear(size.dim, 1000)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x, is_causal=False)
        return self.head(self.norm(x).mean(1))


class Step(nn.Module):
    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, channels)
        self.first, self.second = nn.Conv2d(channels, out, 3, 1, 1), nn.Conv2d(out, out, 3, 1, 1)
        self.skip = nn.Conv2d(channels, out, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.skip(x) + self.second(F.silu(self.first(F.silu(self.norm(x)))))


class UNet(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        widths = [size.dim // 4, size.dim // 2, size.dim]
        self.stem = nn.Conv2d(3, widths[0], 3, 1, 1)
        pairs = list(itertools.pairwise(widths))
        self.down = nn.ModuleList(Step(a, b) for a, b in pairs)
        self.middle = nn.ModuleList(Step(size.dim, size.dim) for _ in range(size.layers))
        self.attention = Attention(size.dim)
        self.up = nn.ModuleList(Step(2 * b, a) for a, b in reversed(pairs))
        self.head = nn.Conv2d(widths[0], 3, 3, 1, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x, kept = self.stem(image), []
        for step in self.down:
            x = step(F.avg_pool2d(x, 2))
            kept.append(x)
        for step in self.middle:
            x = step(x)
        y = x.flatten(2).transpose(1, 2)
        x = x + self.attention(y, y, is_causal=False).transpose(1, 2).unflatten(2, x.shape[2:])
        for step in self.up:
            x = F.interpolate(step(torch.cat([x, kept.pop()], 1)), scale_factor=2)
        return self.head(x)


class Scan(nn.Module):
    """A gated linear recurrence along the sequence, computed as a sum of decayed values."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm, self.inputs = Norm(dim), nn.Linear(dim, 4 * dim)
        self.mix = nn.Conv1d(2 * dim, 2 * dim, 4, groups=2 * dim)
        self.decay, self.output = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        value, gate = self.inputs(y).chunk(2, -1)
        value = F.silu(self.mix(F.pad(value.transpose(1, 2), (3, 0))).transpose(1, 2))
        age = F.softplus(self.decay(y)).float().mul(0.02).cumsum(1)
        state = torch.exp(-age) * (torch.exp(age) * value.float()).cumsum(1)
        return x + self.output(state.to(x.dtype) * F.silu(gate))


class StateSpace(nn.Module):
    def __init__(self, size: Size, vocabulary: int = 16000) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, size.dim)
        self.scans = nn.ModuleList(Scan(size.dim) for _ in range(size.layers))
        self.head = nn.Linear(size.dim, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for scan in self.scans:
            x = scan(x)
        return self.head(x)


MODELS = {
    "decoder": Decoder,
    "encoder-decoder": EncoderDecoder,
    "vision": Vision,
    "experts": lambda size: Decoder(size, experts=True),
    "unet": UNet,
    "state-space": StateSpace,
}
_OF_IMAGES = ("vision", "unet")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=MODELS)
    for name, default in (("layers", 2), ("dim", 256), ("batch", 1), ("length", 64), ("calls", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--fraction", type=float, help="of the GPU's memory that it may take")
    given = parser.parse_args()
    torch.manual_seed(0)
    if given.fraction:
        torch.cuda.set_per_process_memory_fraction(given.fraction)
    shape = (given.batch, 3, given.length, given.length)
    is_image = given.model in _OF_IMAGES
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(given.device):
        model = MODELS[given.model](Size(given.layers, given.dim, given.batch, given.length))
        made = torch.randn(shape) if is_image else torch.randint(0, 16000, shape[::3])
    torch.set_default_dtype(torch.float32)
    print("billions of parameters:", sum(p.numel() for p in model.parameters()) / 1e9)
    call(model, made, given.calls, train=given.train)


def call(model: nn.Module, made: torch.Tensor, calls: int, *, train: bool) -> None:
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5) if train else None
    start = time.monotonic()
    for number in range(calls):
        with torch.set_grad_enabled(train):
            result = compiled(made).float()
            loss = result.logsumexp(-1).mean()
        if optimizer is not None:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print("call", number, loss.item())
    print("seconds", round(time.monotonic() - start, 1))


if __name__ == "__main__":
    main()
