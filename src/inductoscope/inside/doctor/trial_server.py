"""Runs in a child of a cluster's worker: loads torch, then tries candidates in forks.

The child is set up like the program under the doctor: with hooks that report the stage, one
thread, random numbers as in eager, and a private cache.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from pathlib import Path
from typing import TYPE_CHECKING

from inductoscope.doctor.instructions import FOR_FORKS
from inductoscope.inside import private_cache
from inductoscope.inside.doctor.checking_agent import ThreadLimit
from inductoscope.inside.doctor.program_copy import FindingsAlone
from inductoscope.inside.hooks import HOOKS
from inductoscope.inside.install import Installer
from inductoscope.inside.scope import SCOPE
from inductoscope.launch.environment import private_cache as private_cache_variables

if TYPE_CHECKING:
    from inductoscope.inside.child import Channel


def serve(channel: Channel, folder: str) -> None:
    """Answer requests until nobody asks any more; `folder` is for what is written."""
    _load(Path(folder) / "cache")
    from inductoscope.inside.search.cluster_forks import answered

    for request in channel.requests:
        channel.say("answer", data=b64encode(answered(b64decode(request))).decode())


def _load(cache: Path) -> None:
    """Load torch and its compiler, with the hooks installed."""
    os.environ |= {**private_cache_variables(cache), **FOR_FORKS}
    threads = ThreadLimit()
    SCOPE.redirect(FindingsAlone(None))
    Installer(HOOKS, on_import={**private_cache.on_import(), **threads.on_import()}).start()
    import torch  # noqa: F401

    threads.apply()
    from torch._inductor import config

    config.fallback_random = True
    from inductoscope.inside.search.compiler_imports import import_compiler

    import_compiler()
