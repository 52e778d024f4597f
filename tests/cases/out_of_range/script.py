"""Pick the logits of tokens; one token id is beyond the vocabulary."""
import sys
import torch


def pick(logits, ids):
    p = torch.log_softmax(logits, dim=-1)
    return p[torch.arange(ids.numel()), ids].mean()


torch.manual_seed(0)
logits, ids = torch.randn(4, 7), torch.tensor([1, 6, 9, 0])
out = torch.compile(pick)(logits, ids)
print("compiled ok", out.item())
sys.exit(0)
