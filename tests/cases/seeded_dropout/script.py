"""Same seed before eager and compiled: are the regularised features the same?"""
import sys
import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Dropout(0.3), nn.Linear(32, 4)).train()
x = torch.randn(16, 12)
step = torch.compile(net)
torch.manual_seed(7)
want = net(x)
torch.manual_seed(7)
got = step(x)
err = (want - got).abs().max().item()
print("max abs error with the same seed:", err)
sys.exit(0 if err < 1e-4 else 1)
