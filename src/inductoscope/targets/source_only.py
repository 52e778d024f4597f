"""Stops at Triton source: kernels are generated and not compiled.

For a machine without Triton, and for users who only want to see the decisions.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

TORCH_NAMES = {
    "torch._inductor.async_compile": ("AsyncCompile.triton",),
    "torch._inductor.codecache": ("PyCodeCache.load_by_key_path",),
    "torch._inductor.codegen.triton_utils": ("AttrsDescriptorWrapper",),
    "torch._inductor.runtime.triton_helpers": ("get_backend_options",),
    "torch._inductor.scheduler": ("has_triton",),
    "torch._inductor.utils": (
        "TritonAttrsDescriptorVersion.V4_DICT",
        "get_triton_attrs_descriptor_version",
    ),
    "torch.utils._triton": ("triton_hash_with_backend",),
}


class _Written:
    """Takes the place of a compiled kernel; a launch does nothing."""

    def run(self, *args: Any, **kwargs: Any) -> None:
        """Nothing."""

    def precompile(self, *args: Any, **kwargs: Any) -> None:
        """Nothing."""


def write_kernels_only() -> None:
    """From now on Triton kernels are not compiled in this process."""
    from torch._inductor import async_compile

    async_compile.AsyncCompile.triton = lambda *args, **kwargs: _Written()
    if importlib.util.find_spec("triton") is None:
        _do_without_triton()


def _do_without_triton() -> None:
    """Inductor writes Triton source by itself; it only checks whether Triton is there."""
    import torch.utils._triton as presence
    from torch._inductor import codecache, scheduler, utils
    from torch._inductor.codegen import triton_utils
    from torch._inductor.runtime import triton_helpers

    scheduler.has_triton = lambda *args, **kwargs: True
    # torch asks Triton's backend to choose among configurations, and has its own default.
    triton_helpers.get_backend_options = dict
    presence.triton_hash_with_backend = lambda: ""
    with contextlib.suppress(AttributeError):
        # As for every Triton since 3.3; without Triton, torch would write an older form.
        newest = utils.TritonAttrsDescriptorVersion.V4_DICT
        utils.get_triton_attrs_descriptor_version = lambda: newest
        triton_utils.AttrsDescriptorWrapper = _descriptor
    load = codecache.PyCodeCache.load_by_key_path

    def load_without_triton(*args: Any, **kwargs: Any) -> Any:
        with _empty_triton():
            return load(*args, **kwargs)

    codecache.PyCodeCache.load_by_key_path = load_without_triton


def _descriptor(
    divisible_by_16: Any = None, equal_to_1: Any = None, pointer_range_32: Any = None
) -> dict[Any, Any]:
    """What is known of a kernel's arguments, as Inductor writes it into the kernel."""
    found: dict[Any, Any] = {(n,): [["tt.divisibility", 16]] for n in divisible_by_16 or ()}
    for number in pointer_range_32 or ():
        found.setdefault((number,), []).append(["tt.pointer_range", 32])
    return found


@contextlib.contextmanager
def _empty_triton() -> Iterator[None]:
    """Generated wrappers import Triton in their first lines, and use it only to launch."""
    names = ("triton", "triton.language")
    made = {name: ModuleType(name) for name in names}
    for name, module in made.items():
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    made["triton"].language = made["triton.language"]  # type: ignore[attr-defined]
    sys.modules.update(made)
    try:
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)
