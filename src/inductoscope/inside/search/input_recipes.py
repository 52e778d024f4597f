"""Expressions that create the inputs of a candidate, so that a script needs no data file."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from inductoscope.inside.compare.values import is_plain
from inductoscope.inside.search.candidate import Candidate

_SHORT = 64
_LONGEST_LITERAL = 2000
# Number of elements above which evaluating a recipe takes seconds, so that few are tried.
_LARGE = 1 << 26


def recipes_of(candidate: Candidate) -> list[list[str]]:
    """Return, for each input, the expressions that create it; a view refers to its base."""
    owners = _owners(candidate.inputs)
    # An index out of range raises an exception on the CPU; on a GPU it costs the whole process.
    keeps_range = bool(candidate.device)
    return [
        [_view_of(owners[number], candidate.inputs[owners[number]], value)]
        if number in owners
        else list(recipes_for(value, keeps_range=keeps_range))
        for number, value in enumerate(candidate.inputs)
    ]


def _is_in_range(made: torch.Tensor, value: torch.Tensor) -> bool:
    """Check whether the created integers lie within the range of the original's."""
    if value.dtype.is_floating_point or value.dtype.is_complex or value.dtype is torch.bool:
        return True
    if not value.numel():
        return True
    (low, high), (lowest, highest) = _range_of(made), _range_of(value)
    return low >= lowest and high <= highest


def _range_of(numbers: torch.Tensor) -> tuple[int, int]:
    try:
        low, high = numbers.detach().aminmax()
    except RuntimeError:  # Some types have no maximum.
        low, high = numbers.detach().long().aminmax()
    return int(low), int(high)


def _owners(inputs: Sequence[Any]) -> dict[int, int]:
    """Map each input that shares storage with a larger one to the number of the larger one."""
    plain = {n: v for n, v in enumerate(inputs) if isinstance(v, torch.Tensor) and is_plain(v)}
    found: dict[int, int] = {}
    for number, value in plain.items():
        for other, whole in plain.items():
            if number == other or other in found or not _fills_its_storage(whole):
                continue
            if value.dtype != whole.dtype:
                continue
            if value.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr():
                found[number] = other
    return found


def _fills_its_storage(value: torch.Tensor) -> bool:
    nbytes = value.numel() * value.element_size()
    return bool(nbytes) and value.is_contiguous() and nbytes == value.untyped_storage().nbytes()


def _view_of(owner: int, whole: torch.Tensor, value: torch.Tensor) -> str:
    form = f"{tuple(value.shape)}, {value.stride()}, {value.storage_offset()}"
    before = ".detach()" if whole.requires_grad and not value.requires_grad else ""
    after = ".requires_grad_()" if value.requires_grad and not whole.requires_grad else ""
    return f"{shared_name(owner)}{before}.as_strided({form}){after}"


def shared_name(number: int) -> str:
    """Return the variable for an input that other recipes view."""
    return f"shared_{number}"


def recipes_for(value: Any, *, keeps_range: bool = False) -> Iterator[str]:
    """Yield expressions for a tensor of this shape and dtype, simplest first, in its range.

    The last one creates exactly this value; it is empty if no literal can.
    """
    if isinstance(value, torch.Tensor) and value._is_zerotensor():
        yield f"torch._efficientzerotensor({_tuple(value)}, dtype={value.dtype})"
        return
    if not is_plain(value):
        yield repr(value) if not isinstance(value, torch.Tensor) else ""
        return
    made = None
    for text in (*_simple_texts(value), *_literal_texts(value), _packed(value)):
        text = _in_layout(text, value) if text else ""
        found = _fitting(text, value) if text else None
        if found is not None and (not keeps_range or _is_in_range(found, value)):
            made = found
            yield text
    if made is None or not _is_exactly(made, value):
        yield ""


def _is_exactly(made: torch.Tensor, value: torch.Tensor) -> bool:
    if value.numel() > _LARGE:
        return False  # No literal is that long.
    same = (made == value) | ((made != made) & (value != value))
    return made.shape == value.shape and bool(same.all())


def make_inputs(recipes: Sequence[str], originals: Sequence[Any]) -> list[Any]:
    """Evaluate the recipes as a script does: in its order, from one seed."""
    known: dict[str, Any] = {"torch": torch, "zlib": zlib, "base64": base64}
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        # As in a script, shared tensors come first and views of them last. Only expressions that
        # this file created are evaluated.
        for number in sorted(range(len(recipes)), key=lambda n: _order_of(n, recipes)):
            text = recipes[number]
            known[shared_name(number)] = eval(text, known) if text else originals[number]
    return [known[shared_name(number)] for number in range(len(recipes))]


def _order_of(number: int, recipes: Sequence[str]) -> int:
    if "shared_" in recipes[number]:
        return 2
    return 0 if any(f"{shared_name(number)}." in other for other in recipes) else 1


def _fitting(text: str, like: torch.Tensor) -> torch.Tensor | None:
    """Return the tensor that an expression creates, if its form matches the original."""
    try:
        made: torch.Tensor = make_inputs([text], [like])[0]
    except Exception:
        return None
    fits = made.shape == like.shape and made.dtype == like.dtype and made.device == like.device
    return made if fits else None


def _simple_texts(value: torch.Tensor) -> Iterator[str]:
    shape = ", ".join(str(size) for size in value.shape) or "()"
    place = _place(value)
    kind = ("" if value.dtype is torch.float32 else f", dtype={value.dtype}") + place
    is_large = value.numel() > _LARGE
    yield f"torch.ones({shape}{kind})"
    if value.dtype.is_floating_point or value.dtype.is_complex:
        cast = "" if value.dtype is torch.float32 else f".to({value.dtype})"
        random = f"torch.randn({shape}{place}){cast}"
        yield random
    if not is_large:
        yield f"torch.zeros({shape}{kind})"
    if value.dtype is torch.bool:
        yield f"torch.arange({value.numel()}{place}).remainder(3).eq(0).reshape({_tuple(value)})"
        yield f"torch.rand({shape}{place}) > 0.5"
        return
    if not is_large and not value.dtype.is_complex:
        yield f"torch.arange({value.numel()}{kind}).reshape({_tuple(value)})"
    if value.dtype.is_floating_point:
        for scale in () if is_large else (0.01, 10.0, 100.0):
            yield f"{random} * {scale}"
        yield f"{random}.abs()"
    elif value.numel() and not value.dtype.is_complex:
        lowest, highest = _range_of(value)
        if lowest >= 0:
            yield f"torch.randint(0, {highest + 1}, ({shape},){kind})"


def _place(value: torch.Tensor) -> str:
    """Return the device argument for a factory function."""
    return "" if value.device.type == "cpu" else f", device={str(value.device)!r}"


def _tuple(value: torch.Tensor) -> str:
    return repr(tuple(value.shape))


def _literal_texts(value: torch.Tensor) -> Iterator[str]:
    if value.numel() > _SHORT or value.dtype.is_complex:
        return
    kind = f", dtype={value.dtype}{_place(value)}"
    if value.dtype.is_floating_point:
        for digits in (1, 3):
            rounded = (value.detach().double() * 10**digits).round() / 10**digits
            yield f"torch.tensor({_numbers(rounded)}{kind})"
    yield f"torch.tensor({_numbers(value.detach())}{kind})"


def _numbers(value: torch.Tensor) -> str:
    return re.sub(r"-?\b(?:inf|nan)\b", r"float('\g<0>')", repr(value.tolist()))


def _packed(value: torch.Tensor) -> str:
    """Return a literal of the exact bytes, compressed, for values without a simple recipe."""
    flat = value.detach().cpu().contiguous()
    if flat.numel() * flat.element_size() > 64 * _LONGEST_LITERAL:
        return ""
    data = bytes(flat.reshape(-1).view(torch.uint8).tolist())
    text = base64.b64encode(zlib.compress(data, 9)).decode()
    moved = "" if value.device.type == "cpu" else f".to({str(value.device)!r})"
    return (
        f"torch.frombuffer(bytearray(zlib.decompress(base64.b64decode({text!r}))), "
        f"dtype={value.dtype}).reshape({_tuple(value)}){moved}"
    )


def _in_layout(text: str, value: torch.Tensor) -> str:
    """Give the expression's tensor the strides and the storage offset of the original."""
    shape, kind = _tuple(value), f"dtype={value.dtype}{_place(value)}"
    nbytes = value.untyped_storage().nbytes()
    if 0 in value.stride() and value.numel():
        # One element along each dimension that was expanded.
        first = ", ".join(":1" if step == 0 else ":" for step in value.stride())
        made = f"({text})[{first}].expand({shape})"
    elif value.storage_offset() > 0 and nbytes < 64 * _LONGEST_LITERAL:
        place = f"{shape}, {value.stride()}, {value.storage_offset()}"
        size = nbytes // value.element_size()
        made = f"torch.zeros({size}, {kind}).as_strided({place}).copy_({text})"
    elif value.is_contiguous():
        made = text
    else:
        made = f"torch.empty_strided({shape}, {value.stride()}, {kind}).copy_({text})"
    return f"({made}).requires_grad_()" if value.requires_grad else made
