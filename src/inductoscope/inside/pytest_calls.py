"""Calls of compiled graphs, kept during a test and compared with eager once it is over.

During the test nothing is compared and nothing is called twice: a test may count compiles, calls
or warnings, patch settings, or expect an exception. Inputs are copied, which reads memory and
changes nothing.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import itertools
import os
import re
import time
import types
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule

from inductoscope.doctor.failure import NAN
from inductoscope.inside.compare.bug_or_rounding import UNINITIALISED, UNREPEATABLE, judge
from inductoscope.inside.compare.collectives import communicates
from inductoscope.inside.compare.graphs import as_function, snapshot
from inductoscope.inside.compare.kernels import KEPT_WRAPPERS
from inductoscope.inside.compare.operators import first_false_declaration
from inductoscope.inside.compare.reference import Case
from inductoscope.inside.compare.values import (
    Surroundings,
    copy_values,
    draws_random_numbers,
    is_plain,
    needs_backward,
    run,
    size_in_bytes,
)
from inductoscope.inside.doctor.compile_conditions import how_compiled, is_traced
from inductoscope.inside.gpu_use import is_capturing
from inductoscope.inside.install import describe_torch
from inductoscope.inside.memory_budget import has_room_for_copies
from inductoscope.inside.observe import current_compile_id
from inductoscope.inside.scope import BROKEN, SCOPE, chain_of
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.failure_signature import failure_of_comparison
from inductoscope.inside.search.location import first_wrong_own_kernel, places_of, source_lines
from inductoscope.pytest_plugin.results import (
    ERROR,
    NOT_CHECKED,
    RIGHT,
    UNSTEADY,
    WITHIN_ROUNDING,
    WRONG,
    CheckedCall,
    SuiteFinding,
    SuiteGraphData,
)
from inductoscope.torch_facts.frames import shorten
from inductoscope.verdicts import CRASH, NOT_A_BUG, NOT_A_NUMBER, WRONG_RESULT
from inductoscope.wording import count_of

# Bytes of inputs that are kept until the end of one test.
_MOST = 1 << 30
# Seconds after which no further call of the same test is compared.
_LONGEST = 60.0
_DEVICES = ("cpu", "cuda")
_NUMBERS = (bool, int, float, complex, str, type(None), torch.dtype, torch.device)
_OBJECT = re.compile(r"<(?:[\w.<>]*\.)?(\w+) object at 0x[0-9a-f]+>")


@dataclass(eq=False)
class SuiteGraph:
    """A graph that Inductor has compiled, with the captured module it was compiled from."""

    # Unique in the whole suite.
    name: str
    compile_id: str
    module: GraphModule
    options: dict[str, Any]
    dynamic: bool | None
    compiled: Callable[..., Any] | None = None
    # Whether the backward graph is compiled too, so that gradients can be compared.
    has_backward: bool = False
    # Why none of the graph's calls can be repeated; empty if they can.
    off: str = ""

    def versions(self) -> tuple[int, ...]:
        held = [*self.module.parameters(), *self.module.buffers()]
        held += [value for value in vars(self.module).values() if isinstance(value, torch.Tensor)]
        return tuple(value._version for value in held if not value.is_inference())


@dataclass(eq=False)
class KeptSuiteCall:
    """One call of a graph: copies of its inputs, and the global state in which it was made."""

    graph: SuiteGraph
    number: int
    inputs: tuple[Any, ...]
    # Bytes of its inputs.
    size: int
    situation: Surroundings
    versions: tuple[int, ...]
    # The exception that the call raised in the test, in one line; empty if none.
    raised: str = ""
    # Why the call cannot be repeated after all; empty if it can.
    spoilt: str = ""

    def returned(self) -> None:
        """Note that the call returned; a graph that wrote to its own tensors cannot be compared."""
        if self.graph.versions() != self.versions:
            self.spoilt = "it writes to tensors that it holds itself"


@dataclass
class SeenInTest:
    graphs: list[SuiteGraphData] = field(default_factory=list)
    calls: list[KeptSuiteCall] = field(default_factory=list)
    # Calls that are not kept, with the reason; one per graph is enough.
    not_kept: dict[str, CheckedCall] = field(default_factory=dict)
    # The number of calls of each graph.
    numbers: dict[str, int] = field(default_factory=dict)


class GraphWatch:
    """Keeps calls of compiled graphs by test; there is one in each process that runs tests."""

    def __init__(self, calls: int, prefix: str, on_graph: Callable[[], bool]) -> None:
        """`on_graph` is called for each graph; it returns whether a new recording begins."""
        self._most, self._prefix, self._on_graph = calls, prefix, on_graph
        self._pid = os.getpid()
        self._numbers = itertools.count(1)
        # Keyed by torch's compile id; ids start again after torch._dynamo.reset().
        self._by_id: weakref.WeakValueDictionary[str, SuiteGraph] = weakref.WeakValueDictionary()
        # The running test; None between tests, and for tests that are not checked.
        self.seen: SeenInTest | None = None
        # Whether the tool itself is calling compiled code.
        self.is_busy = False

    @property
    def _is_off(self) -> bool:
        return self.is_busy or os.getpid() != self._pid

    def compile(
        self, original: Callable[..., Any], output: Any, module: GraphModule, examples: Any
    ) -> Callable[..., Any]:
        """Compile a graph with the original function; wrap the result so that calls are kept."""
        __tracebackhide__ = True
        graph = None
        if not self._is_off:
            if self._on_graph():
                SCOPE.guard(describe_torch)
            # The module is described before compiling, which may mutate it.
            graph = SCOPE.guard(self._new_graph, output, module)
        compiled: Callable[..., Any] = original(output, module, examples)
        if not isinstance(graph, SuiteGraph) or not isinstance(compiled, types.FunctionType):
            return compiled
        graph.compiled = compiled
        return self._keeping(graph, compiled)

    def _new_graph(self, output: Any, module: GraphModule) -> SuiteGraph | None:
        """Make an entry for a graph; None if a backend other than Inductor compiles it."""
        compile_id = current_compile_id() or "?"
        name = f"{self._prefix}{next(self._numbers)}"
        options, dynamic, backend = how_compiled(output)
        kept = snapshot(module)
        if self.seen is not None:
            source = next(iter(places_of(kept.graph.nodes)), "")
            # A backend object is named by its class: its repr holds a memory address.
            named = _OBJECT.sub(r"\1", backend)
            self.seen.graphs.append(SuiteGraphData(name, compile_id, shorten(source), named))
        if backend:
            return None
        graph = SuiteGraph(name, compile_id, kept, options, dynamic)
        graph.off = _why_never_kept(output, graph)
        self._by_id[compile_id] = graph
        return graph

    def note_backward(self, compile_id: str) -> None:
        graph = self._by_id.get(compile_id)
        if graph is not None:
            graph.has_backward = True

    def _keeping(self, graph: SuiteGraph, compiled: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(compiled)
        def call(*arguments: Any, **others: Any) -> Any:
            __tracebackhide__ = True
            kept = None
            if self.seen is not None and not self._is_off and not others:
                kept = SCOPE.guard(self._keep, self.seen, graph, arguments)
            if kept is None or kept is BROKEN:
                return compiled(*arguments, **others)
            try:
                result = compiled(*arguments)
            except Exception as error:
                kept.raised = _said_by(error)
                raise
            SCOPE.guard(kept.returned)
            return result

        return call

    def _keep(
        self, seen: SeenInTest, graph: SuiteGraph, arguments: tuple[Any, ...]
    ) -> KeptSuiteCall | None:
        if is_traced(arguments) or torch.jit.is_tracing():
            return None
        number = seen.numbers[graph.name] = seen.numbers.get(graph.name, 0) + 1
        if number > self._most:
            return None

        def note(why: str) -> None:
            told = CheckedCall(graph.name, graph.compile_id, number, NOT_CHECKED, why)
            seen.not_kept[graph.name] = told

        note("inductoscope itself failed")  # Replaced below unless the tool fails.
        why = _why_not_kept(graph, arguments, sum(call.size for call in seen.calls))
        if why:
            note(why)
            return None
        inputs, size = tuple(copy_values(arguments)), size_in_bytes(arguments)
        kept = KeptSuiteCall(graph, number, inputs, size, Surroundings.now(), graph.versions())
        seen.not_kept.pop(graph.name, None)
        seen.calls.append(kept)
        return kept


def _said_by(error: BaseException) -> str:
    """Return an exception as one line, in the form of `KeptSuiteCall.raised`."""
    return f"{type(error).__name__}: {error}".partition("\n")[0][:300]


def _why_never_kept(output: Any, graph: SuiteGraph) -> str:
    """Return why no call of a graph can be repeated; "" if calls can be."""
    import torch._inductor.config as config

    if graph.compile_id.startswith("!"):
        return "it is compiled autograd's"
    if getattr(output, "package", None) is not None:
        return "torch stores it in a package"
    if communicates(graph.module):
        return "it communicates with other processes"
    if graph.options.get("triton.cudagraphs", config.triton.cudagraphs):
        return "it runs as a CUDA graph"
    return ""


def _why_not_kept(graph: SuiteGraph, arguments: Sequence[Any], kept: int) -> str:
    """Return why a call cannot be repeated after the test; "" if it can. `kept`: bytes so far."""
    if graph.off:
        return graph.off
    if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
        return "called inside a torch mode, such as a default device"
    if torch._C._functorch.get_dynamic_layer_stack_depth():
        return "called inside a transform, such as vmap"
    if torch._C._autograd._profiler_enabled():
        return "called while torch.profiler was on"
    if is_capturing():
        return "called while a CUDA graph was recorded"
    for value in arguments:
        if not isinstance(value, _NUMBERS) and not is_plain(value):
            return f"an input is a {_kind_of(value)}"
        if isinstance(value, torch.Tensor) and value.device.type not in _DEVICES:
            return f"an input is on device {value.device.type}"
    if kept + size_in_bytes(arguments) > _MOST or not has_room_for_copies(arguments):
        return "its inputs are too large to copy"
    return ""


def _kind_of(value: Any) -> str:
    kind = type(value)
    if kind in (torch.Tensor, torch.nn.Parameter):
        return "tensor of an unusual layout"
    return f"{kind.__module__}.{kind.__qualname__}"


def forget_wrappers() -> None:
    """Release the wrappers that were kept to inspect kernels; called at the end of a test."""
    KEPT_WRAPPERS.wrappers.clear()


# --- Compares the kept calls of a test with eager, once the test is over --------------------------
#
# A call is repeated on copies of its inputs, in eager and compiled, under the global state in which
# it was made. It counts as wrong only if the error is beyond rounding, judged against float64, on
# each repetition. A call that raised counts only if the test failed with that exception, and if
# compiled code raises it each time and eager never. A call that cannot be compared gets a reason
# and no verdict.


class NotCompared(Exception):
    """The error for a call that cannot be compared; the text says why."""


# The verdict on a call, an explanation, and the finding if the call is wrong.
Judged = tuple[str, str, SuiteFinding | None]


def check_calls(
    calls: Sequence[KeptSuiteCall], failure: BaseException | None
) -> tuple[list[CheckedCall], list[SuiteFinding]]:
    """Compare all calls that a test made; `failure` is the exception of the test, if it failed."""
    end = time.monotonic() + _LONGEST
    checked: list[CheckedCall] = []
    findings: dict[str, SuiteFinding] = {}
    with _unnoticed():
        for call in calls:
            graph = call.graph
            # The grad mode of the call in the test, which may have changed since.
            with torch.set_grad_enabled(call.situation.is_grad_enabled):
                backward = graph.has_backward and needs_backward(call.inputs)
            verdict, text, finding = _judged(call, failure, backward, end)
            with_gradients = backward and verdict not in (NOT_CHECKED, ERROR)
            checked.append(
                CheckedCall(
                    graph.name, graph.compile_id, call.number, verdict, text, with_gradients
                )
            )
            # One wrong call of a graph is enough.
            if finding is not None:
                findings.setdefault(graph.name, finding)
    return checked, list(findings.values())


@contextlib.contextmanager
def _unnoticed() -> Iterator[None]:
    """Keep output, warnings and counters of the checks out of the test suite."""
    import torch._dynamo.utils as utils

    before = copy.deepcopy(dict(utils.counters))
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        # Restored in place, because the suite may hold a reference to a counter.
        for name, counter in list(utils.counters.items()):
            counter.clear()
            counter.update(before.get(name, {}))
            if name not in before:
                del utils.counters[name]


def _judged(
    call: KeptSuiteCall, failure: BaseException | None, backward: bool, end: float
) -> Judged:
    try:
        if time.monotonic() > end:
            raise NotCompared(f"the checks of this test had already taken {_LONGEST:.0f} s")
        with call.situation.entered():
            return _compared(call, failure, backward)
    except NotCompared as why:
        return NOT_CHECKED, str(why), None
    except Exception as error:
        return NOT_CHECKED, f"inductoscope itself failed: {_said_by(error)}", None


def _compared(call: KeptSuiteCall, failure: BaseException | None, backward: bool) -> Judged:
    if call.spoilt:
        raise NotCompared(call.spoilt)
    if not call.raised and call.graph.versions() != call.versions:
        raise NotCompared("the test later wrote to tensors that it holds")
    eager, compiled = as_function(call.graph.module), call.graph.compiled
    assert compiled is not None
    case = Case(eager, call.inputs, backward)
    if case.eager_error is not None:
        raise NotCompared(f"eager raises {_said_by(case.eager_error)}")
    if call.raised:
        return _after_error(call, eager, compiled, failure)
    try:
        comparison = judge(case, run(compiled, call.inputs, backward=backward))
        if not comparison.is_right:
            again = judge(case, run(compiled, call.inputs, backward=backward))
            if again.is_right:
                return UNSTEADY, f"wrong in one of two calls: {comparison.wrong[0].text}", None
    except Exception as error:
        why = f"called again after the test, it raised {_said_by(error)}"
        raise NotCompared(why) from error
    if not comparison.is_right:
        if draws_random_numbers(eager, call.inputs):
            raise NotCompared("it draws random numbers, and compiled code draws others than eager")
        found: Any = failure_of_comparison(comparison)
        return WRONG, found.text, _wrong(call, found, backward)
    if not comparison.explained:
        return RIGHT, count_of(comparison.values, "value"), None
    texts = "; ".join(item.text for item in comparison.explained[:2])
    if comparison.reason in (UNINITIALISED, UNREPEATABLE):
        return UNSTEADY, f"{comparison.reason}: {texts}", None
    return WITHIN_ROUNDING, texts, None


def _after_error(
    call: KeptSuiteCall,
    eager: Callable[..., Any],
    compiled: Callable[..., Any],
    failure: BaseException | None,
) -> Judged:
    """Judge a call that raised in the test, and that succeeds in eager.

    An exception that did not fail the test was expected by it. The cause may also be gone by now,
    and then success in eager means nothing, so the exception must be reproduced: compiled twice in
    a row, then not in eager, which also excludes a failure of every other call.
    """
    if failure is None or call.raised not in map(_said_by, chain_of(failure)):
        raise NotCompared(f"the test expects that it raises {call.raised}")
    if [_raised_by(each, call) for each in (compiled, compiled, eager)] != [call.raised] * 2 + [""]:
        raise NotCompared(f"it raised {call.raised} in the test, but not each time after the test")
    text = f"compiled code raised {call.raised}; eager does not"
    how = (
        f"call {call.number} of graph {call.graph.compile_id} raised it in the test, and twice "
        "more after the test, on copies of its inputs; the same graph returned in eager, "
        "before these two calls and after them"
    )
    return ERROR, text, _finding(call, CRASH, text, how)


def _raised_by(function: Callable[..., Any], call: KeptSuiteCall) -> str:
    try:
        run(function, call.inputs, backward=False)
    except Exception as error:
        return _said_by(error)
    return ""


def _finding(call: KeptSuiteCall, verdict: str, summary: str, how: str) -> SuiteFinding:
    graph = call.graph
    return SuiteFinding(
        verdict, summary, graph=graph.name, compile=graph.compile_id, known_by=[how]
    )


def _wrong(call: KeptSuiteCall, failure: Any, backward: bool) -> SuiteFinding:
    graph = call.graph
    how = (
        f"after the test, call {call.number} of graph {graph.compile_id} was made again on "
        "copies of its inputs: in eager, in float64, and twice compiled"
    )
    verdict = NOT_A_NUMBER if failure.kind == NAN else WRONG_RESULT
    finding = _finding(call, verdict, f"compiled code and eager differ: {failure.text}", how)
    finding.details += failure.texts[1:4]
    declared = first_false_declaration(as_function(graph.module), call.inputs)
    if declared is None:
        _locate(finding, call, backward)
        return finding
    finding.verdict, finding.stage, finding.op = NOT_A_BUG, "user", declared.operation
    finding.summary += (
        f". {declared.operation} does not do what it declares, which the compiler relies on"
    )
    finding.details.append(declared.text)
    finding.known_by.append("torch.library.opcheck failed on its actual arguments")
    return finding


def _locate(finding: SuiteFinding, call: KeptSuiteCall, backward: bool) -> None:
    """Locate the first kernel whose result differs from its node's, with one more call."""
    graph = call.graph
    candidate = Candidate(
        graph.module,
        tuple(copy_values(call.inputs)),
        backward=backward,
        dynamic=graph.dynamic,
        options=graph.options,
    )
    lines = source_lines(candidate)
    if len(lines) == 1:
        finding.source = shorten(lines[0])
    # A C++ wrapper would have to be recompiled; a wrapper from a cache was not kept.
    is_cpp = any(hasattr(wrapper.module, "inductor_entry") for wrapper in KEPT_WRAPPERS.wrappers)
    if not KEPT_WRAPPERS.wrappers or is_cpp or graph.compiled is None:
        return
    with contextlib.suppress(Exception):
        found = first_wrong_own_kernel(candidate, graph.compiled)
        finding.stage, finding.kernel = found.stage, found.kernel
        finding.ops = list(dict.fromkeys(found.names))
        finding.op = finding.ops[0] if len(finding.ops) == 1 else ""
        named = [node for node in candidate.operations if node.name in found.suspects]
        if places := places_of(named):
            finding.source = shorten(places[-1])
        if found.kernel:
            finding.details.append(found.text)
            finding.known_by += filter(None, [found.how])
