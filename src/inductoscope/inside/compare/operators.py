"""Finds the first wrong decomposition, and the first custom operator with a false declaration.

The function runs in eager; each operation that Inductor would decompose runs both ways on its
actual arguments. A decomposition may use operations that are decomposed in turn, so the innermost
one that differs is to blame. Nothing is compiled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from inductoscope.doctor.failure import LOST_CHECK
from inductoscope.inside.compare.bug_or_rounding import is_close, judge
from inductoscope.inside.compare.reference import Case
from inductoscope.inside.compare.values import copy_values, run

_DEEPEST = 12
_METADATA = ("dtype", "shape")
_KINDS = ("value", "nan", *_METADATA)


@dataclass(frozen=True)
class WrongDecomposition:
    """An operation whose result differs from its decomposition's."""

    operation: str
    text: str
    kind: str
    # The node that was run, where that is known.
    node: str = ""


def first_wrong_decomposition(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    backward: bool,
    aspect: str = "value",
    current_node: Callable[[], str] = lambda: "",
) -> WrongDecomposition | None:
    """Run the function and compare every operation with its decomposition.

    `current_node` returns the running node. Strides are compared only if they are the `aspect` in
    question, because most strides have no effect; so are errors, with which the function ends.
    """
    from torch._inductor.decomposition import select_decomp_table

    kinds = (aspect,) if aspect in ("stride", LOST_CHECK) else _KINDS
    mode = _Compare(select_decomp_table(), kinds, current_node)
    try:
        run(function, inputs, backward=backward, mode=mode)
    except Exception:
        if aspect != LOST_CHECK:
            raise
    return mode.found


def raising_operation(function: Callable[..., Any], inputs: Sequence[Any]) -> str:
    """Return the operation that raises when the function runs in eager; "" if none does."""
    mode = _Raises()
    with contextlib.suppress(Exception):
        run(function, inputs, backward=False, mode=mode)
    return mode.operation


class _Raises(TorchDispatchMode):
    operation = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return func(*args, **(kwargs or {}))
        except Exception:
            self.operation = str(func)
            raise


class _Compare(TorchDispatchMode):
    def __init__(
        self,
        table: dict[Any, Any],
        kinds: tuple[str, ...],
        current_node: Callable[[], str],
        depth: int = 0,
    ) -> None:
        super().__init__()
        self._table, self._kinds, self._depth = table, kinds, depth
        self._current_node = current_node
        self.found: WrongDecomposition | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # Uninitialised results differ anyway; writes to arguments go to copies.
        if func in self._table and self.found is None and "empty" not in str(func):
            self._compare(func, args, kwargs)
        return func(*args, **kwargs)

    def _note(self, func: Any, text: str, kind: str) -> None:
        self.found = WrongDecomposition(str(func), text, kind, self._current_node())

    def _compare(self, func: Any, args: Any, kwargs: Any) -> None:
        flat, form = tree_flatten((args, kwargs))
        places = [n for n, leaf in enumerate(flat) if isinstance(leaf, torch.Tensor)]
        tensors = copy_values([flat[place].detach() for place in places])

        def with_tensors(call: Callable[..., Any]) -> Callable[..., Any]:
            def function(*given: Any) -> Any:
                leaves = list(flat)
                for place, value in zip(places, given, strict=True):
                    leaves[place] = value
                arguments, keywords = tree_unflatten(leaves, form)
                return call(*arguments, **keywords)

            return function

        inner = _Compare(self._table, self._kinds, self._current_node, self._depth + 1)
        try:
            nested = inner if self._depth < _DEEPEST else None
            decomposed = run(with_tensors(self._table[func]), tensors, backward=False, mode=nested)
        except Exception as error:
            self.found = inner.found
            # A decomposition may decline an operation; torch then leaves it as it is.
            declines = isinstance(error, (NotImplementedError, AssertionError))
            if self.found is None and not declines:
                self._note(func, f"{type(error).__name__}: {error}", "error")
            return
        case = Case(with_tensors(func), tensors)
        if any(value is NotImplemented for value in tree_leaves(decomposed.outputs)):
            return
        self._judge(func, case, decomposed, inner)

    def _judge(self, func: Any, case: Case, decomposed: Any, inner: _Compare) -> None:
        if case.eager_error is None and "stride" not in self._kinds:
            pairs = zip(case.eager.outputs, decomposed.outputs, strict=False)
            if all(_alike(mine, other) for mine, other in pairs):
                return
        is_random = torch.Tag.nondeterministic_seeded in func.tags
        kinds = _METADATA if is_random else self._kinds
        comparison = judge(case, decomposed).counting(kinds)
        wrong = [item for item in comparison.wrong if item.kind in kinds]
        if wrong:
            self.found = inner.found
        if wrong and self.found is None:
            lost = wrong[0].lost
            of_check = (
                f"the operation raises {lost.eager}; its decomposition does not" if lost else ""
            )
            self._note(func, of_check or wrong[0].text, wrong[0].kind)


def _alike(one: Any, two: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor):
        return one.dtype == two.dtype and one.shape == two.shape and is_close(one, two)
    return type(one) is type(two)


# --- The first custom operator that does not do what it declares ----------------------------------
#
# Every compiler relies on an operator's schema, which says what it mutates, and on its fake
# implementation, which says what it returns. If one of them is wrong, some later stage computes a
# wrong result. torch's `opcheck` finds out, on the actual arguments of the operator.


# Namespaces of torch that torch does not count as built in.
_OF_TORCH = (
    "inductor", "_c10d_functional", "c10d", "quantized", "mkldnn", "mkl", "onednn", "profiler",
)  # fmt: skip
_CHECKS = ("test_schema", "test_faketensor")


@dataclass(frozen=True)
class FalseDeclaration:
    """A custom operator, and the failure that opcheck reports for it."""

    operation: str
    text: str


def first_false_declaration(
    function: Callable[..., Any], inputs: Sequence[Any]
) -> FalseDeclaration | None:
    """Run the function and check every operator that is not part of torch."""
    mode = _Check()
    with contextlib.suppress(Exception):  # Earlier findings still hold.
        run(function, inputs, backward=False, mode=mode)
    return mode.found


class _Check(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.found: FalseDeclaration | None = None
        self._seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        if self.found is None and name not in self._seen and is_custom(func):
            self._seen.add(name)
            self._check(func, name, args, kwargs or {})
        return func(*args, **(kwargs or {}))

    def _check(self, func: Any, name: str, args: Any, kwargs: Any) -> None:
        try:
            said = torch.library.opcheck(
                func, args, kwargs, test_utils=_CHECKS, raise_exception=False
            )
        except Exception:  # opcheck cannot handle this operator.
            return
        for check in _CHECKS:
            if isinstance(said.get(check), Exception):
                self.found = FalseDeclaration(name, f"{name}: {said[check]}"[:500])
                return


def is_custom(func: Any) -> bool:
    """Check whether an operator was registered by the program or a library, not by torch."""
    from torch._library.utils import is_builtin

    is_operator = isinstance(func, torch._ops.OpOverload)
    return is_operator and not is_builtin(func) and func.namespace not in _OF_TORCH
