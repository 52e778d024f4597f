"""A helper object made inside the step counts how often it was used."""
import sys
import torch


def build():
    seen = []

    class Scaler:
        def apply(self, x):
            seen.append(x.shape[0])
            return torch.tanh(x) * 0.5 + x.mean()

    def step(x):
        return Scaler().apply(x).sum()

    return step, seen


torch.manual_seed(0)
x = torch.randn(5)
plain, plain_log = build()
traced, traced_log = build()
compiled = torch.compile(traced)
want = [plain(x).item() for _ in range(3)]
got = [compiled(x).item() for _ in range(3)]
print("eager log   :", plain_log)
print("compiled log:", traced_log)
sys.exit(0 if plain_log == traced_log else 1)
