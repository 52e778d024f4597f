"""One thread under the doctor, and code for as many as the program has without it.

A process that has used several OpenMP threads cannot use them in a fork, so no thread is ever
started. What Inductor generates depends on how many threads there are: parallel loops, and even
which lowering is used. So Inductor, like the program, is told the number that the program would
have. Inductor's loops are right with fewer threads. Its templates of matrix products are not, and
are told of one; nor is OpenBLAS, which divides its work by the number that was set.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from inductoscope.capture.scope import SCOPE

TORCH_NAMES = {
    "torch._C": ("set_num_threads",),
    "torch._inductor.codegen.cpp_gemm_template": ("parallel_num_threads",),
    "torch._inductor.codegen.cpp_grouped_gemm_template": ("parallel_num_threads",),
    "torch._inductor.utils": ("parallel_num_threads",),
}

_UTILS = "torch._inductor.utils"
# They give every thread its share of a matrix by its number, and rely on getting all threads.
_TEMPLATES = (
    "torch._inductor.codegen.cpp_gemm_template",
    "torch._inductor.codegen.cpp_grouped_gemm_template",
)


class ThreadLimit:
    """The number of threads that the program would have."""

    def __init__(self) -> None:
        self._usual = 1

    def apply(self) -> None:
        """Called when torch is imported, before anything runs: libraries wait for all threads."""
        torch: Any = sys.modules["torch"]
        self._usual = torch.get_num_threads()
        _use_one_thread()
        _in_every_thread(_use_one_thread)
        torch.get_num_threads, torch.set_num_threads = self._of_the_program()

    def _of_the_program(self) -> tuple[Callable[[], int], Callable[[int], None]]:
        """In the place of torch's functions: the program sees the number that it would have."""

        def get_num_threads() -> int:
            return self._usual

        def set_num_threads(number: int) -> None:
            if not isinstance(number, int) or number < 1:
                raise RuntimeError("set_num_threads expects a positive integer")
            self._usual = number

        for function in (get_num_threads, set_num_threads):
            function.__dict__["_torchdynamo_disable"] = True  # Not traced, as torch's own.
        return get_num_threads, set_num_threads

    def on_import(self) -> dict[str, Callable[[], None]]:
        """What to do when these modules are imported."""
        return {_UTILS: self._tell_inductor, **{name: _one_thread(name) for name in _TEMPLATES}}

    def _tell_inductor(self) -> None:
        module = sys.modules[_UTILS]
        original = getattr(module, "parallel_num_threads", None)
        if original is None:
            return

        def parallel_num_threads() -> int:
            # More than one are the program's own choice.
            found: int = original()
            return found if found > 1 else self._usual

        module.parallel_num_threads = parallel_num_threads  # type: ignore[attr-defined]


def _use_one_thread() -> None:
    """For the thread that calls this: OpenMP keeps the number for each thread."""
    import torch

    torch._C.set_num_threads(1)


def _in_every_thread(begin: Callable[[], None]) -> None:
    """Have Python threads that are started from now on begin with this."""
    original = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def bootstrap_inner(thread: threading.Thread) -> None:
        SCOPE.guard(begin)
        original(thread)

    threading.Thread._bootstrap_inner = bootstrap_inner  # type: ignore[attr-defined]


def _one_thread(name: str) -> Callable[[], None]:
    def tell() -> None:
        sys.modules[name].parallel_num_threads = lambda: 1  # type: ignore[attr-defined]

    return tell
