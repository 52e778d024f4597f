"""A label that changes on every call: guarded on, so compiled anew until torch gives up."""

import torch


def label(x, name):
    return x + (1 if name == "first" else 2)


compiled = torch.compile(label, backend="eager")
for number in range(12):
    compiled(torch.ones(4), f"call {number}")
