"""Two training steps of torch's own transformer encoder; the optimizer step is compiled too."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
model = nn.Sequential(nn.TransformerEncoder(layer, 2), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-3))
compiled = torch.compile(model)
x, labels = torch.randn(4, 12, 64), torch.randint(0, 10, (48,))


@torch.compile
def update():
    optimizer.step()


for step in range(2):
    loss = F.cross_entropy(compiled(x).flatten(0, 1), labels)
    loss.backward()
    update()
    optimizer.zero_grad()
    print(step, loss.item())
