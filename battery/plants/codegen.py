"""C++ text that is wrong, refused by g++, deadly or endless."""

from __future__ import annotations

from battery.fault import Recipe

MODULE = "torch._inductor.codegen.cpp"
_AFTER = ("runtime", "cpp-compile")


def _text(operation: str, kind: str, method: str, expression: str, parameters: str = "x") -> Recipe:
    """`method` of the scalar and of the vector overrides returns this text."""
    also = {"compile-error": ("cpp-compile",), "crash": _AFTER, "hang": _AFTER}
    return Recipe(
        operation=operation,
        stage="codegen",
        kind=kind,
        module=MODULE,
        body=f"@staticmethod\ndef {method}({parameters}):\n    return f{expression!r}\n\n"
        f"m.CppOverrides.{method} = m.CppVecOverrides.{method} = {method}",
        culprits=(method, f"aten.{operation}", operation),
        also=also.get(kind, ()),
        touches=(method,),
    )


def _relu_bug(bug: str, kind: str, also: tuple[str, ...]) -> Recipe:
    """The bugs that torch's own tests plant."""
    return Recipe(
        "relu",
        "codegen",
        kind,
        "torch._inductor.config",
        f'm.cpp.inject_relu_bug_TESTING_ONLY = "{bug}"',
        ("relu", "inject_relu_bug"),
        also,
        detail="injected",
    )


_ANY = "decltype({x})"

RECIPES = (
    _text("tanh", "wrong-result", "tanh", "{x} / (" + _ANY + "(1) + {x} * {x})"),
    _text("abs", "wrong-result", "abs", "{x} * {x}"),
    _text("floor", "wrong-result", "floor", "{x} - " + _ANY + "(0.5)"),
    _text("exp", "wrong-result", "exp", _ANY + "(1) + {x} + {x} * {x}"),
    _text("sqrt", "wrong-result", "sqrt", "{x} * " + _ANY + "(0.5)"),
    _text("cos", "wrong-result", "cos", _ANY + "(1) - {x} * {x} * " + _ANY + "(0.5)"),
    Recipe(
        "row_sum",
        "codegen",
        "wrong-result",
        MODULE,
        """
original = m.CppVecKernel.reduction_combine_vec

def reduction_combine_vec(self, reduction_type, *rest, **more):
    swapped = {"sum": "max"}.get(reduction_type, reduction_type)
    return original(self, swapped, *rest, **more)

m.CppVecKernel.reduction_combine_vec = reduction_combine_vec
""",
        ("reduction_combine_vec", "aten.sum", "sum"),
        touches=("mean",),
        detail="combine",
        templates=("function", "module", "breaks"),
    ),
    _text("log", "nan", "log", "({x} - {x}) / ({x} - {x})"),
    _text("rsqrt", "nan", "rsqrt", "({x} - {x}) / ({x} - {x})"),
    _text("erf", "nan", "erf", "{x} * " + _ANY + "(std::numeric_limits<float>::quiet_NaN())"),
    _text("abs", "compile-error", "abs", "{x}.absolute_value()"),
    _text("round", "compile-error", "round", "round_half_even({x}"),
    _text(
        "rsqrt",
        "compile-error",
        "rsqrt",
        "vec_fast_rsqrt<decltype({x})>({x})",
    ),
    _relu_bug("compile_error", "compile-error", ("cpp-compile",)),
    _relu_bug("accuracy", "wrong-result", ()),
    _relu_bug("runtime_error", "crash", _AFTER),
    _text("sin", "crash", "sin", "{x} * " + _ANY + "(*(volatile float*)nullptr)"),
    _text("cos", "crash", "cos", "[&]() {{ __builtin_trap(); return {x}; }}()"),
    _text("sqrt", "crash", "sqrt", "[&]() {{ std::abort(); return {x}; }}()"),
    Recipe(
        "round",
        "codegen",
        "crash",
        MODULE,
        """
@staticmethod
def round(x):
    return f"{x}.round({x.rounding_mode})"

m.CppOverrides.round = m.CppVecOverrides.round = round
""",
        ("round", "rounding_mode"),
        detail="raises",
    ),
    Recipe(
        "row_sum",
        "codegen",
        "crash",
        MODULE,
        """
original = m.CppVecKernel.reduction_combine_vec

def reduction_combine_vec(self, reduction_type, *rest, **more):
    if reduction_type == "sum":
        raise AssertionError("vectorised sum")
    return original(self, reduction_type, *rest, **more)

m.CppVecKernel.reduction_combine_vec = reduction_combine_vec
""",
        ("reduction_combine_vec", "vectorised sum"),
        detail="combine",
        templates=("function", "module", "breaks"),
    ),
    _text(
        "erf",
        "hang",
        "erf",
        "[&]() {{ for (volatile int i = 0; ; i = i + 1) ; return {x}; }}()",
    ),
)
