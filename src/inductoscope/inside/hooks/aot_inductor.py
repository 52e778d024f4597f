"""AOTInductor: a whole program compiled into a package, without Dynamo around it."""

from __future__ import annotations

import itertools
import sys
import weakref
from typing import Any

from inductoscope.inside.observe import (
    Arguments,
    Keywords,
    Watching,
    enter_stage,
    leave_stage,
    record_error,
    watch,
)
from inductoscope.inside.scope import SCOPE, StageFrame
from inductoscope.recording.events import CompileEnd, CompileStart
from inductoscope.torch_facts import private_names as hooked
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.frames import is_users
from inductoscope.torch_facts.stages import AOT_INDUCTOR
from inductoscope.torch_facts.torch_names import Hook, Wrap

_numbers = itertools.count()
_known: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def compile_id_of(module: Any) -> str:
    """Return the id of a module's compile, the same for each call; torch itself has none."""
    if module not in _known:
        _known[module] = f"aoti/{next(_numbers)}"
    return _known[module]


def module_to_compile(args: Arguments, kwargs: Keywords) -> Any:
    return args[0] if args else kwargs["model_"]


def _compile(args: Arguments, kwargs: Keywords) -> Watching:
    module = module_to_compile(args, kwargs)
    compile_id = compile_id_of(module)
    file, line = calling_line()
    SCOPE.emit(
        CompileStart(
            compile=compile_id,
            function=_name(module),
            file=file,
            line=line,
            flow=AOT_INDUCTOR,
        )
    )
    SCOPE.ahead_of_time = compile_id
    frame = enter_stage(stages.AOT)
    try:
        yield
    except BaseException as error:
        SCOPE.note_failure(error, frame)
        _close(frame, compile_id, "raised")
        # The origin is not forgotten, because the doctor's hook on the same compile reads it, too.
        record_error(error, compile_id, SCOPE.failure_of(error, forget=False))
        raise
    _close(frame, compile_id, "compiled")


def _close(frame: StageFrame, compile_id: str, outcome: str) -> None:
    leave_stage(frame, failed=outcome == "raised")
    SCOPE.ahead_of_time = ""
    SCOPE.emit(CompileEnd(compile=compile_id, seconds=round(frame.seconds, 6), outcome=outcome))


def _name(module: Any) -> str:
    """Return the class of the exported module; else the graph's own name."""
    for node in module.graph.nodes:
        stack = node.meta.get("nn_module_stack") or {}
        for _, kind in stack.values():
            name = kind if isinstance(kind, str) else kind.__qualname__
            return name.rpartition(".")[2]
    return type(module).__name__


def calling_line() -> tuple[str, int]:
    """Return the innermost line of the user's program on the stack, as file and line number."""
    frame = sys._getframe()
    found: Any = frame
    while found is not None:
        if is_users(found.f_code.co_filename):
            return found.f_code.co_filename, found.f_lineno
        found = found.f_back
    return "", 0


HOOKS = (
    Hook(
        stage=stages.AOT,
        records="programs that AOTInductor compiled",
        wraps=(Wrap(hooked.COMPILE_FX_AOT, watch(_compile)),),
    ),
)
