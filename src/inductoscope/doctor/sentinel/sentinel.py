"""The sentinel of one process: which calls to shadow, what they say, and what to do about it."""

from __future__ import annotations

import contextlib
import os
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from inductoscope.capture.scope import SCOPE
from inductoscope.doctor.alarm import (
    GRAPH,
    INPUTS,
    KEPT,
    Alarm,
    write_alarm,
)
from inductoscope.doctor.handover import say
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.wrong_result_location import source_lines
from inductoscope.doctor.sentinel.bias_test import DIRECTIONS, BiasTests, SignedErrors, ValueTest
from inductoscope.doctor.sentinel.confirmation import ROUNDINGS, Confirmation
from inductoscope.doctor.sentinel.options import SentinelOptions
from inductoscope.doctor.sentinel.signed_error import Likeness, errors_of, signed_errors
from inductoscope.doctor.sentinel.time_share import TimeShare
from inductoscope.recording.events.checking import BiasFound, CallShadowed, ShadowsEnded

if TYPE_CHECKING:
    from inductoscope.doctor.sentinel.shadow import ShadowedCall, Way
    from inductoscope.doctor.sentinel.shadowed_graph import ShadowedGraph
    from inductoscope.doctor.sentinel.tested_values import Trio

# Graphs among the last so many calls take part in the choice of what to shadow.
_RECENT = 64

# The values, by name, of another way to make the call.
ValuesOf = Callable[["Way"], Mapping[str, torch.Tensor]]


class Sentinel:
    """Chooses calls, tests their errors, and keeps those that raise an alarm."""

    def __init__(
        self, options: SentinelOptions, place: Path, on_alarm: Callable[[Alarm], None]
    ) -> None:
        self._options, self._place, self._on_alarm = options, place, on_alarm
        self.share = TimeShare(options.overhead)
        processes = max(int(os.environ.get("WORLD_SIZE", "1") or 1), 1)
        self._tests = BiasTests(options.false_alarms / processes)
        # Of its own, so that the program's random numbers stay as they are.
        self._random = random.Random()
        self._recent: deque[int] = deque(maxlen=_RECENT)
        self._is_working = False
        self._values: dict[tuple[str, str], _Value] = {}
        self.alarms: list[Alarm] = []

    # --- which calls --------------------------------------------------------------------------

    def wants(self, graph: ShadowedGraph) -> bool:
        """Whether to shadow this call: one of those that take turns, as time allows."""
        self.share.start()
        self._recent.append(id(graph))
        if self._is_working or not SCOPE.active or not self.share.allows(graph.cost):
            return False
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            return False  # Nothing may wait for the GPU then.
        return self._random.random() * len(set(self._recent)) < 1.0

    @contextlib.contextmanager
    def working(self, graph: ShadowedGraph) -> Iterator[None]:
        """What happens inside is on the sentinel's account."""
        _wait_for_device()
        self._is_working = True
        before = self.share.spent
        try:
            with self.share.spending():
                yield
                _wait_for_device()
        finally:
            self._is_working = False
            graph.account(self.share.spent - before)

    def note_off(self, graph: ShadowedGraph) -> None:
        """A graph is not shadowed any more."""
        SCOPE.emit(ShadowsEnded(compile=graph.compile_id, text=graph.off))

    # --- what they say ------------------------------------------------------------------------

    def examine(
        self,
        graph: ShadowedGraph,
        call: ShadowedCall,
        trios: Mapping[str, Trio],
        values_of: ValuesOf,
    ) -> None:
        """Add what a shadowed call shows; raise an alarm if that is more than rounding."""
        self._note(graph, len(trios))
        suspicious = {}
        for name, trio in trios.items():
            margin = graph.margin * trio.magnified
            errors = signed_errors(trio.compiled, trio.eager, trio.reference, margin)
            if errors is None:
                continue
            value = self._value(graph, name)
            value.likeness.add(trio.eager, trio.reference)
            value.test.add(errors)
            if value.is_suspicious():
                suspicious[name] = value, errors
        if suspicious:
            self._confirm(graph, call, suspicious, trios, values_of)

    def _value(self, graph: ShadowedGraph, name: str) -> _Value:
        key = graph.compile_id, name
        if key not in self._values:
            self._values[key] = _Value(self._tests.new(name))
        return self._values[key]

    def _confirm(
        self,
        graph: ShadowedGraph,
        call: ShadowedCall,
        suspicious: Mapping[str, tuple[_Value, SignedErrors]],
        trios: Mapping[str, Trio],
        values_of: ValuesOf,
    ) -> None:
        """Run the call with other roundings too, and compare with what those do."""
        ways = [values_of(call.with_other_rounding(seed)) for seed in self._seeds()]
        for name, (value, errors) in suspicious.items():
            confirmation = value.confirmation
            if confirmation is None or any(name not in way for way in ways):
                continue
            direction = confirmation.direction
            moved = [errors_of(way[name], trios[name].reference)[direction] for way in ways]
            confirmation.add(errors.compiled[direction], errors.eager[direction], moved)
            if confirmation.is_beyond_rounding(value.likeness.value, errors.margin):
                self._raise(graph, call, value)
                return
            value.give_up_if_over()

    def _seeds(self) -> list[int]:
        return [self._random.getrandbits(31) for _ in range(ROUNDINGS)]

    def _note(self, graph: ShadowedGraph, values: int) -> None:
        SCOPE.emit(
            CallShadowed(
                compile=graph.compile_id,
                call=graph.calls,
                values=values,
                spent=round(self.share.spent, 4),
                seen=round(self.share.seen, 4),
            )
        )

    # --- what to do about it ------------------------------------------------------------------

    def _raise(self, graph: ShadowedGraph, call: ShadowedCall, value: _Value) -> None:
        graph.off = "it has raised an alarm"
        assert value.confirmation is not None
        direction = value.confirmation.direction
        alarm = Alarm(
            compile=graph.compile_id,
            value=graph.describe(value.test.name),
            direction=DIRECTIONS[direction],
            bias=value.test.mean(direction, is_eager=False),
            eager_bias=value.test.mean(direction, is_eager=True),
            rounding=value.confirmation.rounding(value.likeness.value),
            calls=graph.calls,
            shadowed=value.test.calls,
            false_alarms=self._options.false_alarms,
            sources=source_lines(Candidate(graph.module, tuple(call.inputs))),
            kept=str(self._place / f"{KEPT}-{os.getpid()}-{len(self.alarms) + 1}"),
        )
        self.alarms.append(alarm)
        with contextlib.suppress(OSError):  # A full disk: there is an alarm all the same.
            _keep(graph, call, alarm)
        SCOPE.emit(
            BiasFound(
                compile=alarm.compile,
                value=alarm.value,
                direction=alarm.direction,
                bias=alarm.bias,
                call=alarm.calls,
                shadowed=alarm.shadowed,
                text=alarm.text,
                kept=alarm.kept,
            )
        )
        say(self._place, f"alarm: {alarm.text}")
        self._on_alarm(alarm)


def _keep(graph: ShadowedGraph, call: ShadowedCall, alarm: Alarm) -> None:
    """Write down what is needed to examine the call."""
    folder = Path(alarm.kept)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / GRAPH).write_text(graph.text, "utf-8")
    with contextlib.suppress(Exception):  # A subclass that cannot be written, a full disk.
        torch.save(call.inputs, folder / INPUTS)
    write_alarm(alarm, folder)


@dataclass
class _Value:
    """What is known about one output or gradient of a graph."""

    test: ValueTest
    likeness: Likeness = field(default_factory=Likeness)
    confirmation: Confirmation | None = None
    # At how many calls a suspicion that rounding explained is looked at again.
    _look_again: int = 0

    def is_suspicious(self) -> bool:
        direction = self.test.suspicious
        if direction is None or self.test.calls < self._look_again:
            return False
        if self.confirmation is None:
            self.confirmation = Confirmation(direction)
        return True

    def give_up_if_over(self) -> None:
        if self.confirmation is not None and self.confirmation.is_over:
            self.confirmation, self._look_again = None, 2 * self.test.calls


def _wait_for_device() -> None:
    """Work that a GPU still has to do is whose it was asked for."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
