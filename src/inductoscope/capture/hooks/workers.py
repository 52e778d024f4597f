"""Worker processes: torch compiles Triton kernels, and times choices, in processes of its own.

It gives them a PYTHONPATH made from `sys.path`, which no longer has the scope's start-up hook;
it is put back here, so that each worker writes a stream of its own.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from inductoscope.capture.scope import SCOPE
from inductoscope.capture.scope_variables import RECORDING_VARIABLE, with_scope
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.torch_names import Hook, TorchName, Wrap

TORCH_NAMES = {
    "torch._inductor.autotune_process": (),
    "torch._inductor.compile_worker.subproc_pool": (),
}


def _with_scope_for_workers(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def environment_for_workers(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        # Workers outlive a block of `inductoscope.record()`, so only whole runs record them.
        if SCOPE.active and RECORDING_VARIABLE in os.environ:
            return with_scope(found)
        return found

    return environment_for_workers


WORKERS = Hook(
    stage=stages.TRITON_COMPILE,
    records="what torch's worker processes compile",
    wraps=tuple(
        Wrap(TorchName(module, "python_subprocess_env"), _with_scope_for_workers)
        for module in (
            "torch._inductor.compile_worker.subproc_pool",
            "torch._inductor.autotune_process",
        )
    ),
)
