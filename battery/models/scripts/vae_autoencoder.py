"""Encodes and decodes a picture with a small variational autoencoder."""

import torch
from diffusers import AutoencoderKL

torch.manual_seed(0)
model = AutoencoderKL(
    block_out_channels=(16, 32),
    layers_per_block=1,
    norm_num_groups=8,
    down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
    up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
).eval()
decode = torch.compile(model.decode)
encode = torch.compile(model.encode)
with torch.no_grad():
    hidden = encode(torch.randn(1, 3, 16, 16)).latent_dist.mean
    picture = decode(hidden).sample
print(hidden.norm().item(), picture.norm().item())
