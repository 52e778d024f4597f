"""Two denoising steps of a small diffusion U-Net; only the U-Net is compiled."""

import torch
from diffusers import DDPMScheduler, UNet2DModel

torch.manual_seed(0)
model = UNet2DModel(
    sample_size=16,
    in_channels=3,
    out_channels=3,
    layers_per_block=1,
    block_out_channels=(16, 32),
    norm_num_groups=8,
    attention_head_dim=8,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
).eval()
compiled = torch.compile(model)
scheduler = DDPMScheduler(num_train_timesteps=100)
scheduler.set_timesteps(2)
picture = torch.randn(1, 3, 16, 16)
with torch.no_grad():
    for moment in scheduler.timesteps:
        noise = compiled(picture, moment).sample
        generator = torch.Generator().manual_seed(1)
        picture = scheduler.step(noise, moment, picture, generator=generator).prev_sample
print(picture.norm().item())
