"""Score one int8 query per batch row against a table of int8 keys."""
import sys
import torch


def score(query, keys, scale):
    centred = keys - keys.amin(dim=-1, keepdim=True)
    raw = torch.matmul(query, keys.transpose(1, 2))
    logits = raw.float() * scale
    gate = torch.sigmoid(centred.float().mean(dim=-1))
    return logits.squeeze(1) * gate, raw


torch.manual_seed(0)
query = torch.randint(-12, 12, (3, 1, 16), dtype=torch.int8)
keys = torch.randint(-12, 12, (3, 7, 16), dtype=torch.int8)
want = score(query, keys, 0.05)
got = torch.compile(score)(query, keys, 0.05)
print("eager   :", want[1].dtype, want[1][0, 0].tolist())
print("compiled:", got[1].dtype, got[1][0, 0].tolist())
print("max difference of the logits:", (want[0] - got[0]).abs().max().item())
sys.exit(0 if torch.allclose(want[0], got[0], atol=1e-3) else 1)
