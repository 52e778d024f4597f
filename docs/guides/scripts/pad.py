"""A lowering of our own for padding at the end. It forgets that nothing is there to be read."""

import torch
from torch._inductor import ir, lowering


def pad_at_the_end(x, padding, fill=0):
    (size,) = x.get_size()
    return ir.Pointwise.create(
        device=x.get_device(),
        dtype=x.get_dtype(),
        inner_fn=x.make_loader(),  # It should load only where the index is below the size.
        ranges=[size + padding[1]],
    )


lowering.lowerings[torch.ops.aten.constant_pad_nd.default] = pad_at_the_end


def prepare(signal):
    louder = torch.tanh(signal) * 2
    return torch.nn.functional.pad(louder, (0, 3)).square()


signal = torch.linspace(-1, 1, 37)
print("eager:   ", prepare(signal)[-3:].tolist())
print("compiled:", torch.compile(prepare)(signal)[-3:].tolist())
