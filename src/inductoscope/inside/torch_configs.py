"""Runs in a child process: asks the installed torch which configurations it would try.

    python bounded.py LIMITS file ask_torch.py MODULE EVENTS_FD

MODULE is written by `asking.py`: the kernel's functions under torch's own heuristic. Importing it
makes torch choose; the configurations go to EVENTS_FD as JSON, and nothing is compiled.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from typing import Any


def main() -> None:
    """Import the module and say what torch chose for the kernel in it."""
    module, events = sys.argv[1:3]
    answer = json.dumps(_answer(module), default=str).encode()
    os.write(int(events), answer + b"\n")


def _answer(module: str) -> dict[str, Any]:
    try:
        import torch
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner, config_to_dict

        names = runpy.run_path(module)
        tuners = [value for value in names.values() if isinstance(value, CachingAutotuner)]
        configs = [config_to_dict(config) for config in tuners[0].configs]
        return {"event": "configs", "torch": torch.__version__, "configs": configs}
    except BaseException as error:
        return {"event": "error", "message": f"{type(error).__name__}: {error}"[:2000]}


if __name__ == "__main__":
    main()
