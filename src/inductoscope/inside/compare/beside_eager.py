"""Calls compiled code beside eager: one call, `check` and `assert_same`, NaN asserts, layouts."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import GraphModule
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from inductoscope.inside.compare.bug_or_rounding import (
    EagerComparison,
    comparison_of_metadata,
    judge,
)
from inductoscope.inside.compare.graphs import as_function
from inductoscope.inside.compare.reference import Case
from inductoscope.inside.compare.values import (
    copy_values,
    draws_random_numbers,
    is_plain,
    run,
    same_generators,
)
from inductoscope.recording.events import NotedDifference
from inductoscope.torch_facts.messages import refused_variable
from inductoscope.wording import count_of


@dataclass(frozen=True)
class CallBesideEager:
    """The outcome of a compiled call: a comparison with eager, or an error."""

    comparison: EagerComparison | None = None
    seconds: float = 0.0
    error: Exception | None = None
    # The reason why the error is no fault of the compiler: torch's NaN check is right.
    refusal: Refusal | None = None


def call_beside_eager(
    case: Case, compiled: Callable[..., Any], names: Sequence[str], *, keeps_graph: bool = False
) -> CallBesideEager:
    """Call the compiled code on the inputs of a case, whose names are `names`."""
    try:
        outcome = run(compiled, case.inputs, backward=case.backward, keeps_graph=keeps_graph)
    except Exception as error:
        return CallBesideEager(error=error, refusal=refused_by_nan_asserts(error, case, names))
    return CallBesideEager(judge(case, outcome), outcome.seconds)


# --- What torch's own check for NaN says (`nan_asserts`), in the words of the program -------------
#
# The check tests inputs of the graph before anything is computed; a Python wrapper tests results
# as well, and Triton code the tensors that each kernel reads and writes.

# A wrapper's names for the inputs of its graph, and for the results that it checks in a loop.
_INPUT = re.compile(r"(arg|primals_)\d+(_\d+)?")
_RESULT, _RESULTS = "var", "return_vars"


@dataclass(frozen=True)
class Refusal:
    """The reason why an error of torch's NaN check is no fault of the compiler.

    It is certain if the refused tensor itself holds NaN in eager as well, rather than another one.
    """

    text: str
    is_certain: bool


def refused_by_nan_asserts(
    error: BaseException, case: Case, names: Sequence[str]
) -> Refusal | None:
    """Return the excuse for an error of the NaN check; None if there is none.

    `names` are the names of the inputs.
    """
    variable = _refused(error)
    if not variable:
        return None
    given = (
        (f"input {n} ({name})", value)
        for n, (name, value) in enumerate(zip(names, case.inputs, strict=False))
    )
    held = _first_described(given)
    if held and _INPUT.fullmatch(variable):
        return Refusal(held, is_certain=True)
    place = _place_of_result(error, variable, len(case.eager.outputs))
    if place is not None:
        number, value = place
        return _refused_result(number, value, case.eager.outputs[number])
    computed = "" if held else _first_described(case.eager.named_values())
    text = f"{computed}, in eager as well" if computed else held
    return Refusal(text, is_certain=False) if text else None


def refusal_by_any(error: BaseException, named_values: Iterable[tuple[str, Any]]) -> Refusal | None:
    """Return a likely excuse: one of these values of the program holds NaN, too."""
    text = _first_described(named_values) if _refused(error) else ""
    return Refusal(f"{text}, in eager as well", is_certain=False) if text else None


def _refused(error: BaseException) -> str:
    """Return the variable that torch's NaN check has refused; "" for any other error."""
    frames = traceback.extract_tb(error.__traceback__)
    line = (frames[-1].line or "") if frames else ""
    return refused_variable(type(error).__name__, str(error), line)


def _first_described(named_values: Iterable[tuple[str, Any]]) -> str:
    texts = (_described(where, value) for where, value in named_values)
    return next((text for text in texts if text), "")


def _place_of_result(
    error: BaseException, variable: str, count: int
) -> tuple[int, torch.Tensor] | None:
    """Return the index and value of the result that a Python wrapper refused.

    None if the graph's results are not the function's, because it saves tensors for the backward
    pass or returns mutated inputs.
    """
    entries = list(traceback.walk_tb(error.__traceback__))
    local: dict[str, Any] = entries[-1][0].f_locals if entries else {}
    value, results = local.get(_RESULT), local.get(_RESULTS)
    if variable != _RESULT or not isinstance(results, tuple) or len(results) != count:
        return None
    number = next((n for n, result in enumerate(results) if result is value), None)
    return (number, value) if number is not None and isinstance(value, torch.Tensor) else None


def _refused_result(number: int, value: torch.Tensor, in_eager: object) -> Refusal | None:
    """Return the excuse for a refused result; None if only compiled code makes NaN."""
    text = _described(f"output {number}", in_eager)
    if not text or not isinstance(in_eager, torch.Tensor) or in_eager.shape != value.shape:
        return None
    alone = ~value.detach().isfinite() & in_eager.detach().isfinite()
    if bool(alone.any()):
        return None
    return Refusal(f"{text}, in eager as well", is_certain=True)


def _described(where: str, value: object) -> str:
    """Describe where a tensor holds NaN or infinity; "" if it holds none."""
    if not isinstance(value, torch.Tensor) or not is_plain(value):
        return ""
    if not (value.dtype.is_floating_point or value.dtype.is_complex):
        return ""
    odd = ~value.detach().isfinite()
    if not bool(odd.any()):
        return ""
    first = odd.nonzero()[0].tolist()
    what = "NaN" if bool(value.detach().isnan().any()) else "infinity"
    count = f"{int(odd.sum())} of {count_of(value.numel(), 'element')}"
    return f"{where} holds {what}, first at index {first} ({count})"


# --- Checks one function: `inductoscope.check(f, *args)`, `inductoscope.assert_same(f, *args)` ----

_OTHER_NUMBERS = (
    "values differ, but were not judged: it draws random numbers, and may have been compiled "
    "before to draw others than eager"
)


def check(
    function: Callable[..., Any],
    *arguments: Any,
    compiled: Callable[..., Any] | None = None,
    backward: bool | None = None,
    **options: Any,
) -> EagerComparison:
    """Compile `function`, run it and eager on copies of the arguments, and compare.

    Outputs, gradients, written inputs, types and shapes are compared; values are judged against
    float64; strides and shared memory that differ are noted. The parameters and buffers of a module
    count as arguments, and stay as they are. `compiled` is a compiled function to judge instead;
    `backward` forces gradients on or off; other options go to `torch.compile`. An exception of the
    compiler, or of the function itself, is raised as it is.
    """
    leaves, flat = _flattened(function, arguments)
    with_gradients = torch.is_grad_enabled() and any(
        isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves
    )
    backward = with_gradients if backward is None else backward
    eager = flat(function)
    case = Case(eager, leaves, backward)
    if case.eager_error is not None:
        raise case.eager_error  # The caller handles it.
    from torch._inductor import config

    with config.patch(fallback_random=True):
        candidate = torch.compile(eager, **options) if compiled is None else flat(compiled)
        outcome = run(candidate, leaves, backward=backward)
    comparison = judge(case, outcome)
    if comparison.wrong and compiled is not None and draws_random_numbers(eager, leaves):
        metadata = comparison_of_metadata(case.eager, outcome)
        return replace(metadata, explained=comparison.wrong, reason=_OTHER_NUMBERS)
    return comparison


Flat = Callable[[Callable[..., Any]], Callable[..., Any]]


def _flattened(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[list[Any], Flat]:
    """Return all tensors a call reads, and a converter to functions of these tensors."""
    state = _state(function)
    leaves, form = tree_flatten(arguments)

    def flat(call: Callable[..., Any]) -> Callable[..., Any]:
        def function_of_leaves(*values: Any) -> Any:
            given = tree_unflatten(list(values[len(state) :]), form)
            if not state:
                return call(*given)
            own = dict(zip(state, values, strict=False))
            if isinstance(call, torch.nn.Module):
                return torch.func.functional_call(call, own, given)
            with _reparametrize_module(function, own):  # `call` uses the module.
                return call(*given)

        return function_of_leaves

    return [*state.values(), *leaves], flat


def _state(function: Any) -> dict[str, torch.Tensor]:
    if not isinstance(function, torch.nn.Module):
        return {}
    return {**dict(function.named_parameters()), **dict(function.named_buffers())}


def assert_same(function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """Raise an AssertionError that lists the differences, if compiled and eager differ."""
    result = check(function, *arguments, **options)
    if not result:
        raise AssertionError(f"compiled and eager differ:\n{result}")


# --- Results laid out in memory as eager's: a program that fails because of that ends well then ---


def call_as_in_eager(
    module: GraphModule,
    compiled: Callable[..., Any],
    arguments: Sequence[Any],
    wanted: Sequence[NotedDifference],
) -> Any:
    """Call a compiled graph, and lay out the wanted outputs in memory as eager does."""
    copies = copy_values(arguments)
    with same_generators(), torch.no_grad():
        eager = tree_leaves(as_function(module)(*copies))
    results, form = tree_flatten(compiled(*arguments))
    for number, aspects in sorted(_aspects_by_output(wanted).items()):
        if number >= len(results) or not _is_alike(results[number], eager[number]):
            continue
        owner = _owner(eager[number], arguments, copies) if "sharing" in aspects else None
        if owner is not None:
            results[number] = owner
        else:
            _lay_out(results, eager, number, with_others="sharing" in aspects)
    return tree_unflatten(results, form)


def _aspects_by_output(wanted: Sequence[NotedDifference]) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for note in wanted:
        kind, _, number = note.where.partition(" ")
        if kind == "output" and number.isdigit():
            found.setdefault(int(number), set()).add(note.aspect)
    return found


def _owner(like: torch.Tensor, inputs: Sequence[Any], copies: Sequence[Any]) -> Any:
    """Return the input, or the view of an input, that an output of eager is; or None."""
    for source, copy in zip(inputs, copies, strict=True):
        if _is_alike(source, copy) and copy.dtype == like.dtype and _share(copy, like):
            return source if copy is like else _view(source, like)
    return None


def _lay_out(results: list[Any], eager: Sequence[Any], number: int, *, with_others: bool) -> None:
    """Copy a result into memory laid out as in eager; gradients pass through.

    `with_others` also moves outputs that share its memory in eager to the same memory.
    """
    like = eager[number]
    together = [
        other
        for other, value in enumerate(eager)
        if other == number
        or (
            with_others
            and _is_alike(results[other], value)
            and _share(value, like)
            and value.dtype == like.dtype
        )
    ]
    count = like.untyped_storage().nbytes() // like.element_size()
    memory = torch.zeros(count, dtype=like.dtype, device=results[number].device)
    # Outputs that are one object in eager become one object.
    views = {id(eager[other]): _view(memory, eager[other]) for other in together}
    for other in together:
        views[id(eager[other])].copy_(results[other])
        results[other] = views[id(eager[other])]


def _is_alike(one: Any, two: Any) -> bool:
    return is_plain(one) and is_plain(two) and one.shape == two.shape and one.dtype == two.dtype


def _share(one: torch.Tensor, two: torch.Tensor) -> bool:
    storage = one.untyped_storage()
    return bool(storage.nbytes()) and storage._cdata == two.untyped_storage()._cdata


def _view(memory: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return memory.as_strided(like.size(), like.stride(), like.storage_offset())
