"""Inference of a tagger that reads sentences in both directions with torch.nn.LSTM."""

import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(200, 32)
        self.lstm = nn.LSTM(32, 32, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(64, 7)

    def forward(self, ids):
        states, _ = self.lstm(self.embed(ids))
        return torch.log_softmax(self.head(states), dim=-1)


torch.manual_seed(0)
torch._dynamo.config.allow_rnn = True
model = Tagger().eval()
compiled = torch.compile(model)
ids = torch.randint(0, 200, (3, 11))
with torch.no_grad():
    print(compiled(ids).norm().item())
