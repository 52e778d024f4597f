"""The second run of an unchanged script: its graph comes out of the cache."""

import torch

torch.compile(lambda x: x.cos() + 1)(torch.ones(16))
