"""Requirements of a package on its constants, also on tensors that replace them.

`load_constants` compares names and, since torch 2.11, device types, and nothing else. It copies the
whole storage behind a tensor, and the code reads that with the dtype, shape and strides of the
original constant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from inductoscope.torch_facts.package_wrappers import PackagedConstant
from inductoscope.wording import count_of

CPU = "cpu"


@dataclass(frozen=True)
class ConstantFacts:
    """Facts about a tensor that replaces a constant."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: str  # its kind
    # The storage offset in elements, and the bytes of the whole storage.
    offset: int = 0
    storage_bytes: int = 0


def broken_demands(
    constant: PackagedConstant, given: ConstantFacts, *, is_copied: bool
) -> Iterator[str]:
    """Yield the requirements that a new value violates; `is_copied`: user_managed is False."""
    own = f"constant {constant.name}"
    if constant.device and given.device != constant.device:
        yield f"{own}: the new one is on {given.device}; the package has it on {constant.device}"
    if constant.dtype and given.dtype != constant.dtype:
        yield f"{own}: the new one has dtype {given.dtype}; the package has {constant.dtype}"
    if given.shape != constant.shape:
        shapes = f"{list(given.shape)}; the package has {list(constant.shape)}"
        yield f"{own}: the new one has shape {shapes}"
    elif constant.stride and _moves(given.strides, constant):
        strides = f"{list(given.strides)}; the package has {list(constant.stride)}"
        yield f"{own}: the new one has strides {strides}"
    if is_copied and given.offset:
        yield (
            f"{own}: the new one is a view that begins at element {given.offset} of its memory; "
            "torch copies from there, and then leaves out as many elements again"
        )
    elif is_copied and constant.bytes and given.storage_bytes > constant.bytes:
        yield (
            f"{own}: the new one is a view of {count_of(given.storage_bytes, 'byte')}; torch "
            f"copies all of them, and the package has room for {constant.bytes}"
        )


def is_about_view(text: str) -> bool:
    """Check whether a violation is about a view: a valid tensor that torch reads wrongly."""
    return ": the new one is a view " in text


def overflows(text: str) -> bool:
    """Check whether torch writes past the end of the package's own memory."""
    return is_about_view(text) and ", and the package has room for " in text


def on_other_device(constants: Iterable[PackagedConstant], device: str) -> list[PackagedConstant]:
    """Return the constants that are not on the package's device."""
    return [each for each in constants if each.device and device and each.device != device]


def _moves(strides: tuple[int, ...], constant: PackagedConstant) -> bool:
    """Check whether strides differ from the constant's, except in dimensions of size 1."""
    pairs = zip(constant.shape, strides, constant.stride, strict=False)
    return 0 not in constant.shape and any(size > 1 and one != other for size, one, other in pairs)
