"""The Python side of the reports of rewritten C++ wrappers.

A wrapper finds `CALLS` by name and calls its functions, which forward everything to the receiver
registered for this wrapper. An exception in a receiver ends the run: the wrapper throws, and
`original_errors` raises the first exception.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from ctypes import POINTER, c_char_p, c_int, c_int64, c_void_p
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from inductoscope.torch_facts.cpp_wrappers import CAPSULE

if TYPE_CHECKING:
    from inductoscope.inside.compare.kernels import GraphReports

# Allocates a buffer from its name, sizes, strides, and a tensor of its dtype and device.
Allocator = Callable[[str, Sequence[int], Sequence[int], torch.Tensor], torch.Tensor]


@dataclass
class _Registered:
    """The receivers and allocators of wrappers, and the first error in one of them."""

    reports: dict[bytes, GraphReports] = field(default_factory=dict)
    allocators: dict[bytes, Allocator] = field(default_factory=dict)
    error: BaseException | None = None


_REGISTERED = _Registered()


def report_to(reports: GraphReports, wrapper: str) -> None:
    """Register `reports` as the receiver of the wrapper with this name."""
    _REGISTERED.reports[wrapper.encode()] = reports


def allocate_with(allocator: Allocator, wrapper: str) -> None:
    """Register `allocator` as the source of buffers of the wrapper with this name."""
    _REGISTERED.allocators[wrapper.encode()] = allocator


@contextlib.contextmanager
def original_errors() -> Iterator[None]:
    """Raise a receiver's exception itself, rather than the C++ wrapper's error about it."""
    _REGISTERED.error = None
    try:
        yield
    except Exception as error:
        original, _REGISTERED.error = _REGISTERED.error, None
        if original is None or original is error:
            raise
        raise original from error


# --- called by wrappers ---------------------------------------------------------------------------


def _begin(wrapper: bytes, count: int, handles: Any, held: int, names: Any, constants: Any) -> int:
    tensors = [_tensor(handles[number]) for number in range(count)]
    named = _named(held, names, constants)
    reports = _REGISTERED.reports.get(wrapper)
    return 0 if reports is None else _done(lambda: reports.begin(tensors, named))


def _before(wrapper: bytes, kernel: bytes) -> int:
    reports = _REGISTERED.reports.get(wrapper)
    return 0 if reports is None else _done(lambda: reports.before(kernel.decode()))


def _after(wrapper: bytes, kernel: bytes, count: int, names: Any, handles: Any) -> int:
    buffers = _named(count, names, handles)
    reports = _REGISTERED.reports.get(wrapper)
    return 0 if reports is None else _done(lambda: reports.after(kernel.decode(), buffers))


def _allocate(
    wrapper: bytes, name: bytes, ndim: int, sizes: Any, strides: Any, like: int, made: Any
) -> int:
    prototype = _tensor(like)
    allocator = _REGISTERED.allocators.get(wrapper)
    if allocator is None:
        return 0

    def allocate() -> None:
        made[0] = _handle(allocator(name.decode(), sizes[:ndim], strides[:ndim], prototype))

    return _done(allocate)


def _done(work: Callable[[], None]) -> int:
    """Run `work` and return 0, or 1 on error: no exception may propagate through C++ code."""
    try:
        work()
    except BaseException as error:
        _REGISTERED.error = error
        return 1
    return 0


# --- handles --------------------------------------------------------------------------------------

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [c_void_p, c_char_p, c_void_p]
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = c_void_p
_pointer_of.argtypes = [ctypes.py_object, c_char_p]


def _named(count: int, names: Any, handles: Any) -> dict[str, torch.Tensor]:
    return {names[at].decode(): _tensor(handles[at]) for at in range(count) if handles[at]}


def _tensor(handle: int) -> torch.Tensor:
    """Take ownership of a tensor handle."""
    made: torch.Tensor = torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr(
        _new_capsule(handle, None, None)
    )
    return made


def _handle(tensor: torch.Tensor) -> int:
    """Return a new handle, which the wrapper then owns."""
    return int(_pointer_of(torch._C._aoti.unsafe_alloc_void_ptr_from_tensor(tensor), None))


# --- the table that wrappers find -----------------------------------------------------------------

_NAMES, _HANDLES, _SIZES = POINTER(c_char_p), POINTER(c_void_p), POINTER(c_int64)
_TEXT, _COUNT = c_char_p, c_int64
# The members of `Calls` in the C++ text that `cpp_wrappers` adds, in the same order.
_FUNCTIONS = (
    (_begin, (_TEXT, _COUNT, _HANDLES, _COUNT, _NAMES, _HANDLES)),
    (_before, (_TEXT, _TEXT)),
    (_after, (_TEXT, _TEXT, _COUNT, _NAMES, _HANDLES)),
    (_allocate, (_TEXT, _TEXT, _COUNT, _SIZES, _SIZES, c_void_p, _HANDLES)),
)
_CALLBACKS = [ctypes.CFUNCTYPE(c_int, *types)(function) for function, types in _FUNCTIONS]
_TABLE = (c_void_p * len(_CALLBACKS))(*(ctypes.cast(each, c_void_p).value for each in _CALLBACKS))
# The capsule does not copy its name.
_CAPSULE_NAME = CAPSULE.encode()
CALLS = _new_capsule(ctypes.addressof(_TABLE), _CAPSULE_NAME, None)
