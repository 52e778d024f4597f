"""The C++ compiler: its flags, and whether it ever ends."""

from __future__ import annotations

from battery.fault import Recipe

MODULE = "torch._inductor.cpp_builder"

RECIPES = (
    Recipe(
        "gelu",
        "cpp-compile",
        "compile-error",
        MODULE,
        """
original = m._get_optimization_cflags

def _get_optimization_cflags(*rest, **more):
    cflags, ldflags = original(*rest, **more)
    return [*cflags, "fno-such-optimisation"], ldflags

m._get_optimization_cflags = _get_optimization_cflags
""",
        ("fno-such-optimisation",),
        ("codegen",),
        detail="flag",
    ),
    Recipe(
        "softmax",
        "cpp-compile",
        "hang",
        MODULE,
        """
import time

def run_compile_cmd(cmd_line, cwd):
    while True:
        time.sleep(1.0)

m.run_compile_cmd = run_compile_cmd
""",
        ("run_compile_cmd", "c++", "g++", "cpp"),
        ("codegen",),
    ),
)
