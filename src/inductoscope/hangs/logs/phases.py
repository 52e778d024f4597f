"""How far a compile got, by the phases in a TORCH_TRACE.

A program that is killed leaves phases open. One that is interrupted closes them all on its way
out, the innermost first; then the compile has no result, and the phase that was closed first is
where it was.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

from inductoscope.hangs.logs.origin import Origin
from inductoscope.hangs.logs.records import Record

_MOST_COMPILES = 64
_MOST_KERNELS = 200
# Not where a compile was cut short.
AFTERWARDS = ("gc",)


class Phase(NamedTuple):
    """A phase: when it began, and its end if it has one."""

    name: str
    began: Origin
    began_at: float
    ended: Origin | None = None
    ended_at: float = 0.0

    @property
    def seconds(self) -> float | None:
        """How long it took."""
        return self.ended_at - self.began_at if self.ended is not None else None


@dataclass
class TracedCompile:
    """What the trace says of one compile id."""

    compile_id: str
    function: str = ""
    open: list[Phase] = field(default_factory=list)
    # The last phase that held no other.
    innermost: Phase | None = None
    outputs: list[str] = field(default_factory=list)
    metrics: dict[str, str] = field(default_factory=dict)
    metrics_at: Origin | None = None
    last: Origin | None = None

    @property
    def failure(self) -> str:
        """The exception that ended it, as its metrics have it."""
        kind = self.metrics.get("fail_type", "null")
        return "" if kind in ("null", "None", "") else kind

    @property
    def cut_short(self) -> bool:
        """Whether it ended with neither code nor an exception that the metrics name."""
        has_code = self.metrics.get("has_guarded_code")
        return self.metrics_at is not None and has_code == "false" and not self.failure


class PhaseFold:
    """Builds compiles from the records of one program."""

    def __init__(self) -> None:
        self._compiles: OrderedDict[str, TracedCompile] = OrderedDict()
        self._leaf: dict[str, bool] = {}
        self.finished = 0
        self.records = 0

    @property
    def compiles(self) -> list[TracedCompile]:
        """Those that are not done, and some that are."""
        return list(self._compiles.values())

    def take(self, record: Record, origin: Origin) -> None:
        """Take one record."""
        self.records += 1
        compile_ = self._compile(record.compile_id)
        compile_.last = origin
        if record.kind == "begin":
            compile_.open.append(Phase(record.name, origin, record.seconds))
            self._leaf[record.compile_id] = True
        elif record.kind == "end":
            self._end(compile_, record, origin)
        elif record.kind == "inductor_output_code":
            if len(compile_.outputs) < _MOST_KERNELS:
                compile_.outputs.append(record.name)
        elif record.kind in ("compilation_metrics", "bwd_compilation_metrics"):
            compile_.metrics = dict(record.values)
            compile_.metrics_at = origin
            self.finished += 1

    def _compile(self, compile_id: str) -> TracedCompile:
        compile_ = self._compiles.get(compile_id)
        if compile_ is None:
            compile_ = self._compiles[compile_id] = TracedCompile(compile_id)
            self._forget()
        return compile_

    def _forget(self) -> None:
        """Drop the oldest compile that is done, once there are many."""
        if len(self._compiles) <= _MOST_COMPILES:
            return
        for compile_id, compile_ in self._compiles.items():
            if not compile_.open and not compile_.failure and not compile_.cut_short:
                del self._compiles[compile_id]
                self._leaf.pop(compile_id, None)
                return

    def _end(self, compile_: TracedCompile, record: Record, origin: Origin) -> None:
        open_ = compile_.open
        if open_ and open_[-1].name == record.name:
            phase = open_.pop()
        else:
            names = [phase.name for phase in open_]
            if record.name not in names:
                return  # It began before the log does.
            place = len(names) - 1 - names[::-1].index(record.name)
            phase = open_[place]
            del open_[place:]
        if self._leaf.get(record.compile_id) and record.name not in AFTERWARDS:
            compile_.innermost = Phase(
                phase.name, phase.began, phase.began_at, origin, record.seconds
            )
        self._leaf[record.compile_id] = False
