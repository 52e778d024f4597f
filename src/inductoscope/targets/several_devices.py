"""Several devices that are not there: which of them is the current one, the program says."""

from __future__ import annotations

from typing import Any

from inductoscope.targets.stand_in import StandIn
from inductoscope.targets.torch_side import pretend_in_copies

TORCH_NAMES = {
    "torch._C": (),
    "torch._subclasses.fake_tensor": ("FakeTensor._normalize_fake_device",),
    "torch.cuda._utils": ("_get_device_index",),
}
# Exchanged for the current device, it changes nothing.
_NO_DEVICE = -1


def pretend_devices(stand_in: StandIn, count: int) -> None:
    """Called after `take_over`, which pretends one."""
    import torch

    stand_in.have_devices(count)
    answers, inner = _answers(stand_in, count), _answers(stand_in, count)
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    for name, inner_name in _INNER_NAMES.items():
        setattr(torch._C, inner_name, inner[name])
    pretend_in_copies(answers)
    _put_tensors_on_the_current_device(stand_in)


_INNER_NAMES = {
    "device_count": "_cuda_getDeviceCount",
    "current_device": "_cuda_getDevice",
    "set_device": "_cuda_setDevice",
    "_exchange_device": "_cuda_exchangeDevice",
    "_maybe_exchange_device": "_cuda_maybeExchangeDevice",
}


def _answers(stand_in: StandIn, count: int) -> dict[str, Any]:
    """Each is a function of its own: Dynamo tells them apart by identity."""
    from torch.cuda._utils import _get_device_index

    def set_device(device: Any) -> None:
        stand_in.exchange_device(_get_device_index(device))

    return {
        "device_count": lambda: count,
        "current_device": lambda: stand_in.exchange_device(_NO_DEVICE),
        "set_device": set_device,
        "_exchange_device": lambda device: stand_in.exchange_device(device),
        "_maybe_exchange_device": lambda device: stand_in.exchange_device(device),
    }


def _put_tensors_on_the_current_device(stand_in: StandIn) -> None:
    """A fake tensor on "cuda" would be on the first one, as long as no device is initialised."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    original = getattr(FakeTensor, "_normalize_fake_device", None)
    if original is None:
        return

    def normalized(device: torch.device) -> torch.device:
        if device.type == "cuda" and device.index is None:
            return torch.device("cuda", stand_in.exchange_device(_NO_DEVICE))
        return original(device)

    FakeTensor._normalize_fake_device = staticmethod(normalized)
