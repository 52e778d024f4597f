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
        "nan_to_num",
        "cpp-compile",
        "nan",
        MODULE,
        """
original = m._get_ffast_math_flags

def _get_ffast_math_flags():
    return [*original(), "ffinite-math-only"]

m._get_ffast_math_flags = _get_ffast_math_flags
""",
        ("finite-math", "nan_to_num", "isnan"),
        ("codegen",),
        ("function", "module", "breaks"),
        detail="fast-math",
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
