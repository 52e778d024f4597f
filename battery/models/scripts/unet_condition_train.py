"""A training step of a U-Net that is conditioned on text, as in Stable Diffusion.

With torch 2.13.0 on aarch64 it is not healthy: compared without inductoscope, the gradients that
Inductor computes differ from eager's by as much as their own size, also with one thread. Those of
the backend `aot_eager_decomp_partition` are right.
"""

import torch
from diffusers import UNet2DConditionModel
from torch.nn import functional as F

torch.manual_seed(0)
model = UNet2DConditionModel(
    sample_size=16,
    layers_per_block=1,
    block_out_channels=(16, 32),
    norm_num_groups=8,
    cross_attention_dim=24,
    attention_head_dim=8,
    down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
)
compiled = torch.compile(model)
noisy, noise = torch.randn(2, 4, 16, 16), torch.randn(2, 4, 16, 16)
predicted = compiled(noisy, torch.tensor([3, 40]), torch.randn(2, 5, 24)).sample
loss = F.mse_loss(predicted, noise)
loss.backward()
print(loss.item())
