"""A compiled graph of which some calls, chosen at random, are shadowed.

The program's own call is the one that is tested: its outputs, what it wrote to its inputs, and the
gradients of its own backward pass. Nothing compiled is called twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves

from inductoscope.capture.observe import current_compile_id
from inductoscope.capture.scope import SCOPE
from inductoscope.doctor.compare.graphs import graph_code, snapshot
from inductoscope.doctor.inside.how_compiled import how_compiled
from inductoscope.doctor.inside.room_for_checks import has_room_for_copies, is_traced
from inductoscope.doctor.repro.python_text import input_name
from inductoscope.doctor.sentinel.inductor_dropout import CannotRepeat
from inductoscope.doctor.sentinel.sentinel import Sentinel
from inductoscope.doctor.sentinel.shadow import Dropouts, ShadowedCall, Way, generator_states
from inductoscope.doctor.sentinel.signed_error import margin_for, wide
from inductoscope.doctor.sentinel.tapped_backward import Tap, tap_backward
from inductoscope.doctor.sentinel.tested_values import (
    ForwardValues,
    Trio,
    backward_values,
    trios_of,
)

TORCH_NAMES = {
    "torch.utils._pytree": ("tree_leaves",),
}

# The first calls of a graph compile its backward, and are not like the others.
_FIRST = 2
# So many shadowed calls show whether dropout is repeated.
_TELLING = 3
# How far, on average, eager may be from a compiled call that drops the same elements.
_SAME_DROPS = 0.05


def shadowed_graph(
    original: Callable[..., Any],
    output: Any,
    module: GraphModule,
    examples: Any,
    sentinel: Sentinel,
) -> Callable[..., Any]:
    """What replaces the compiled graph; the compiled graph itself if it cannot be copied."""
    copy = SCOPE.guard(snapshot, module)
    compiled: Callable[..., Any] = original(output, module, examples)
    if not isinstance(copy, GraphModule):
        return compiled
    options, _, backend = how_compiled(output)
    if backend:
        return compiled
    return ShadowedGraph(copy, current_compile_id() or "?", compiled, options, sentinel)


@dataclass
class ShadowedGraph:
    """Stands in for the compiled graph."""

    module: GraphModule
    compile_id: str
    compiled: Callable[..., Any]
    options: dict[str, Any]
    sentinel: Sentinel
    calls: int = 0
    shadowed: int = 0
    # Why it is not shadowed any more.
    off: str = ""
    # Seconds that shadowing a call took last.
    cost: float = 0.0
    margin: float = 0.0
    dropouts: Dropouts | None = None
    waiting: Tap | None = field(default=None, repr=False)
    _seconds: float = 0.0

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

    def account(self, seconds: float) -> None:
        """Add to what shadowing the current call has taken."""
        self._seconds += seconds
        self.cost = max(self.cost, self._seconds)

    def describe(self, name: str) -> str:
        """A value's name, with that of the input it belongs to."""
        word, _, number = name.rpartition(" ")
        if not word.endswith("input"):
            return name
        nodes = [node for node in self.module.graph.nodes if node.op == "placeholder"]
        return f"{name} ({input_name(nodes[int(number)].name)})"

    @property
    def text(self) -> str:
        """The graph as it is compared with another run's."""
        return graph_code(self.module)

    def _before(self, arguments: tuple[Any, ...]) -> ShadowedCall | None:
        self._stop_waiting()
        self.cost, self._seconds = self.cost / 2, 0.0
        if is_traced(arguments):
            return None
        if not has_room_for_copies(arguments):
            self._turn_off("its inputs are too large to copy")
            return None
        return ShadowedCall(self.module, arguments, generator_states())

    def _after(self, call: ShadowedCall, arguments: tuple[Any, ...], result: Any) -> None:
        ways = self._in_other_ways(call)
        if ways is None:
            return
        eager, reference = ways
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

    def _in_other_ways(self, call: ShadowedCall) -> tuple[Way, Way] | None:
        """The call in eager and in float64; None, and no more shadows, if it cannot be made."""
        try:
            if self.dropouts is None:
                self.dropouts = call.count_dropouts()
                self.margin = margin_for(call.precision())
            call.repeat_dropouts(self.dropouts)
            eager, reference = call.in_eager(), call.in_float64()
        except CannotRepeat as error:
            self._turn_off(f"eager cannot draw the same random numbers ({error})")
            return None
        except Exception as error:
            self._turn_off(f"{type(error).__name__} in eager or float64: {error}"[:300])
            return None
        return eager, reference

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
        """Whether the numbers that dropout draws were repeated; otherwise nothing can be said.

        The first calls tell. Later, rounding may be all that is left of a gradient.
        """
        if self.dropouts is None or not self.dropouts.count or self.shadowed > _TELLING:
            return True
        for trio in trios.values():
            compiled, eager = wide(trio.compiled), wide(trio.eager)
            distance = float((compiled - eager).abs().sum())
            if not distance <= _SAME_DROPS * float(eager.abs().sum()):
                self._turn_off("eager does not draw the same random numbers")
                return False
        return True

    def _stop_waiting(self) -> None:
        """The last shadowed call had no backward pass; its outputs were compared."""
        if self.waiting is not None:
            self.waiting.remove()
            self.waiting = None

    def _turn_off(self, why: str) -> None:
        self.off = why
        self.sentinel.note_off(self)
