"""The part of a script that puts NaN in and around tensors, for bugs that need it to show."""

from __future__ import annotations

from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.plain_compile import special_flow

IN_FILLED_MEMORY = "in_filled_memory"

_FUNCTIONS = f"""\
def filled(size, stride, dtype):
    \"\"\"A new tensor. All bytes in it, before it and after it are 255: NaN, or -1.\"\"\"
    length = (1 + sum((n - 1) * step for n, step in zip(size, stride))) * dtype.itemsize
    if 0 in size:
        return torch.empty(size, dtype=dtype, device="cpu")
    memory = torch.full((length + 8192,), 255, dtype=torch.uint8, device="cpu")
    part = (ctypes.c_char * length).from_address(memory.data_ptr() + 4096)
    part.whole = memory  # It lives as long as its part.
    return torch.frombuffer(part, dtype=dtype).as_strided(size, stride)


def {IN_FILLED_MEMORY}(values):
    \"\"\"The same tensors, with other bytes beside them: compiled code must not read those.\"\"\"
    owners = [value.untyped_storage().data_ptr() for value in values if torch.is_tensor(value)]
    found = []
    for value in values:
        if torch.is_tensor(value) and value.is_contiguous():
            if owners.count(value.untyped_storage().data_ptr()) == 1:
                copy = filled(value.shape, value.stride(), value.dtype).copy_(value.detach())
                value = copy.requires_grad_(value.requires_grad)
        found.append(value)
    return found
"""
_BUFFERS = """\


# Compiled code gets its buffers from this function.
torch._C._dynamo.guards._empty_strided_cpu = filled"""


def filled_memory_text(candidate: Candidate) -> str:
    """Functions for the inputs; buffers are out of reach where the wrapper is C++."""
    has_cpp_wrapper = bool(special_flow(candidate))
    return (_FUNCTIONS if has_cpp_wrapper else _FUNCTIONS + _BUFFERS).rstrip("\n")
