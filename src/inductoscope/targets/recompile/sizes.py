"""Recorded sizes: numbers, or expressions of symbols for dynamic sizes."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterable
from typing import Any

from inductoscope.targets.recompile.unbuildable import Unbuildable

TORCH_NAMES = {
    "torch._dynamo.source": ("ConstantSource",),
    "torch.fx.experimental.symbolic_shapes": ("DimDynamic.DYNAMIC",),
}

_SYMBOL = re.compile(r"[A-Za-z_]\w{0,40}")
_ARITHMETIC: dict[type[ast.operator], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS = {"Mod": operator.mod, "PythonMod": operator.mod, "FloorDiv": operator.floordiv}
_DEEPEST = 20
_LARGEST = 2**62


class Sizes:
    """Makes sizes for inputs: the same symbol is the same size everywhere."""

    def __init__(self, shape_env: Any) -> None:
        self._shape_env = shape_env
        self._symbols: dict[str, Any] = {}

    def learn(self, sizes: Iterable[Any], hints: Iterable[Any]) -> None:
        """Remember the values of the symbols in the recorded run."""
        for size, hint in zip(sizes, hints, strict=False):
            is_symbol = isinstance(size, str) and _SYMBOL.fullmatch(size)
            if is_symbol and size not in self._symbols and type(hint) is int:
                self._symbols[size] = self._new_symbol(size, hint)

    def _new_symbol(self, name: str, hint: int) -> Any:
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic

        source = ConstantSource(f"size_{name}")
        symbol = self._shape_env.create_symbol(
            hint, source=source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None
        )
        return self._shape_env.create_symintnode(symbol, hint=hint, source=source)

    def size(self, recorded: Any) -> Any:
        """A size, a stride, or an input that is a number."""
        if type(recorded) is int and 0 <= recorded < _LARGEST:
            return recorded
        if not isinstance(recorded, str):
            raise Unbuildable(f"a size is {str(recorded)[:40]}")
        if recorded in self._symbols:
            return self._symbols[recorded]
        try:
            tree = ast.parse(recorded, mode="eval")
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            raise Unbuildable(f"a size cannot be read: {recorded[:60]}") from error
        return self._evaluate(tree.body, 0)

    def _evaluate(self, node: ast.expr, depth: int) -> Any:
        if depth > _DEEPEST:
            raise Unbuildable("a size is nested too deeply")
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name) and node.id in self._symbols:
            return self._symbols[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._evaluate(node.operand, depth + 1)
        function, operands = _two_operands(node)
        left, right = (self._evaluate(operand, depth + 1) for operand in operands)
        return function(left, right)


def _two_operands(node: ast.expr) -> tuple[Any, list[ast.expr]]:
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return _ARITHMETIC[type(node.op)], [node.left, node.right]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 2:
        function = _FUNCTIONS.get(node.func.id)
        if function is not None and not node.keywords:
            return function, node.args
    raise Unbuildable(f"a size is only known while the program runs: {ast.unparse(node)[:60]}")
