"""A process that is killed in the middle of a stage: what was written before stays."""

import os
import signal

import torch
from torch._inductor import lowering

original = lowering.lowerings[torch.ops.aten.tanh.default]


def fatal(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)
    return original(*args, **kwargs)


lowering.lowerings[torch.ops.aten.tanh.default] = fatal

torch.compile(lambda x: torch.tanh(x.relu() + 1))(torch.randn(8))
