"""The sentinel of one process: which calls to shadow, how to test them, when to raise an alarm."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
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
from inductoscope.inside.compare.large_calls import is_lack_of_memory, written_inputs
from inductoscope.inside.compare.values import release_frames, size_in_bytes
from inductoscope.inside.doctor.compile_conditions import how_compiled, is_traced
from inductoscope.inside.gpu_use import is_capturing, uses_cuda
from inductoscope.inside.memory_budget import give_back, has_room_for_copies
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
from inductoscope.inside.time_share import TimeShare
from inductoscope.recording.events import BiasFound, CallShadowed, ShadowsEnded

# The number of recent calls whose graphs take part in the choice of what to shadow.
_RECENT = 64

# The values of a call, by name, with other roundings, which a seed chooses.
WithOtherRounding = Callable[[int], Mapping[str, torch.Tensor]]


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
        self.random = random.Random()
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
        self.share.start()  # Not before the first call, to exclude the time to compile.
        self._recent.append(id(graph))
        is_busy = self._is_working or is_capturing()
        if is_busy or not SCOPE.active or not self.share.allows(graph.cost):
            return False
        return self.random.random() * len(set(self._recent)) < 1.0

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
        with_other_rounding: WithOtherRounding,
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
            self._confirm(graph, call, suspicious, trios, with_other_rounding)

    def _confirm(
        self,
        graph: ShadowedGraph,
        call: ShadowedCall,
        suspicious: Mapping[str, tuple[_Value, SignedErrors]],
        trios: Mapping[str, Trio],
        with_other_rounding: WithOtherRounding,
    ) -> None:
        """Run the call with other roundings too, and compare the bias with their spread."""
        seeds = [self.random.getrandbits(31) for _ in range(ROUNDINGS)]
        ways = [with_other_rounding(seed) for seed in seeds]
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


# The most that inputs of a call may take of what is free on disk.
_PART_OF_DISK = 0.1


def _keep(graph: ShadowedGraph, call: ShadowedCall, alarm: Alarm) -> None:
    """Save the graph and the inputs of the call that raised the alarm."""
    folder = Path(alarm.kept)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / GRAPH).write_text(graph_code(graph.module), "utf-8")
    with contextlib.suppress(Exception):  # The inputs may not be picklable, or the disk full.
        if size_in_bytes(call.inputs) <= shutil.disk_usage(folder).free * _PART_OF_DISK:
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
    if uses_cuda():
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
    # The inputs that a graph writes to, once they are known; needed if they are too large to copy.
    written: frozenset[int] | None = None
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
                SCOPE.guard(self._while_memory_suffices, self._after, call, arguments, result)
        return result

    def _while_memory_suffices(
        self, work: Callable[..., None], call: ShadowedCall, *arguments: Any
    ) -> None:
        try:
            work(call, *arguments)
        except Exception as error:
            if not is_lack_of_memory(error):
                raise
            release_frames(error)
            self._turn_off("to repeat a call takes more memory than is left")
        finally:
            if call.is_large:
                give_back()

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
        if has_room_for_copies(arguments, self.module):
            return ShadowedCall(self.module, arguments)
        if self.written is None:
            self.written = written_inputs(self.module, arguments)
        written = self.written
        if written is None or not has_room_for_copies([arguments[n] for n in written]):
            self._turn_off("its inputs are too large to copy, and it may write to them")
            return None
        return ShadowedCall(self.module, arguments, written, self.sentinel.random)

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
            if is_lack_of_memory(error):
                raise
            self._turn_off(f"{type(error).__name__} in eager or float64: {error}"[:300])
            return
        outputs = tuple(tree_leaves(result))
        values = ForwardValues(call, eager.inputs)
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

        def with_other_rounding(seed: int) -> Mapping[str, torch.Tensor]:
            way = call.with_other_rounding(seed)
            return values.of(way.outputs, way.inputs)

        self.sentinel.examine(self, call, trios, with_other_rounding)
        if self.off:
            return
        kept = None if call.is_large else (eager, reference)
        self.waiting = tap_backward(
            outputs,
            arguments,
            call.tested_gradients,
            lambda tap: self._after_backward(call, kept, tap),
        )

    def _after_backward(self, call: ShadowedCall, kept: tuple[Way, Way] | None, tap: Tap) -> None:
        self.waiting = None
        with self.sentinel.working(self):
            SCOPE.guard(self._while_memory_suffices, self._compare_gradients, call, kept, tap)

    def _compare_gradients(
        self, call: ShadowedCall, kept: tuple[Way, Way] | None, tap: Tap
    ) -> None:
        """Compare gradients; without `kept`, the forward passes are repeated one by one."""
        if not tap.cotangents or not call.is_unchanged:
            return

        def gradients_of(way: Way) -> dict[str, torch.Tensor]:
            found = backward_values(way.gradients(tap.cotangents, tap.gradients))
            return {name: call.part(value) for name, value in found.items()}

        compiled = {name: call.part(v) for name, v in backward_values(tap.gradients).items()}
        eager = gradients_of(kept[0] if kept else call.in_eager(for_backward=True))
        reference = gradients_of(kept[1] if kept else call.in_float64(for_backward=True))
        trios = trios_of(compiled, eager, reference)
        if self._drops_the_same(trios):
            self.sentinel.examine(
                self,
                call,
                trios,
                lambda seed: gradients_of(call.with_other_rounding(seed, for_backward=True)),
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
