"""What torch's own check for NaN says (`nan_asserts`), in the words of the program.

A wrapper in Python raises a bare AssertionError, in a line that names a variable of its own; one in
C++ names the variable. Both look at inputs of the graph, a wrapper in Python at results as well.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence

import torch

from inductoscope.doctor.compare.case import Case
from inductoscope.doctor.compare.values import is_plain
from inductoscope.vocabulary.counting import count_of

_SAID = re.compile(r"At least one (?:NaN|INF) in (\w+)", re.IGNORECASE)
_ASSERTED = re.compile(r"assert not (\w+)\.is(?:nan|inf)\(\)\.any\(\)\.item\(\)")


def refused_by_nan_asserts(error: BaseException, case: Case, names: Sequence[str]) -> str:
    """Why it is no fault of the compiler that a call is refused; "" if it may be one, or is no such
    error. `names` are those of the inputs."""
    if not _is_nan_assert(error):
        return ""
    given = (
        _described(f"input {n} ({name})", value)
        for n, (name, value) in enumerate(zip(names, case.inputs, strict=False))
    )
    made = (_described(where, value) for where, value in case.eager.named_values())
    return next((text for text in given if text), "") or next(
        (f"{text}, in eager as well" for text in made if text), ""
    )


def _is_nan_assert(error: BaseException) -> bool:
    if isinstance(error, AssertionError):
        frames = traceback.extract_tb(error.__traceback__)
        return bool(frames) and _ASSERTED.match((frames[-1].line or "").strip()) is not None
    return isinstance(error, RuntimeError) and _SAID.search(str(error)) is not None


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
