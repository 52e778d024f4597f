"""What torch's own check for NaN says (`nan_asserts`), in the words of the program.

It looks at inputs of the graph before anything is computed; a wrapper in Python looks at results as
well, and code for Triton at what each kernel reads and writes.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from inductoscope.doctor.compare.case import Case
from inductoscope.doctor.compare.values import is_plain
from inductoscope.vocabulary.counting import count_of
from inductoscope.vocabulary.nan_checks import refused_variable

# What a wrapper calls the inputs of its graph, and the results that it looks at in a loop.
_INPUT = re.compile(r"(arg|primals_)\d+(_\d+)?")
_RESULT, _RESULTS = "var", "return_vars"


@dataclass(frozen=True)
class Refusal:
    """Why it is no fault of the compiler that a call is refused.

    It is certain if what was refused is what holds NaN in eager, too, rather than something else.
    """

    text: str
    is_certain: bool


def refused_by_nan_asserts(
    error: BaseException, case: Case, names: Sequence[str]
) -> Refusal | None:
    """What excuses the refusal; None if nothing does, or if it is another error.

    `names` are those of the inputs.
    """
    frames = traceback.extract_tb(error.__traceback__)
    line = (frames[-1].line or "") if frames else ""
    variable = refused_variable(type(error).__name__, str(error), line)
    if not variable:
        return None
    given = (
        _described(f"input {n} ({name})", value)
        for n, (name, value) in enumerate(zip(names, case.inputs, strict=False))
    )
    held = next((text for text in given if text), "")
    if held and _INPUT.fullmatch(variable):
        return Refusal(held, is_certain=True)
    place = _place_of_result(error, variable, len(case.eager.outputs))
    if place is not None:
        number, value = place
        return _refused_result(number, value, case.eager.outputs[number])
    made = (_described(where, value) for where, value in case.eager.named_values())
    computed = next((f"{text}, in eager as well" for text in made if text), "")
    text = held or computed
    return Refusal(text, is_certain=False) if text else None


def _place_of_result(
    error: BaseException, variable: str, count: int
) -> tuple[int, torch.Tensor] | None:
    """Which result a wrapper in Python refused, and what it is.

    None if the graph returns something else than the function does: what it keeps for the backward
    pass, or inputs that it changes.
    """
    entries = list(traceback.walk_tb(error.__traceback__))
    local: dict[str, Any] = entries[-1][0].f_locals if entries else {}
    value, results = local.get(_RESULT), local.get(_RESULTS)
    if variable != _RESULT or not isinstance(results, tuple) or len(results) != count:
        return None
    number = next((n for n, result in enumerate(results) if result is value), None)
    return (number, value) if number is not None and isinstance(value, torch.Tensor) else None


def _refused_result(number: int, value: torch.Tensor, in_eager: object) -> Refusal | None:
    """None if compiled code alone makes NaN of an element."""
    text = _described(f"output {number}", in_eager)
    if not text or not isinstance(in_eager, torch.Tensor) or in_eager.shape != value.shape:
        return None
    alone = ~value.detach().isfinite() & in_eager.detach().isfinite()
    if bool(alone.any()):
        return None
    return Refusal(f"{text}, in eager as well", is_certain=True)


def _described(where: str, value: object) -> str:
    """Where a tensor holds NaN or infinity; "" if it holds none."""
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
