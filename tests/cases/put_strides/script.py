"""Patch a few pixels of a transposed image and hand the rows to a flat writer."""
import sys
import torch


def patch(image, mask, where, values):
    plane = image.sub(image.mean()).div(image.std() + 1e-3)
    plane = torch.where(mask, plane, plane * 0.5)
    patched = plane.put(where, values)
    peak = patched.amax(dim=1)
    return patched, peak


def rows_flat(plane):
    """The writer wants the columns of the sensor, which are contiguous here."""
    return plane.t().view(-1)


torch.manual_seed(0)
image = torch.rand(12, 10).mT
mask = torch.rand(12, 10).mT > 0.3
where = torch.tensor([0, 17, 45])
values = torch.tensor([9.0, 8.0, 7.0])
want, want_peak = patch(image, mask, where, values)
print("eager   :", want.stride(), rows_flat(want)[:4].tolist())
got, got_peak = torch.compile(patch)(image, mask, where, values)
print("compiled:", got.stride(), "peaks agree:", torch.allclose(want_peak, got_peak))
flat = rows_flat(got)
sys.exit(0 if torch.allclose(flat, rows_flat(want)) else 1)
