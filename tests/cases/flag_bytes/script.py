"""Pack per-row alarm flags of a byte image into a byte mask for the display."""
import sys
import torch


def display_mask(image, threshold):
    bright = torch.where(image > threshold, image, torch.zeros_like(image))
    smooth = (bright.float() * 0.5).round().to(torch.uint8)
    rows = smooth.any(dim=1)
    peak = smooth.amax(dim=1)
    mask = rows * 200 + 100
    return mask, peak


torch.manual_seed(0)
image = torch.randint(0, 256, (9, 40), dtype=torch.uint8)
image[4] = 3
want, want_peak = display_mask(image, 20)
got, got_peak = torch.compile(display_mask)(image, 20)
print("eager   :", want.dtype, want.tolist())
print("compiled:", got.dtype, got.tolist())
print("peaks agree:", torch.equal(want_peak, got_peak))
sys.exit(0 if want.dtype == got.dtype and torch.equal(want, got) else 1)
