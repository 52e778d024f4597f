"""The sentinel of one process: which calls to shadow, how to test them, when to raise an alarm."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves

from inductoscope.doctor.alarm import GRAPH, INPUTS, KEPT, Alarm, write_alarm
from inductoscope.doctor.sentinel_options import SentinelOptions
from inductoscope.inside.compare.collectives import communicates
from inductoscope.inside.compare.graphs import graph_code, snapshot
from inductoscope.inside.doctor.compile_conditions import how_compiled, is_traced
from inductoscope.inside.memory_budget import has_room_for_copies
from inductoscope.inside.observe import current_compile_id
from inductoscope.inside.repro.python_text import input_name
from inductoscope.inside.scope import SCOPE, say
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.location import source_lines
from inductoscope.inside.sentinel.bias_test import (
    DIRECTIONS,
    ROUNDINGS,
    BiasTests,
    Confirmation,
    Likeness,
    SignedErrors,
    ValueTest,
    errors_of,
    margin_for,
    signed_errors,
    wide,
)
from inductoscope.inside.sentinel.shadow import (
    CannotRepeat,
    ForwardValues,
    ShadowedCall,
    Tap,
    Trio,
    Way,
    backward_values,
    tap_backward,
    trios_of,
)
from inductoscope.recording.events import BiasFound, CallShadowed, ShadowsEnded

# The number of recent calls whose graphs take part in the choice of what to shadow.
_RECENT = 64

# The values, by name, of another way to make the call.
ValuesOf = Callable[["Way"], Mapping[str, torch.Tensor]]


class Sentinel:
    """Chooses calls to shadow, tests their errors, and keeps those that raise an alarm."""

    def __init__(
        self, options: SentinelOptions, place: Path, on_alarm: Callable[[Alarm], None]
    ) -> None:
        self._options, self._place, self._on_alarm = options, place, on_alarm
        self.share = TimeShare(options.overhead)
        processes = max(int(os.environ.get("WORLD_SIZE", "1") or 1), 1)
        self._tests = BiasTests(options.false_alarms / processes)
        # A separate generator, so that the program's random numbers do not change.
        self._random = random.Random()
        self._recent: deque[int] = deque(maxlen=_RECENT)
        self._is_working = False
        self._values: dict[tuple[str, str], _Value] = {}
        self.alarms: list[Alarm] = []

    def compile(
        self, original: Callable[..., Any], output: Any, module: GraphModule, examples: Any
    ) -> Callable[..., Any]:
        """Compile a graph of the program, and shadow its calls if possible."""
        copy = SCOPE.guard(snapshot, module)
        compiled: Callable[..., Any] = original(output, module, examples)
        _, _, other_backend = how_compiled(output)
        # A rank would repeat a collective alone, and wait for the others forever.
        if other_backend or not isinstance(copy, GraphModule) or communicates(copy):
            return compiled
        return ShadowedGraph(copy, current_compile_id() or "?", compiled, self)

    # --- which calls --------------------------------------------------------------------------

    def wants(self, graph: ShadowedGraph) -> bool:
        """Decide at random whether to shadow this call, within the time share."""
        self.share.start()
        self._recent.append(id(graph))
        if self._is_working or not SCOPE.active or not self.share.allows(graph.cost):
            return False
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            return False  # Synchronizing is forbidden during stream capture.
        return self._random.random() * len(set(self._recent)) < 1.0

    @contextlib.contextmanager
    def working(self, graph: ShadowedGraph) -> Iterator[None]:
        """Charge the time of the block to the sentinel."""
        _wait_for_device()
        self._is_working = True
        before = self.share.spent
        try:
            with self.share.spending():
                yield
                _wait_for_device()
        finally:
            self._is_working = False
            graph.seconds += self.share.spent - before
            graph.cost = max(graph.cost, graph.seconds)

    # --- what they say ------------------------------------------------------------------------

    def examine(
        self,
        graph: ShadowedGraph,
        call: ShadowedCall,
        trios: Mapping[str, Trio],
        values_of: ValuesOf,
    ) -> None:
        """Add the errors of a shadowed call; raise an alarm if they exceed rounding."""
        SCOPE.emit(
            CallShadowed(
                compile=graph.compile_id,
                call=graph.calls,
                values=len(trios),
                spent=round(self.share.spent, 4),
                seen=round(self.share.seen, 4),
            )
        )
        suspicious = {}
        for name, trio in trios.items():
            margin = graph.margin * trio.magnified
            errors = signed_errors(trio.compiled, trio.eager, trio.reference, margin)
            if errors is None:
                continue
            key = graph.compile_id, name
            if key not in self._values:
                self._values[key] = _Value(self._tests.new(name))
            value = self._values[key]
            value.likeness.add(trio.eager, trio.reference)
            value.test.add(errors)
            if value.is_suspicious():
                suspicious[name] = value, errors
        if suspicious:
            self._confirm(graph, call, suspicious, trios, values_of)

    def _confirm(
        self,
        graph: ShadowedGraph,
        call: ShadowedCall,
        suspicious: Mapping[str, tuple[_Value, SignedErrors]],
        trios: Mapping[str, Trio],
        values_of: ValuesOf,
    ) -> None:
        """Run the call with other roundings too, and compare the bias with their spread."""
        seeds = [self._random.getrandbits(31) for _ in range(ROUNDINGS)]
        ways = [values_of(call.with_other_rounding(seed)) for seed in seeds]
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
        with contextlib.suppress(OSError):  # The alarm is raised even if the disk is full.
            _keep(graph, call, alarm)
        facts = {name: getattr(alarm, name) for name in _SAID}
        SCOPE.emit(BiasFound(call=alarm.calls, **facts))
        say(f"alarm: {alarm.text}")
        self._on_alarm(alarm)


# The fields that the event shares with the alarm.
_SAID = ("compile", "value", "direction", "bias", "shadowed", "text", "kept")


def _keep(graph: ShadowedGraph, call: ShadowedCall, alarm: Alarm) -> None:
    """Save the graph and the inputs of the call that raised the alarm."""
    folder = Path(alarm.kept)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / GRAPH).write_text(graph_code(graph.module), "utf-8")
    with contextlib.suppress(Exception):  # The inputs may not be picklable, or the disk full.
        torch.save(call.inputs, folder / INPUTS)
    write_alarm(alarm, folder)


@dataclass
class _Value:
    """The statistics of one output or gradient of a graph."""

    test: ValueTest
    likeness: Likeness = field(default_factory=Likeness)
    confirmation: Confirmation | None = None
    # The number of calls at which a suspicion that rounding explained is examined again.
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
    """Wait for the GPU, so that pending work is charged to whoever launched it."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


# --- A compiled graph of which some calls, chosen at random, are shadowed -------------------------
#
# The program's own call is the one that is tested: its outputs, what it wrote to its inputs, and
# the gradients of its own backward pass. Nothing compiled is called twice.


# The first calls of a graph compile its backward, and are not like the others.
_FIRST = 2
# The number of shadowed calls that show whether dropout is repeated.
_TELLING = 3
# The largest relative distance of eager from a compiled call that drops the same elements.
_SAME_DROPS = 0.05


@dataclass
class ShadowedGraph:
    """A stand-in for a compiled graph, which shadows some of its calls."""

    module: GraphModule
    compile_id: str
    compiled: Callable[..., Any]
    sentinel: Sentinel
    calls: int = 0
    shadowed: int = 0
    # The reason that the graph is not shadowed any more.
    off: str = ""
    # Seconds that shadowing a call took last.
    cost: float = 0.0
    margin: float = 0.0
    # The devices of its dropouts, once they are known.
    dropouts: list[torch.device] | None = None
    waiting: Tap | None = field(default=None, repr=False)
    # Seconds that shadowing the current call has taken so far.
    seconds: float = 0.0

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        if self.calls <= _FIRST or self.off or not self.sentinel.wants(self):
            return self.compiled(*arguments)
        with self.sentinel.working(self):
            call = SCOPE.guard(self._before, arguments)
        result = self.compiled(*arguments)
        if isinstance(call, ShadowedCall):
            with self.sentinel.working(self):
                SCOPE.guard(self._after, call, arguments, result)
        return result

    def describe(self, name: str) -> str:
        """Return a value's name, with the program's name of the input it belongs to."""
        word, _, number = name.rpartition(" ")
        if not word.endswith("input"):
            return name
        nodes = [node for node in self.module.graph.nodes if node.op == "placeholder"]
        return f"{name} ({input_name(nodes[int(number)].name)})"

    def _before(self, arguments: tuple[Any, ...]) -> ShadowedCall | None:
        if self.waiting is not None:
            # The last shadowed call had no backward pass; its outputs were compared.
            self.waiting.remove()
            self.waiting = None
        self.cost, self.seconds = self.cost / 2, 0.0
        if is_traced(arguments):
            return None
        if not has_room_for_copies(arguments):
            self._turn_off("its inputs are too large to copy")
            return None
        return ShadowedCall(self.module, arguments)

    def _after(self, call: ShadowedCall, arguments: tuple[Any, ...], result: Any) -> None:
        try:
            if self.dropouts is None:
                self.dropouts = call.dropouts()
                self.margin = margin_for(call.precision())
            call.repeat_dropouts(self.dropouts)
            eager, reference = call.in_eager(), call.in_float64()
        except CannotRepeat as error:
            self._turn_off(f"eager cannot draw the same random numbers ({error})")
            return
        except Exception as error:
            self._turn_off(f"{type(error).__name__} in eager or float64: {error}"[:300])
            return
        outputs = tuple(tree_leaves(result))
        values = ForwardValues(call.inputs, eager.inputs)
        trios = trios_of(
            values.of(outputs, arguments),
            values.of(eager.outputs, eager.inputs),
            values.of(reference.outputs, reference.inputs),
        )
        trios = {
            name: trio._replace(magnified=values.magnified(name, trio.reference))
            for name, trio in trios.items()
        }
        if not self._drops_the_same(trios):
            return
        self.shadowed += 1
        self.sentinel.examine(self, call, trios, lambda way: values.of(way.outputs, way.inputs))
        if self.off:
            return
        self.waiting = tap_backward(
            outputs, arguments, lambda tap: self._after_backward(call, eager, reference, tap)
        )

    def _after_backward(self, call: ShadowedCall, eager: Way, reference: Way, tap: Tap) -> None:
        self.waiting = None
        with self.sentinel.working(self):
            SCOPE.guard(self._compare_gradients, call, eager, reference, tap)

    def _compare_gradients(self, call: ShadowedCall, eager: Way, reference: Way, tap: Tap) -> None:
        if not tap.cotangents:
            return
        trios = trios_of(
            backward_values(tap.gradients),
            backward_values(eager.gradients(tap.cotangents)),
            backward_values(reference.gradients(tap.cotangents)),
        )
        if self._drops_the_same(trios):
            self.sentinel.examine(
                self, call, trios, lambda way: backward_values(way.gradients(tap.cotangents))
            )

    def _drops_the_same(self, trios: dict[str, Trio]) -> bool:
        """Check whether eager repeats the numbers that dropout draws; if not, turn shadowing off.

        Only the first calls are checked. Later, a gradient may consist of rounding alone.
        """
        if not self.dropouts or self.shadowed > _TELLING:
            return True
        for trio in trios.values():
            compiled, eager = wide(trio.compiled), wide(trio.eager)
            distance = float((compiled - eager).abs().sum())
            if not distance <= _SAME_DROPS * float(eager.abs().sum()):
                self._turn_off("eager does not draw the same random numbers")
                return False
        return True

    def _turn_off(self, why: str) -> None:
        self.off = why
        SCOPE.emit(ShadowsEnded(compile=self.compile_id, text=why))


# --- How much of the time the sentinel has seen it may spend --------------------------------------


class TimeShare:
    """Limits the time spent to a share of the time that the program had for itself."""

    def __init__(self, share: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._share, self._clock = share, clock
        self._started: float | None = None
        self.spent = 0.0

    def start(self) -> None:
        """Start the program's clock at the first call, which excludes the time to compile."""
        if self._started is None:
            self._started = self._clock()

    @property
    def seen(self) -> float:
        """The seconds that the program had for itself."""
        return 0.0 if self._started is None else self._clock() - self._started - self.spent

    def allows(self, seconds: float) -> bool:
        """Check whether this many more seconds stay within the share."""
        return self.spent + seconds <= self._share * self.seen

    @contextlib.contextmanager
    def spending(self) -> Iterator[None]:
        """Count the time of the block as spent."""
        started = self._clock()
        try:
            yield
        finally:
            self.spent += self._clock() - started
