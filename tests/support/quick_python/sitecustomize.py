"""Python that collects garbage less often, and not again and again when it ends.

Going through all the objects of torch and its compiler, most of which are there to stay, takes a
fifth of the time of a program that compiles something small. Programs under test have this folder
on their PYTHONPATH; garbage is still collected, and everything that runs at exit runs.
"""

import atexit
import gc
import sys

gc.set_threshold(50_000, 20, 100)


def _end():
    gc.freeze()
    # Modules go in another order than usual, and finalizers complain of missing ones.
    sys.unraisablehook = lambda _: None


atexit.register(_end)  # The first one is called last.
