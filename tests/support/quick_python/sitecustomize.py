"""Python that collects garbage less often, and not again and again when it ends.

Going through all the objects of torch and its compiler, most of which are there to stay, takes a
fifth of the time of a program that compiles something small. Programs under test have this folder
on their PYTHONPATH; garbage is still collected, and everything that runs at exit runs.
"""

import atexit
import gc
import importlib.abc
import importlib.util
import os
import sys

gc.set_threshold(50_000, 20, 100)


def _end():
    gc.freeze()
    # Modules go in another order than usual, and finalizers complain of missing ones.
    sys.unraisablehook = lambda _: None


class _Trust(importlib.abc.MetaPathFinder):
    """TORCHINDUCTOR_VEC_ISA_OK holds for every instruction set.

    For some of those that only new processors have, torch starts the compiler all the same.
    """

    def find_spec(self, name, path, target=None):
        if name != "torch._inductor.cpu_vec_isa":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def execute_and_trust(module):
            execute(module)
            module.VecISA.check_build = lambda self, code: True

        spec.loader.exec_module = execute_and_trust
        return spec


if os.environ.get("TORCHINDUCTOR_VEC_ISA_OK") == "1":
    sys.meta_path.insert(0, _Trust())
atexit.register(_end)  # The first one is called last.
