"""A program with as many Triton kernels as it is told, compiled for a GPU that is not there.

Kernels are written and not compiled: the page's size is what is measured, not Triton's speed.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any

from inductoscope.inside import pretend
from inductoscope.inside.pretend import write_kernels_only
from inductoscope.torch_facts.gpu_targets import parse_target

TARGET = parse_target("cuda:90")
stand_in = pretend.prepare(TARGET)

import torch  # noqa: E402

# Layers of one graph. A fused kernel stands before, between and after their matrix products, which
# are calls of a library and do not count.
LAYERS = 50
KERNELS_OF_GRAPH = LAYERS + 1


def network(number: int) -> Callable[[Any, list[Any]], Any]:
    """Layers of growing width, so that no two kernels are the same."""

    def forward(x: Any, weights: list[Any]) -> Any:
        for depth, weight in enumerate(weights):
            scaled = torch.nn.functional.layer_norm(x, (x.shape[-1],)) * (1.5 + depth)
            x = torch.softmax(torch.relu(scaled @ weight) + (number + 2.25 + depth), -1)
        return x

    return forward


def main(kernels: int) -> None:
    """Compile graphs until there are enough kernels."""
    pretend.take_over(stand_in, TARGET, precompiles=False)
    write_kernels_only()
    widths = [64 + 8 * depth for depth in range(LAYERS + 1)]
    with torch._subclasses.fake_tensor.FakeTensorMode(allow_non_fake_inputs=True):
        for number in range(-(-kernels // KERNELS_OF_GRAPH)):
            x = torch.empty(64 + number, widths[0], device="cuda")
            sizes = itertools.pairwise(widths)
            weights = [torch.empty(rows, columns, device="cuda") for rows, columns in sizes]
            torch._dynamo.reset()
            torch.compile(network(number), dynamic=False)(x, weights)
            print(f"{(number + 1) * KERNELS_OF_GRAPH} kernels", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
