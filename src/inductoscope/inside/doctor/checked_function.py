"""Compares whole compiled functions with the same Python code in eager.

Dynamo may capture something other than what the program says, and no graph can show that. So the
first calls of every compiled function are also made uncompiled, in a fork, where they cannot change
the program's memory, and the results, errors and warnings are compared. Their writes to files
happen twice.
"""

from __future__ import annotations

import cmath
import contextlib
import functools
import math
import os
import random
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import torch
import torch._dynamo.exc
from torch._dynamo import convert_frame
from torch._dynamo.eval_frame import reset_code
from torch.utils._pytree import tree_leaves

from inductoscope.doctor.instructions import FUNCTION_SCRIPT, Instructions
from inductoscope.errors import ToolFailure
from inductoscope.inside.compare.bug_or_rounding import described
from inductoscope.inside.compare.collectives import ANSWERED_COLLECTIVES
from inductoscope.inside.compare.large_calls import is_lack_of_memory
from inductoscope.inside.doctor.program_copy import take_copy_before_compile
from inductoscope.inside.repro.source_text import function_script
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.search.forks import Forks
from inductoscope.recording.events import NOT_RAISED, CallableCheck, NotedDifference
from inductoscope.wording import count_of

_CALLS = 2
_SECONDS = 60.0
# If two runs in eager take longer, those of a second call tell too little for their time.
_SHORT = 4.0
_LARGEST = 256 << 20

# Far beyond rounding: smaller differences are judged graph by graph, against float64.
_RELATIVE, _ABSOLUTE = 2e-2, 1e-3
# What rounding in the function's graphs explains, as a part of the largest magnitude.
_MOST_NOISE = 0.1


_thread = threading.local()


def compile_checked_function(
    original: Callable[..., Any],
    instructions: Instructions,
    folder: Path,
    context: Any,
    function: Any,
) -> Any:
    """Compile a function as torch.compile does, and check its first calls."""
    compiled = original(context, function)
    is_function = isinstance(compiled, types.FunctionType)
    if not is_function or type(context).__name__ != "OptimizeContext":
        return compiled
    if instructions.captures_every_call:
        compiled = _captured_anew(compiled)
    return checked_function(compiled, function, context, folder)


def _captured_anew(compiled: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(compiled)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            _forget_captured()
        return compiled(*args, **kwargs)

    return call


def _forget_captured() -> None:
    """Have Dynamo capture each function again; what it knows of changing sizes stays."""
    codes = (convert_frame.input_codes, convert_frame.output_codes)
    for code in [reference() for each in codes for reference in each.seen]:
        if code is not None:
            reset_code(code)


def checked_function(
    compiled: Callable[..., Any], function: Callable[..., Any], context: Any, folder: Path
) -> Any:
    """Return the compiled function, whose first calls are also made in eager."""
    calls, is_short, rounding = 0, True, 0.0
    warned: set[str] = set()

    @functools.wraps(compiled)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls, is_short, rounding
        can_fork = SCOPE.active and not SCOPE.is_redirected and not torch.cuda.is_initialized()
        is_nested = getattr(_thread, "is_checking", False) or torch.compiler.is_compiling()
        if calls >= _CALLS or (calls and not is_short) or is_nested or not can_fork:
            return compiled(*args, **kwargs)
        calls += 1
        # What rounding explained before counts: the graphs of a later call may be left out.
        _thread.is_checking, _thread.rounding, started = True, rounding, time.monotonic()
        try:
            # Run it twice: values that differ anyway, such as a time, say nothing about Dynamo.
            with ANSWERED_COLLECTIVES.answering():
                eager = [_in_eager(function, args, kwargs, folder) for _ in range(2)]
            _thread.eager, is_short = eager, time.monotonic() - started < _SHORT
            take_copy_before_compile()
            with _shown_warnings() as shown:
                result = compiled(*args, **kwargs)
            values = _values(result, args, kwargs)
            warned.update(shown)
            rounding = _thread.rounding
            SCOPE.guard(_compare, function, calls, eager, values, warned, rounding)
        except torch._dynamo.exc.TorchDynamoException as error:
            if not kwargs:
                SCOPE.guard(_write_script, function, args, context, error, folder)
            raise
        finally:
            _thread.is_checking, _thread.eager = False, []
        return result

    return call


def has_returned_in_eager() -> bool:
    """Check whether the Python code of the call under way is known to return without a compiler."""
    return any(isinstance(run, _Returned) for run in getattr(_thread, "eager", ()))


def note_rounding(largest: float) -> None:
    """Note how far a graph's results are from eager's in the call under way, by rounding alone."""
    if math.isfinite(largest):
        _thread.rounding = max(getattr(_thread, "rounding", 0.0), largest)


@dataclass(frozen=True)
class _Returned:
    """Values that the function returned or wrote, and warnings that were shown."""

    values: list[Any]
    # With the place of each.
    warnings: dict[str, str]


@dataclass(frozen=True)
class _Raised:
    """The error with which the function ended in eager."""

    text: str


# None if it is not known how the function ends.
_Ending = _Returned | _Raised | None


@contextlib.contextmanager
def _shown_warnings() -> Iterator[dict[str, str]]:
    """Collect the warnings that pass the program's filters, with their places; they are shown."""
    show, shown = warnings.showwarning, dict[str, str]()

    def collect(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        text = str(message).partition(" (Triggered internally")[0]
        shown[f"{category.__name__}: {text}"] = f"{Path(filename).name}:{lineno}"
        show(message, category, filename, lineno, file, line)

    warnings.showwarning = collect
    try:
        yield shown
    finally:
        if warnings.showwarning is collect:  # The function may have set another.
            warnings.showwarning = show


def _write_script(
    function: Any, args: Any, context: Any, error: BaseException, folder: Path
) -> None:
    """Write a script of the function, because Dynamo failed before there was a graph."""
    title = f"torch.compile fails with {type(error).__name__}: {str(error).partition(chr(10))[0]}"
    with contextlib.suppress(ToolFailure):
        text = function_script(
            function, args, fullgraph=bool(getattr(context, "fullgraph", False)), title=title
        )
        (folder / FUNCTION_SCRIPT).write_text(text, "utf-8")


def _in_eager(function: Callable[..., Any], args: Any, kwargs: Any, folder: Path) -> _Ending:
    """Run the function in eager, in a fork; return None if the fork fails."""
    path = folder / f".eager-{os.getpid()}-{id(function):x}.pt"
    numbers = random.getstate()

    def work() -> bool:
        random.setstate(numbers)  # Python reseeds `random` in every fork.
        torch.compiler.set_stance("force_eager")
        try:
            with _shown_warnings() as shown:
                result = function(*args, **kwargs)
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            torch.save(_Raised(described(error)), path)
            return not ANSWERED_COLLECTIVES.count
        torch.save(_Returned(_values(result, args, kwargs), shown), path)
        # The compiled function, which is not repeated, gets what the other ranks send.
        return path.stat().st_size <= _LARGEST and not ANSWERED_COLLECTIVES.count

    try:
        if Forks(workers=1, seconds=_SECONDS).ask(work).result:
            ending: _Ending = torch.load(path, weights_only=False)
            return ending
    except Exception:
        pass
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
    return None


def _values(result: Any, args: Any, kwargs: Any) -> list[Any]:
    """Return tensors, numbers and strings of the results, and of the arguments after the call."""
    kept = (torch.Tensor, bool, int, float, complex, str, type(None))
    leaves = [*tree_leaves(result), *tree_leaves((args, kwargs))]
    return [
        leaf.detach() if isinstance(leaf, torch.Tensor) else leaf
        for leaf in leaves
        if isinstance(leaf, kept)
    ]


def _compare(
    function: Any,
    call: int,
    runs: list[_Ending],
    compiled: list[Any],
    warned: set[str],
    rounding: float,
) -> None:
    """Compare a call with its runs in eager; `warned` holds the warnings of all calls so far."""
    eager = [run for run in runs if isinstance(run, _Returned)]
    name = str(getattr(function, "__qualname__", type(function).__name__))
    if eager:
        try:
            verdict, text = "right", _difference(eager[0].values, compiled, rounding)
            by_itself = _difference(eager[0].values, eager[-1].values) if text else ""
        except Exception as error:
            if is_lack_of_memory(error):
                return
            raise
        if text:
            verdict = "unsteady" if by_itself else "differs"
            text = f"two runs in eager differ: {by_itself}" if by_itself else text
        text = text or count_of(len(eager[0].values), "value")
        for warning, place in eager[0].warnings.items():
            if warning in eager[-1].warnings and warning not in warned:
                _note_lost_warning(name, call, f"{warning} ({place})")
    elif isinstance(runs[0], _Raised) and runs[0] == runs[-1]:
        verdict, text = NOT_RAISED, f"returns when compiled, in eager it raises {runs[0].text}"
    else:
        return
    SCOPE.emit(CallableCheck(function=name, call=call, verdict=verdict, text=text))


def _note_lost_warning(name: str, call: int, warning: str) -> None:
    text = f"{name} gives this warning in eager, and not when compiled: {warning}"
    SCOPE.emit(NotedDifference(compile="", call=call, aspect="warning", where=name, text=text))


def _difference(eager: list[Any], compiled: list[Any], noise: float = 0.0) -> str:
    if len(eager) != len(compiled):
        return f"there are {count_of(len(compiled), 'value')} when compiled, {len(eager)} in eager"
    for number, (one, two) in enumerate(zip(eager, compiled, strict=True)):
        if isinstance(one, torch.Tensor):
            text = _tensor_difference(one, two, noise)
        else:
            is_same = type(one) is type(two) and _is_close(one, two)
            text = "" if is_same else f"is {two!r}, in eager {one!r}"
        if text:
            return f"value {number} {text}"
    return ""


def _is_close(one: Any, two: Any) -> bool:
    if not isinstance(one, (float, complex)):
        return bool(one == two)
    if one != one:
        return bool(two != two)
    return cmath.isclose(one, two, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)


def _tensor_difference(one: torch.Tensor, two: Any, noise: float) -> str:
    if not isinstance(two, torch.Tensor):
        return f"is a {type(two).__name__}, in eager a tensor"
    if one.dtype != two.dtype or one.shape != two.shape:
        return f"is {two.dtype} {tuple(two.shape)}, in eager {one.dtype} {tuple(one.shape)}"
    if one.layout is not torch.strided or not one.numel() or one.is_meta:
        return ""
    if one.is_complex():
        return _tensor_difference(torch.view_as_real(one), torch.view_as_real(two), noise)
    if not one.dtype.is_floating_point:
        count = int((one != two).sum())
        return f"differs in {count} of {one.numel()} elements" if count else ""
    scale = float(one.double().abs().nan_to_num(0.0, 0.0, 0.0).max())
    # In a low-precision type, a few roundings in a row change this much.
    rounding = 8 * torch.finfo(one.dtype).eps
    relative = max(_RELATIVE, rounding)
    absolute = max(max(_ABSOLUTE, rounding) * scale, min(noise, _MOST_NOISE * scale))
    close = torch.allclose(two.double(), one.double(), rtol=relative, atol=absolute, equal_nan=True)
    return "" if close else f"differs by up to {float((one - two).abs().max()):.4g}"
