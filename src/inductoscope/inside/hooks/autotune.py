"""Autotuning: choices submitted, precompiled, timed or failed, and the winner."""

from __future__ import annotations

import math
import time
from typing import Any

from inductoscope.inside.observe import (
    Arguments,
    Keywords,
    OverheardLogger,
    Watching,
    current_compile_id,
    in_stage,
    watch,
)
from inductoscope.inside.scope import BROKEN, SCOPE
from inductoscope.recording.events import (
    AutotuneChosen,
    AutotuneStart,
    AutotuneTimed,
    BenchmarkEnd,
    BenchmarkStart,
    ChoiceEnd,
    ChoiceStart,
    LaunchConfigs,
    TorchLogged,
)
from inductoscope.torch_facts import private_names as hooked
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.log_lines import PATTERNS
from inductoscope.torch_facts.torch_names import Hook, Wrap


def _select(args: Arguments, kwargs: Keywords) -> Watching:
    name, choices = str(args[1]), args[2]
    SCOPE.emit(
        AutotuneStart(
            graph=SCOPE.graph,
            operation=name,
            choices=tuple(_describe_choice(choice) for choice in choices),
            inputs=_describe_inputs(args[3] if len(args) > 3 else kwargs.get("input_nodes")),
        )
    )
    result = yield from in_stage(stages.AUTOTUNE, detail=name)
    chosen = result[1] if isinstance(result, tuple) and len(result) > 1 else None
    if chosen is not None:
        SCOPE.emit(AutotuneChosen(graph=SCOPE.graph, operation=name, choice=_name_of(chosen)))


def _describe_inputs(nodes: Any) -> tuple[str, ...]:
    """Describe inputs by shape and dtype, on which the best choice depends."""
    described = SCOPE.guard(lambda: tuple(map(_shape, nodes or ())))
    return () if described is BROKEN else described


def _shape(node: Any) -> str:
    sizes = ", ".join(map(str, node.get_size()))
    return f"{str(node.get_dtype()).removeprefix('torch.')}[{sizes}]"


def _describe_choice(choice: Any) -> dict[str, Any]:
    return {
        "name": _name_of(choice),
        "class": type(choice).__name__,
        "description": str(getattr(choice, "description", "") or "")[:1000],
    }


def _name_of(choice: Any) -> str:
    return str(getattr(choice, "name", choice))


def _timed(args: Arguments, kwargs: Keywords) -> Watching:
    yield
    name, _, timings = args[:3]
    finite = {c: t for c, t in timings.items() if math.isfinite(t)}
    winner = min(finite, key=lambda choice: finite[choice]) if finite else None
    SCOPE.emit(
        AutotuneTimed(
            graph=SCOPE.graph,
            operation=str(name),
            milliseconds={_name_of(c): t for c, t in finite.items()},
            failed=tuple(_name_of(choice) for choice in timings if choice not in finite),
            winner="" if winner is None else _name_of(winner),
        )
    )


def _precompile(args: Arguments, kwargs: Keywords) -> Watching:
    name, started, failure = _name_of(args[0]), time.perf_counter(), ""
    SCOPE.emit(ChoiceStart(choice=name))
    try:
        yield
    except BaseException as error:
        failure = _text_of(error)
    seconds = round(time.perf_counter() - started, 6)
    SCOPE.emit(ChoiceEnd(choice=name, seconds=seconds, error=failure))


def _text_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:2000]


def _configs_timed(args: Arguments, kwargs: Keywords) -> Watching:
    result, tuner = (yield), args[0]
    SCOPE.emit(
        LaunchConfigs(
            kernel=tuner.inductor_meta.get("kernel_name") or "",
            milliseconds=tuple((str(launcher.config), time_) for launcher, time_ in result.items()),
        )
    )


# --- facts about choices --------------------------------------------------------------------------

_TEXTS = frozenset(
    pattern.text for pattern in PATTERNS if pattern.module.endswith("select_algorithm.py")
)
_LEVELS = ("debug", "info", "warning", "error", "exception")


def _say(message: Any, args: Arguments) -> None:
    if message in _TEXTS:
        SCOPE.emit(TorchLogged(text=(message % args)[:4000], compile=current_compile_id()))


def _benchmark(args: Arguments, kwargs: Keywords) -> Watching:
    choice = args[1] if len(args) > 1 else kwargs.get("choice")
    name, text, failure = _name_of(choice), str(choice)[:4000], ""
    SCOPE.emit(BenchmarkStart(choice=name, text=text, compile=current_compile_id()))
    try:
        yield
    except BaseException as error:
        failure = _text_of(error)
    SCOPE.emit(BenchmarkEnd(choice=name, text=text, error=failure))


HOOKS = (
    Hook(
        stage=stages.AUTOTUNE,
        records="choices of an operation's implementation, their times and the winner",
        wraps=(
            Wrap(hooked.ALGORITHM_SELECTOR_CACHE_CALL, watch(_select)),
            Wrap(hooked.LOG_RESULTS, watch(_timed)),
        ),
    ),
    Hook(
        stage=stages.AUTOTUNE,
        records="compiles of single choices",
        wraps=(Wrap(hooked.PRECOMPILE, watch(_precompile)),),
    ),
    Hook(
        stage=stages.AUTOTUNE,
        records="launch configurations of Triton kernels and their times",
        wraps=(Wrap(hooked.BENCHMARK_ALL_CONFIGS, watch(_configs_timed)),),
    ),
    Hook(
        stage=stages.AUTOTUNE,
        records="what torch logs about choices: submitted, finished, failed, given up",
        wraps=(Wrap(hooked.LOG, lambda logger: OverheardLogger(logger, _LEVELS, _say)),),
    ),
    Hook(
        stage=stages.AUTOTUNE,
        records="runs of single choices to time them",
        wraps=(Wrap(hooked.BENCHMARK_CHOICE, watch(_benchmark)),),
    ),
)
