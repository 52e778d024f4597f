"""Thumbnails of byte images; a checksum guards the pixels."""
import torch
import torch.nn.functional as F
torch.manual_seed(0)
def thumbs(images):
    small = F.interpolate(images, size=(7, 5), mode="bilinear")
    return small, small.long().sum()
images = torch.randint(0, 256, (1, 3, 10, 11), dtype=torch.uint8)
want, got = thumbs(images), torch.compile(thumbs)(images)
print(want[1].item(), got[1].item())
assert want[1] == got[1]
