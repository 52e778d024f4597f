"""A small CLIP scores pictures against sentences."""

import torch
from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPVisionConfig

torch.manual_seed(0)
sizes = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
text = CLIPTextConfig(vocab_size=300, bos_token_id=0, eos_token_id=1, pad_token_id=1, **sizes)
vision = CLIPVisionConfig(image_size=32, patch_size=8, **sizes)
config = CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=32)
model = CLIPModel(config).eval()
compiled = torch.compile(model)
pictures, sentences = torch.randn(3, 3, 32, 32), torch.randint(2, 300, (4, 10))
with torch.no_grad():
    print(compiled(input_ids=sentences, pixel_values=pictures).logits_per_image.tolist())
