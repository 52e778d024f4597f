"""A pass after autograd looks at every pair of nodes."""

import torch
from torch._inductor import config


class LooksAtPairs(torch._inductor.custom_graph_pass.CustomGraphPass):
    def __call__(self, graph):
        names = [node.name for node in graph.nodes]
        for first in names:
            for second in names:
                sorted(first + second * 4000)

    def uuid(self):
        return "looks at pairs"


config.post_grad_custom_post_pass = LooksAtPairs()


@torch.compile
def chain(x):
    for number in range(40):
        x = torch.sin(x) * 1.01 + number
    return x


print(chain(torch.randn(64, 64)).shape)
