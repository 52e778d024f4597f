"""Dynamo: frames compiled, the graphs taken from them, breaks, guards and recompiles."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

from inductoscope.inside.graphs import store_graph
from inductoscope.inside.observe import (
    Arguments,
    Keywords,
    Watching,
    current_compile_id,
    enter_stage,
    glance,
    in_stage,
    leave_stage,
    record_error,
    until_left,
    watch,
)
from inductoscope.inside.program_settings import (
    CONFIGS,
    backend_of,
    compile_arguments,
    config_texts,
    default_texts,
    marks_of,
    static_marks_of,
)
from inductoscope.inside.scope import BROKEN, SCOPE
from inductoscope.recording.events import (
    CompileEnd,
    CompileStart,
    FellBackToEager,
    GraphBreak,
    GraphState,
    GuardsBuilt,
    Recompiled,
    RecompileLimitHit,
    Settings,
    TracingContinues,
)
from inductoscope.torch_facts import private_names as hooked
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.frames import is_users
from inductoscope.torch_facts.torch_names import Hook, TorchName, Wrap

_RESUMED = re.compile(r"torch_dynamo_resume_in_(\w+)_at_(\d+)")

_MOST_CALLERS = 12
_LONGEST_LINE = 400

# The compile whose exception is propagating on this thread; Dynamo may still suppress it.
_raised = threading.local()


# --- frames ---------------------------------------------------------------------------------------


def _compile_frame(args: Arguments, kwargs: Keywords) -> Watching:
    code = args[0]
    compile_id = str(kwargs.get("compile_id"))
    resumed = _RESUMED.match(code.co_name)
    SCOPE.emit(
        CompileStart(
            compile=compile_id,
            function=code.co_name,
            resumed=f"{resumed[1]} at line {resumed[2]}" if resumed else "",
            file=code.co_filename,
            line=code.co_firstlineno,
        )
    )
    frame = enter_stage(stages.DYNAMO)

    def end(outcome: str, reason: str = "") -> None:
        leave_stage(frame, failed=outcome == "raised")
        seconds = round(frame.seconds, 6)
        SCOPE.emit(CompileEnd(compile=compile_id, seconds=seconds, outcome=outcome, reason=reason))

    try:
        result = yield
    except BaseException as error:
        SCOPE.note_failure(error, frame)
        end("raised")
        record_error(error, compile_id, SCOPE.failure_of(error))
        _raised.compile_id = compile_id
        raise
    outcome = "skipped" if getattr(result, "guarded_code", None) is None else "compiled"
    end(outcome, _text(getattr(result, "skip_reason", None)))


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _place(frame: Any) -> str:
    return f"{frame.filename}:{frame.lineno}"


# --- graphs ---------------------------------------------------------------------------------------


def _call_backend(args: Arguments, kwargs: Keywords) -> Watching:
    frame = enter_stage(stages.AOT)
    SCOPE.guard(record_captured_graph, args[1] if len(args) > 1 else kwargs.get("gm"))
    yield from until_left(frame)


def record_captured_graph(module: Any) -> None:
    payload = store_graph(module)
    SCOPE.emit(GraphState(stage=stages.DYNAMO, compile=current_compile_id(), payload=payload))


# --- call stacks ----------------------------------------------------------------------------------


def _callers(file: str, function: str) -> tuple[str, ...]:
    """Return the lines of the program that led to a frame, outermost first.

    After a graph break the frame itself is left out, although it calls its resume function.
    """
    resumed = _RESUMED.match(function)
    itself = (file, resumed[1] if resumed else function)
    found = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if is_users(code.co_filename) and (code.co_filename, code.co_name) != itself:
            found.append(f"{code.co_filename}:{frame.f_lineno}")
        frame = frame.f_back
    return tuple(reversed(found[:_MOST_CALLERS]))


# --- graph breaks ---------------------------------------------------------------------------------


def _graph_break(args: Arguments, kwargs: Keywords) -> None:
    reason = kwargs["reason"] if "reason" in kwargs else args[2]
    error = kwargs["exc"] if "exc" in kwargs else args[3]
    if getattr(error, "logged", False):
        return  # torch reports the same break again while it unwinds.
    inner = list(getattr(error, "real_stack", None) or ())
    stack = [_place(frame) for frame in inner]
    own = (inner[0].filename, inner[0].name) if inner else ("", "")
    SCOPE.emit(
        GraphBreak(
            compile=current_compile_id(),
            reason=str(reason)[:4000],
            source=stack[-1] if stack else "",
            stack=(*_callers(*own), *stack),
            code=_text(inner[-1].line)[:_LONGEST_LINE] if inner else "",
        )
    )


# --- guards ---------------------------------------------------------------------------------------


def _build_guards(args: Arguments, kwargs: Keywords) -> Watching:
    yield from in_stage("guards")
    output = kwargs["output_graph"] if "output_graph" in kwargs else args[2]
    guards = [_describe_guard(guard) for guard in output.guards]
    microseconds, costly = time_guards(args[0], output)
    SCOPE.emit(
        GuardsBuilt(
            compile=current_compile_id(),
            count=len(guards),
            payload=SCOPE.json(guards),
            microseconds=microseconds,
            costly=costly,
        )
    )


def _describe_guard(guard: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "source": str(guard.name() if callable(guard.name) else guard.name),
        "kind": guard.create_fn_name(),
    }
    if guard.code_list:
        found["code"] = list(guard.code_list)
    if guard.user_stack:
        found["place"] = _place(guard.user_stack[-1])
    return found


# --- recompiles -----------------------------------------------------------------------------------


def _recompiled(args: Arguments, kwargs: Keywords) -> Watching:
    result = yield
    code = getattr(args[1] if len(args) > 1 else kwargs.get("frame"), "f_code", None)
    own = (code.co_filename, code.co_name) if code is not None else ("", "")
    SCOPE.emit(
        Recompiled(
            compile=current_compile_id(),
            callers=_callers(*own),
            reasons=tuple(str(reason) for reason in result) or ("torch found no reason",),
        )
    )


def _limit_checked(args: Arguments, kwargs: Keywords) -> Watching:
    exceeded, limit = yield
    if exceeded:
        SCOPE.emit(RecompileLimitHit(compile=current_compile_id(), limit=str(limit)))


# --- frames that Dynamo gives up on ---------------------------------------------------------------


def _convert(args: Arguments, kwargs: Keywords) -> Watching:
    """Record a fallback to eager: the compile raised, but Dynamo suppressed the exception."""
    _raised.compile_id = None
    result = yield
    compile_id = getattr(_raised, "compile_id", None)
    if compile_id is not None:
        SCOPE.emit(
            FellBackToEager(
                compile=compile_id,
                reason=_text(getattr(result, "skip_reason", None)),
            )
        )


# --- Timing of a frame's guards right after they were built, with the values of that call ---------
#
# torch itself measures a single evaluation with cold caches; here the fastest of several counts,
# which is the cost for a loop that calls the frame repeatedly.

_EVALUATIONS = 20
# Guards that take longer are evaluated fewer times.
_LONGEST_NS = 2_000_000
# Guards that take less in total are not broken down by value.
_WORTH_A_LOOK = 20.0
# A value whose guards take a smaller share of the total is not named.
_SHARE = 0.1
_MOST_VALUES = 20


def time_guards(built: Any, output: Any) -> tuple[float | None, tuple[tuple[str, float], ...]]:
    """Return microseconds per evaluation (None if unknown), and the values that take the most."""
    root = getattr(getattr(built, "guard_manager", None), "root", None)
    values = getattr(output, "local_scope", None)
    if root is None or not isinstance(values, dict) or not hasattr(root, "check"):
        return None, ()
    whole = SCOPE.attempt(_microseconds, root, values)
    if whole is BROKEN or whole is None:
        return None, ()
    if whole < _WORTH_A_LOOK:
        return whole, ()
    parts = SCOPE.attempt(list, _parts(root, values))
    costly = [] if parts is BROKEN else [part for part in parts if part[1] >= whole * _SHARE]
    return whole, tuple(sorted(costly, key=lambda part: -part[1]))


def _microseconds(root: Any, values: Any) -> float | None:
    best, begun = None, time.perf_counter_ns()
    for _ in range(_EVALUATIONS):
        started = time.perf_counter_ns()
        if not root.check(values):
            return None
        ended = time.perf_counter_ns()
        best = ended - started if best is None else min(best, ended - started)
        if ended - begun > _LONGEST_NS:
            break
    return None if best is None else round(best / 1e3, 2)


def _parts(root: Any, values: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield each value of the frame with the time of its guards alone."""
    for child in root.get_child_managers()[:_MOST_VALUES]:
        source = str(child.get_source())

        def is_of_value(manager: Any, source: str = source) -> bool:
            return manager is root or str(manager.get_source()).startswith(source)

        alone = SCOPE.attempt(root.clone_manager, is_of_value)
        took = SCOPE.attempt(_microseconds, alone, values) if alone is not BROKEN else None
        if took is not BROKEN and took is not None:
            yield source, took


# --- Settings of a compile: config modules, torch.compile's arguments, marked sizes ---------------


def _settings(args: Arguments, kwargs: Keywords) -> None:
    output = args[0]
    one_graph = getattr(getattr(output, "root_tx", None), "one_graph", False)
    arguments = compile_arguments(backend_of(output), fullgraph=one_graph is True)
    config = config_texts(dynamic_given="dynamic" in arguments)
    SCOPE.emit(
        Settings(
            compile=current_compile_id(),
            config=config,
            arguments=arguments,
            marked=tuple(_marked(output)),
            defaults=default_texts(config),
        )
    )


def _marked(output: Any) -> Iterator[str]:
    """Yield the dynamic and static marks on the program's real input tensors, not the fake ones."""
    for argument in output.graphargs:
        value, name = argument.example, _name(argument)
        yield from map(str, (*marks_of(name, value), *static_marks_of(name, value)))


def _name(argument: Any) -> str:
    """Return an input's name in the program: `x` for L['x']."""
    name = argument.source.name
    text = str(name() if callable(name) else name)
    return text.replace("L['", "", 1).replace("']", "", 1) if text.startswith("L['") else text


# --------------------------------------------------------------------------------------------------
# Signs of life from tracing, during which nothing else is recorded for long.
#
# The watched functions do not call each other, so that the stack grows by one frame at most: deep
# stacks may reach Python's recursion limit.

_SECONDS = 1.0


def _continues() -> None:
    # The beginning of a stage is a sign of life, too.
    is_new = SCOPE.stages and time.perf_counter() - SCOPE.stages[-1].started < _SECONDS
    if SCOPE.stage in (stages.DYNAMO, stages.AOT) and not is_new:
        SCOPE.emit(TracingContinues())


HOOKS = (
    Hook(
        stage=stages.DYNAMO,
        records="frames compiled, and errors with the stage that raised them",
        wraps=(Wrap(hooked.CONVERT_FRAME_COMPILE, watch(_compile_frame)),),
        reads=(hooked.CURRENT_COMPILE_ID,),
    ),
    Hook(
        stage=stages.DYNAMO,
        records="the graph that Dynamo took from each frame",
        wraps=(Wrap(hooked.CALL_USER_COMPILER, watch(_call_backend)),),
    ),
    Hook(
        stage=stages.DYNAMO,
        records="graph breaks with their reason",
        wraps=(Wrap(hooked.LOG_GRAPH_BREAK, watch(_graph_break)),),
    ),
    Hook(
        stage=stages.DYNAMO,
        records="guards of each compiled frame",
        wraps=(Wrap(hooked.CHECK_FUNCTION_MANAGER_INIT, watch(_build_guards)),),
    ),
    Hook(
        stage=stages.DYNAMO,
        records="recompiles with the guard that failed",
        wraps=(
            Wrap(hooked.GET_AND_MAYBE_LOG_RECOMPILATION_REASONS, watch(_recompiled)),
            Wrap(hooked.EXCEEDS_RECOMPILE_LIMIT, watch(_limit_checked)),
        ),
    ),
    Hook(
        stage=stages.DYNAMO,
        records="frames that run in eager because Dynamo gave up on them",
        wraps=(Wrap(hooked.CONVERT_FRAME_CALL, watch(_convert)),),
    ),
    Hook(
        stage=stages.DYNAMO,
        records="settings, arguments of torch.compile and marked sizes",
        wraps=(Wrap(hooked.CALL_USER_COMPILER, watch(_settings)),),
        reads=tuple(TorchName(module, "_is_default") for module in CONFIGS),
    ),
    Hook(
        stage=stages.DYNAMO,
        records="that Dynamo gets on with a long function",
        wraps=(Wrap(hooked.STARTS_LINE, glance(_SECONDS, _continues)),),
    ),
    Hook(
        stage=stages.AOT,
        records="that AOTAutograd gets on with a large graph",
        wraps=(Wrap(hooked.FETCH_ARGS_KWARGS_FROM_ENV, glance(_SECONDS, _continues)),),
    ),
)
