"""Runs in a child of a cluster's worker: loads torch, then tries candidates in forks of itself.

    python -m inductoscope.inside.doctor.trial_server

Standard input is a connection: a request comes in, its answer goes out, until the other side is
gone. The child is as the program is under the doctor: hooks that say which stage is at work, one
thread, random numbers as in eager, a private cache.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from inductoscope.inside import private_cache
from inductoscope.inside.doctor.checking_agent import ThreadLimit
from inductoscope.inside.doctor.program_copy import FindingsAlone
from inductoscope.inside.hooks import HOOKS
from inductoscope.inside.install import Installer
from inductoscope.inside.scope import SCOPE
from inductoscope.processes.cluster_children import FOLDER_VARIABLE
from inductoscope.processes.messages import receive_message, send_message


def main() -> None:
    """Answer requests until nobody asks any more."""
    connection = socket.socket(fileno=os.dup(0))
    quiet = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(quiet, descriptor)
    _load()
    from inductoscope.inside.search.cluster_forks import answered

    while True:
        try:
            request = receive_message(connection)
            send_message(connection, answered(request))
        except OSError:
            return


def _load() -> None:
    """Load torch and its compiler, with the hooks in them."""
    cache = Path(os.environ[FOLDER_VARIABLE]) / "cache"
    os.environ.update(private_cache.environment(cache))
    # As for the program itself; see `Instructions.environment`.
    os.environ |= {
        "OMP_THREAD_LIMIT": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "CUDA_LAUNCH_BLOCKING": "1",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }
    threads = ThreadLimit()
    SCOPE.redirect(FindingsAlone(None))
    Installer(HOOKS, on_import={**private_cache.on_import(), **threads.on_import()}).start()
    import torch  # noqa: F401

    threads.apply()
    from torch._inductor import config

    config.fallback_random = True
    from inductoscope.inside.search.compiler_imports import import_compiler

    import_compiler()


if __name__ == "__main__":
    main()
