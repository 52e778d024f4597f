"""Which compiles of a recorded run look so slow that it is worth to look closer.

Only what is recorded anyway is read. The yardstick is the import of torch: it is Python code that
every run executes on the same machine, just before. This decides nothing by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from inductoscope.model.entities import Compile, Recording
from inductoscope.vocabulary import stages

# The first compile of a process loads the compiler, which takes about as long as two imports. Then
# 30 to 100 nodes take as long as one import, depending on the operations.
_TO_BEGIN, _PER_NODE = 4.0, 0.03
# A stage that takes so much longer than all others together stands out, in any graph.
_STANDS_OUT = 2.0
# A native compiler takes about as long for one kernel as torch takes to be imported.
_NATIVE = 4.0
_NOT_TORCHS = (*stages.NATIVE_COMPILES, stages.AUTOTUNE, stages.BENCHMARK, stages.RUNTIME)


@dataclass(frozen=True)
class SlowCompile:
    """A compile that took long, and the stage that took most of it."""

    compile: str
    stage: str
    seconds: float
    nodes: int
    # The whole compile.
    of: float
    place: str = ""


def slow_compiles(recording: Recording) -> list[SlowCompile]:
    """The compiles to look closer at, the slowest first."""
    unit = _import_seconds(recording)
    if unit <= 0:
        return []
    found = [_suspected(recording, compile_, unit) for compile_ in recording.compiles]
    return sorted(filter(None, found), key=lambda each: -each.seconds)


def _suspected(recording: Recording, compile_: Compile, unit: float) -> SlowCompile | None:
    nodes = sum(len(graph.lowered) for graph in compile_.inductor)
    spent = {k: s for k, s in compile_.stage_seconds.items() if k not in _NOT_TORCHS}
    if spent and nodes:
        stage = max(spent, key=lambda name: spent[name])
        most, total = spent[stage], sum(spent.values())
        stands_out = most > _STANDS_OUT * max(total - most, unit)
        if stands_out or total > unit * (_TO_BEGIN + _PER_NODE * nodes):
            return SlowCompile(compile_.id, stage, most, nodes, compile_.seconds, compile_.place)
    native = _slowest_native(recording, compile_)
    if native > _NATIVE * unit:
        return SlowCompile(
            compile_.id, stages.CPP_COMPILE, native, nodes, compile_.seconds, compile_.place
        )
    return None


def seconds_in(recording: Recording, compile_: Compile, stage: str) -> float:
    """Seconds of a compile in one stage; of native compilers, the longest single call."""
    if stage in stages.NATIVE_COMPILES:
        return _slowest_native(recording, compile_)
    return compile_.stage_seconds.get(stage, 0.0)


def _slowest_native(recording: Recording, compile_: Compile) -> float:
    """Seconds of the slowest C++ library that this compile asked for."""
    wanted = set(compile_.libraries)
    seconds = [n.seconds or 0.0 for n in recording.natives if n.digest and n.digest in wanted]
    return max(seconds, default=0.0)


def _import_seconds(recording: Recording) -> float:
    """How long the quickest import of torch took in the run; 0 if that was not recorded."""
    found = [float(process.torch.get("seconds") or 0.0) for process in recording.processes]
    return min(filter(None, found), default=0.0)
