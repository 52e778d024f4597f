"""Compiles one rebuilt graph, forward and backward, and records it as Dynamo would have.

The graph goes straight to Inductor's entry point, so that nodes keep their names, and the compile
its id. Inputs are fake tensors, and nothing is run.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from inductoscope.inside.confinement import stay_inside
from inductoscope.inside.observe import enter_stage, leave_stage, record_error
from inductoscope.inside.private_cache import trust_compiler
from inductoscope.inside.rebuilding import Rebuilder, Rebuilt, Unbuildable
from inductoscope.inside.scope import SCOPE
from inductoscope.launch.environment import RECORDING_VARIABLE
from inductoscope.model.fx import graph_from
from inductoscope.recording.codec import decode
from inductoscope.recording.events import CompileEnd, CompileStart, GraphState, TargetNoted
from inductoscope.targets.work_list import GraphOrder, Order, devices_for_graphs
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.gpu_targets import parse_target
from inductoscope.torch_facts.messages import asked_in_vain

if TYPE_CHECKING:
    from inductoscope.inside.child import Channel


def compile_graphs(channel: Channel, order: dict[str, Any]) -> None:
    """Compile the graphs of an order in a child process, and report the outcome of each.

    The scope is inside this process, as in a recorded program, and writes the new recording.
    """
    wanted = decode(Order, order)
    devices = _prepare(wanted)
    stay_inside(_own_folders())
    channel.ready()
    for number, graph in enumerate(wanted.graphs):
        channel.say("graph-start", number=number, compile=graph.compile)
        result = compile_graph(graph, wanted.settings, devices)
        channel.say("graph", number=number, compile=graph.compile, **result)


def _own_folders() -> list[str]:
    """Return the folders that this process may write to: recording, caches, temporary files."""
    names = (RECORDING_VARIABLE, "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TMPDIR")
    return [os.environ[name] for name in names if os.environ.get(name)]


def _prepare(order: Order) -> dict[str, str]:
    """Load torch, with a pretended device if one is asked for."""
    if order.target:
        from inductoscope.inside.pretend import pretend

        pretend(parse_target(order.target), machine_code=order.machine_code)
    import torch  # noqa: F401  (the scope begins)

    write_cpp_only()
    if not order.target:
        time_nothing()
        return {}
    return devices_for_graphs(order.graphs)


def compile_graph(
    order: GraphOrder, settings: Mapping[str, object], devices: Mapping[str, str]
) -> dict[str, Any]:
    started = time.perf_counter()

    def ended(outcome: str, reason: str) -> dict[str, Any]:
        seconds = round(time.perf_counter() - started, 6)
        end = CompileEnd(compile=order.compile, seconds=seconds, outcome=outcome, reason=reason)
        SCOPE.emit(end)
        return {"outcome": "left out" if outcome == "skipped" else outcome, "reason": reason}

    _announce(order)
    try:
        mode, rebuilt = rebuild(order, devices)
    except Unbuildable as why:
        return ended("skipped", str(why))
    _record_graph(order, devices)
    notes = [*rebuilt.notes, *_default_settings(order), *_own_operators(order, rebuilt)]
    if rebuilt.own_operators:
        order = replace(order, learns=False)
    try:
        with as_in_dynamo(order, mode, settings):
            _compile(rebuilt)
    except Exception as error:
        asked = asked_in_vain(str(error))
        if asked:
            limit = f"torch asked for {asked}, which only a real GPU has: a limit of --target"
            return ended("skipped", limit)
        reason = f"{type(error).__name__}: {str(error).strip()}"[:500]
        record_error(error, order.compile, SCOPE.failure_of(error))
        return ended("raised", reason)
    for text in notes:
        SCOPE.emit(TargetNoted(compile=order.compile, note=text))
    return ended("compiled", "")


def _default_settings(order: GraphOrder) -> Iterator[str]:
    if order.left_out:
        yield f"compiled with torch's default settings, without {', '.join(order.left_out)}"


def _own_operators(order: GraphOrder, rebuilt: Rebuilt) -> Iterator[str]:
    if rebuilt.own_operators:
        names = ", ".join(name[:80] for name in rebuilt.own_operators)
        yield f"{names}: called by its name, and taken to change none of its inputs"
        if order.learns:
            yield f"compiled without its backward graph: the gradient of {names} is not recorded"


def rebuild(order: GraphOrder, devices: Mapping[str, str]) -> tuple[Any, Rebuilt]:
    """Rebuild the graph of an order; return its inputs' fake-tensor mode, too."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    graph = graph_from(dict(order.graph))
    if graph is None:
        raise Unbuildable("the graph is missing from the recording")
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
    try:
        return mode, Rebuilder(mode, devices).build(graph)
    except Unbuildable:
        raise
    except Exception as error:
        raise Unbuildable(f"{type(error).__name__}: {str(error)[:200]}") from error


@contextlib.contextmanager
def as_in_dynamo(order: GraphOrder, mode: Any, settings: Mapping[str, object]) -> Iterator[None]:
    """Enter the contexts in which Dynamo calls Inductor."""
    import torch
    from torch._functorch import config as functorch
    from torch._guards import CompileContext, CompileId, TracingContext, compile_context, tracing
    from torch._inductor import config

    frame, number = order.numbers
    frame_id = CompileId(frame_id=frame, frame_compile_id=number)
    with (
        config.patch({"fx_graph_cache": False, **settings}),
        functorch.patch(_functorch_settings(functorch)),
        compile_context(CompileContext(frame_id)),
        tracing(TracingContext(mode)),
        torch.set_grad_enabled(order.learns),
    ):
        yield


def _functorch_settings(config: Any) -> dict[str, object]:
    """Return the settings that compile the backward graph eagerly, together with the forward."""
    wanted = {"force_non_lazy_backward_lowering": True, "enable_autograd_cache": False}
    return {name: value for name, value in wanted.items() if hasattr(config, name)}


def _compile(rebuilt: Rebuilt) -> None:
    from torch._inductor.compile_fx import compile_fx

    frame = enter_stage(stages.AOT)
    try:
        compile_fx(rebuilt.module, rebuilt.inputs)
    except BaseException as error:
        SCOPE.note_failure(error, frame)
        leave_stage(frame, failed=True)
        raise
    leave_stage(frame)


# --- what is written down -------------------------------------------------------------------------


def _announce(order: GraphOrder) -> None:
    SCOPE.emit(
        CompileStart(
            compile=order.compile,
            function=order.function,
            resumed=order.resumed or "",
            file=order.file,
            line=order.line,
        )
    )


def _record_graph(order: GraphOrder, devices: Mapping[str, str]) -> None:
    """Record the captured graph again, moved to its new device."""
    digest = SCOPE.json(_moved(order.graph, devices))
    SCOPE.emit(GraphState(stage=stages.DYNAMO, compile=order.compile, payload=digest))


def _moved(data: Any, devices: Mapping[str, str]) -> Any:
    if isinstance(data, list):
        return [_moved(item, devices) for item in data]
    if not isinstance(data, Mapping):
        return data
    found = {key: _moved(value, devices) for key, value in data.items()}
    if "dtype" in found and isinstance(found.get("device"), str):
        kind = found["device"].partition(":")[0]
        found["device"] = devices.get(kind, found["device"])
    return found


# --- C++ kernels are generated and not compiled, which shows the scheduling within seconds --------
#
# Only for a process that compiles rebuilt graphs and runs none of them.


def write_cpp_only() -> None:
    """Stop this process from starting a C++ compiler: kernels are only generated."""
    from torch._inductor import async_compile

    compiler = async_compile.AsyncCompile
    for name in ("cpp", "cpp_pybinding"):
        if hasattr(compiler, name):
            setattr(compiler, name, lambda *args, **kwargs: _not_compiled)
    # torch probes for an instruction set by compiling a test program.
    trust_compiler()


def _not_compiled(*args: Any, **kwargs: Any) -> None:
    raise RuntimeError("This kernel was generated and not compiled.")


def time_nothing() -> None:
    """Replace benchmarks of choices by their order in torch's list: the first one wins."""
    from torch._inductor import select_algorithm

    def make_benchmark_fn(cls: type, *args: Any, **kwargs: Any) -> Any:
        return lambda choices: {choice: 1.0 + n * 1e-3 for n, choice in enumerate(choices)}

    cache = select_algorithm.AlgorithmSelectorCache
    if hasattr(cache, "make_benchmark_fn"):
        cache.make_benchmark_fn = classmethod(make_benchmark_fn)
