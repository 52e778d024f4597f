"""A pass of our own merges neighbouring additions, and forgets to stop."""

import torch
import torch._inductor.config


def merge_additions(graph):
    found = True
    while found:
        found = False
        for node in graph.nodes:
            if node.target is torch.ops.aten.add.Tensor:
                found = True  # It should be set only if something was merged.


torch._inductor.config.post_grad_custom_post_pass = merge_additions


def score(x, bias):
    return torch.tanh(x + bias + 1.0).mean()


print("eager:   ", score(torch.ones(8), torch.ones(8)).item(), flush=True)
print("compiled:", torch.compile(score)(torch.ones(8), torch.ones(8)).item())
