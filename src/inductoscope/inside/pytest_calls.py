"""Calls of compiled graphs, kept during a test and compared with eager once it is over.

During the test nothing is compared and nothing is called twice: a test may count compiles, calls
or warnings, patch settings, or expect an exception. Inputs are copied, which reads memory and
changes nothing.
"""

from __future__ import annotations

import contextlib
import copy
import io
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import GraphModule

from inductoscope.doctor.failure import NAN
from inductoscope.inside.compare.bug_or_rounding import (
    UNINITIALISED,
    UNREPEATABLE,
    EagerComparison,
    judge,
)
from inductoscope.inside.compare.graphs import as_function
from inductoscope.inside.compare.kernels import KEPT
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
from inductoscope.inside.doctor.compile_conditions import has_room_for_copies
from inductoscope.inside.gpu_use import is_capturing
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.failure_signature import failure_of_comparison
from inductoscope.inside.search.wrong_result_location import (
    first_wrong_own_kernel,
    places_of,
    source_lines,
)
from inductoscope.pytest_plugin.results import (
    ERROR,
    NOT_CHECKED,
    RIGHT,
    UNSTEADY,
    WITHIN_ROUNDING,
    WRONG,
    CheckedCall,
    SuiteFinding,
)
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.frames import shorten
from inductoscope.verdicts import (
    CRASH,
    NOT_A_BUG,
    NOT_A_NUMBER,
    WRONG_RESULT,
)
from inductoscope.wording import count_of

# Bytes of inputs that are kept until the end of one test.
_MOST = 1 << 30
_DEVICES = ("cpu", "cuda")
_NUMBERS = (bool, int, float, complex, str, type(None), torch.dtype, torch.device)


@dataclass(eq=False)
class SuiteGraph:
    """A graph that Inductor has compiled, and what it was before."""

    # Unique in the whole suite.
    name: str
    compile_id: str
    module: GraphModule
    options: dict[str, Any]
    dynamic: bool | None
    compiled: Callable[..., Any] | None = None
    # Whether its backward graph is compiled too, so that gradients can be compared.
    has_backward: bool = False
    # Why none of its calls can be made again.
    off: str = ""

    def versions(self) -> tuple[int, ...]:
        """Counts how often the tensors were written to that the graph itself holds."""
        held = [*self.module.parameters(), *self.module.buffers()]
        held += [value for value in vars(self.module).values() if isinstance(value, torch.Tensor)]
        return tuple(value._version for value in held if not value.is_inference())


@dataclass(frozen=True)
class CallSituation:
    """State that a call depends on besides its inputs."""

    surroundings: Surroundings
    is_inference: bool
    default_dtype: torch.dtype
    matmul_precision: str

    @classmethod
    def now(cls) -> CallSituation:
        """That of the call that is made now."""
        return cls(
            Surroundings.now(),
            torch.is_inference_mode_enabled(),
            torch.get_default_dtype(),
            torch.get_float32_matmul_precision(),
        )

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """The same situation, inside the block."""
        before = torch.get_default_dtype(), torch.get_float32_matmul_precision()
        try:
            torch.set_default_dtype(self.default_dtype)
            if self.matmul_precision != before[1]:
                torch.set_float32_matmul_precision(self.matmul_precision)
            with torch.inference_mode(self.is_inference), self.surroundings.entered():
                yield
        finally:
            torch.set_default_dtype(before[0])
            if self.matmul_precision != before[1]:
                torch.set_float32_matmul_precision(before[1])


@dataclass(eq=False)
class KeptSuiteCall:
    """One call: copies of its inputs, and the situation that it was made in."""

    graph: SuiteGraph
    number: int
    inputs: tuple[Any, ...]
    situation: CallSituation
    versions: tuple[int, ...]
    # What it raised in the test.
    raised: str = ""
    # Why it cannot be made again after all.
    spoilt: str = ""
    # Bytes of its inputs.
    size: int = 0

    def returned(self) -> None:
        """The call is over, without an exception."""
        if self.graph.versions() != self.versions:
            self.spoilt = "it writes to tensors that it holds itself"


def said_by(error: BaseException) -> str:
    """An exception's message in one line; the form of a kept call's `raised`."""
    return f"{type(error).__name__}: {error}".partition("\n")[0][:300]


def keep_call(graph: SuiteGraph, number: int, arguments: Sequence[Any]) -> KeptSuiteCall:
    """Copies of the inputs of a call that is about to be made."""
    return KeptSuiteCall(
        graph,
        number,
        tuple(copy_values(arguments)),
        CallSituation.now(),
        graph.versions(),
        size=size_in_bytes(arguments),
    )


def why_not_kept(graph: SuiteGraph, arguments: Sequence[Any], kept: int) -> str:
    """Why a call cannot be made again after the test; "" if it can. `kept`: bytes kept so far."""
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


def why_never_kept(module: GraphModule, settings: dict[str, Any]) -> str:
    """Why no call of a graph can be made again; "" if calls can."""
    for node in module.graph.nodes:
        place = str(getattr(node.target, "__module__", ""))
        if "c10d" in str(node.target) or place.startswith("torch.distributed"):
            return "it communicates with other processes"
    if settings.get("triton.cudagraphs"):
        return "it runs as a CUDA graph"
    return ""


# --------------------------------------------------------------------------------------------------
# Names the kernel and the operation of a wrong result from one more call: nothing is compiled.


@dataclass(frozen=True)
class WrongPlace:
    """Where a graph goes wrong, as far as it is known."""

    stage: str = ""
    # The operations of the kernel, one of which is to blame.
    operations: tuple[str, ...] = ()
    kernel: str = ""
    source: str = ""
    text: str = ""
    how: str = ""


def what_is_wrong(call: KeptSuiteCall, *, backward: bool) -> WrongPlace:
    """The first kernel whose result is not what its node computes; a source line in any case."""
    graph = call.graph
    candidate = Candidate(
        graph.module,
        tuple(copy_values(call.inputs)),
        backward=backward,
        dynamic=graph.dynamic,
        options=graph.options,
    )
    lines = source_lines(candidate)
    only = shorten(lines[0]) if len(lines) == 1 else ""
    # A wrapper in C++ would have to be compiled again; one out of a cache is not known.
    can_look = KEPT.wrappers and not any(hasattr(w.module, "inductor_entry") for w in KEPT.wrappers)
    if not can_look or graph.compiled is None:
        return WrongPlace(source=only)
    with contextlib.suppress(Exception):
        found = first_wrong_own_kernel(candidate, graph.compiled)
        named = [node for node in candidate.operations if node.name in found.suspects]
        places = places_of(named)
        return WrongPlace(
            found.stage,
            tuple(dict.fromkeys(found.names)),
            found.kernel,
            shorten(places[-1]) if places else only,
            found.text,
            found.how if found.kernel else "",
        )
    return WrongPlace(source=only)


def forget_wrappers() -> None:
    """Let go of all that was kept for a look at kernels: the test is over."""
    KEPT.wrappers.clear()


# --- A test that fails because Inductor raised an exception while it compiled ---------------------


def inductors_exception(error: BaseException) -> BaseException | None:
    """The exception of Inductor among those that `error` was raised from; None if there is none."""
    for one in chain_of(error):
        kind = f"{type(one).__module__}.{type(one).__qualname__}"
        if kind == "torch._inductor.exc.InductorError" or _is_of_inductor(one):
            return one
    return None


def _is_of_inductor(error: BaseException) -> bool:
    """Dynamo wraps what a backend raises, and says which backend it was."""
    dynamo: Any = sys.modules.get("torch._dynamo.exc")
    wrapping = getattr(dynamo, "BackendCompilerFailed", ())
    # The backend has the name of the stage.
    return isinstance(error, wrapping) and getattr(error, "backend_name", "") == stages.INDUCTOR


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """An exception, and all that it was raised from or while they were handled."""
    found: set[int] = set()
    queue: list[Any] = [error]
    while queue:
        one = queue.pop(0)
        if isinstance(one, BaseException) and id(one) not in found:
            found.add(id(one))
            yield one
            queue += [one.__cause__, one.__context__, getattr(one, "inner_exception", None)]


# --- Compares the kept calls of a test with eager, once the test is over --------------------------
#
# A call is made again on copies of its inputs, in eager and compiled, in the situation that it
# was made in. It counts as wrong only if that is beyond rounding, judged against float64, and if
# it is so each time. One that raised counts only if the test failed with that exception, and if
# compiled code raises it each time and eager never. Whatever cannot be compared says why, and
# counts as nothing.


# Seconds after which no further call of the same test is compared.
_LONGEST = 60.0
_RANDOM = "it draws random numbers, and compiled code draws others than eager"


def check_calls(
    calls: Sequence[KeptSuiteCall], failure: BaseException | None
) -> tuple[list[CheckedCall], list[SuiteFinding]]:
    """Compare all calls that a test made; `failure` is what the test itself raised, if it did."""
    began = time.monotonic()
    checked: list[CheckedCall] = []
    findings: dict[str, SuiteFinding] = {}
    with _unnoticed():
        for call in calls:
            if time.monotonic() - began > _LONGEST:
                why = f"the checks of this test had already taken {_LONGEST:.0f} s"
                checked.append(_noted(call, NOT_CHECKED, why))
                continue
            said, finding = _checked(call, failure)
            checked.append(said)
            # The first wrong call of a graph says it all.
            if finding is not None:
                findings.setdefault(call.graph.name, finding)
    return checked, list(findings.values())


@contextlib.contextmanager
def _unnoticed() -> Iterator[None]:
    """Keep what the checks print, warn of and count out of the suite."""
    import torch._dynamo.utils as utils

    before = copy.deepcopy(dict(utils.counters))
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        # In place: the suite may hold one of them.
        for name, counter in list(utils.counters.items()):
            counter.clear()
            counter.update(before.get(name, {}))
            if name not in before:
                del utils.counters[name]


def _checked(
    call: KeptSuiteCall, failure: BaseException | None
) -> tuple[CheckedCall, SuiteFinding | None]:
    try:
        with call.situation.entered():
            return _compared(call, failure)
    except Exception as error:
        why = f"inductoscope itself failed: {said_by(error)}"
        return _noted(call, NOT_CHECKED, why), None


def _noted(call: KeptSuiteCall, verdict: str, text: str) -> CheckedCall:
    return CheckedCall(call.graph.name, call.graph.compile_id, call.number, verdict, text)


def _compared(
    call: KeptSuiteCall, failure: BaseException | None
) -> tuple[CheckedCall, SuiteFinding | None]:
    graph = call.graph
    spoilt = call.spoilt or _changed_since(call)
    if spoilt:
        return _noted(call, NOT_CHECKED, spoilt), None
    backward = graph.has_backward and needs_backward(call.inputs)
    case = Case(as_function(graph.module), call.inputs, backward)
    if case.eager_error is not None:
        return _noted(call, NOT_CHECKED, f"eager raises {said_by(case.eager_error)}"), None
    if call.raised:
        return _after_error(call, failure)
    compiled: Any = graph.compiled
    try:
        comparison = judge(case, run(compiled, call.inputs, backward=backward))
        if not comparison.is_right:
            again = judge(case, run(compiled, call.inputs, backward=backward))
            if again.is_right:
                text = f"wrong in one of two calls: {comparison.wrong[0].text}"
                return _noted(call, UNSTEADY, text), None
    except Exception as error:
        why = f"called again after the test, it raised {said_by(error)}"
        return _noted(call, NOT_CHECKED, why), None
    if comparison.is_right:
        return replace(_when_right(call, comparison), with_gradients=backward), None
    if draws_random_numbers(as_function(graph.module), call.inputs):
        return _noted(call, NOT_CHECKED, _RANDOM), None
    return _when_wrong(call, comparison, backward)


def _changed_since(call: KeptSuiteCall) -> str:
    if call.raised or call.graph.versions() == call.versions:
        return ""
    return "the test later wrote to tensors that it holds"


def _when_right(call: KeptSuiteCall, comparison: EagerComparison) -> CheckedCall:
    if not comparison.explained:
        return _noted(call, RIGHT, count_of(comparison.values, "value"))
    texts = "; ".join(item.text for item in comparison.explained[:2])
    if comparison.reason in (UNINITIALISED, UNREPEATABLE):
        return _noted(call, UNSTEADY, f"{comparison.reason}: {texts}")
    return _noted(call, WITHIN_ROUNDING, texts)


def _after_error(
    call: KeptSuiteCall, failure: BaseException | None
) -> tuple[CheckedCall, SuiteFinding | None]:
    """A call that raised in the test, and that eager makes without an exception.

    A test that goes on after the exception wanted it, however the test ends. And what raised it
    may be gone: only if it is still there does eager's return say anything.
    """
    if failure is None or call.raised not in map(said_by, chain_of(failure)):
        return _noted(call, NOT_CHECKED, f"the test expects that it raises {call.raised}"), None
    if not _only_compiled_raises(call):
        why = f"it raised {call.raised} in the test, but not each time after the test"
        return _noted(call, NOT_CHECKED, why), None
    finding = SuiteFinding(
        CRASH,
        f"compiled code raised {call.raised}; eager does not",
        graph=call.graph.name,
        compile=call.graph.compile_id,
        known_by=[
            f"call {call.number} of graph {call.graph.compile_id} raised it in the test, and twice "
            "more after the test, on copies of its inputs; the same graph returned in eager, "
            "before these two calls and after them"
        ],
    )
    return _noted(call, ERROR, finding.summary), finding


def _only_compiled_raises(call: KeptSuiteCall) -> bool:
    """Twice in a row compiled, then in eager: something that takes turns shows, too."""
    compiled: Any = call.graph.compiled
    eager = as_function(call.graph.module)
    return (
        _raised_by(compiled, call) == call.raised
        and _raised_by(compiled, call) == call.raised
        and not _raised_by(eager, call)
    )


def _raised_by(function: Callable[..., Any], call: KeptSuiteCall) -> str:
    try:
        run(function, call.inputs, backward=False)
    except Exception as error:
        return said_by(error)
    return ""


def _when_wrong(
    call: KeptSuiteCall, comparison: EagerComparison, backward: bool
) -> tuple[CheckedCall, SuiteFinding | None]:
    failure = failure_of_comparison(comparison)
    assert failure is not None
    said = replace(_noted(call, WRONG, failure.text), with_gradients=backward)
    graph = call.graph
    finding = SuiteFinding(
        NOT_A_NUMBER if failure.kind == NAN else WRONG_RESULT,
        f"compiled code and eager differ: {failure.text}",
        graph=graph.name,
        compile=graph.compile_id,
        details=list(failure.texts[1:4]),
        known_by=[
            f"after the test, call {call.number} of graph {graph.compile_id} was made again on "
            "copies of its inputs: in eager, in float64, and twice compiled"
        ],
    )
    declared = first_false_declaration(as_function(graph.module), call.inputs)
    if declared is not None:
        finding.verdict, finding.stage, finding.op = NOT_A_BUG, "user", declared.operation
        finding.summary += (
            f". {declared.operation} does not do what it declares, which the compiler relies on"
        )
        finding.details.append(declared.text)
        finding.known_by.append("torch.library.opcheck failed on its actual arguments")
        return said, finding
    place = what_is_wrong(call, backward=backward)
    finding.stage, finding.kernel, finding.source = place.stage, place.kernel, place.source
    finding.ops = list(place.operations)
    finding.op = finding.ops[0] if len(finding.ops) == 1 else ""
    finding.details += [text for text in (place.text,) if text]
    finding.known_by += [how for how in (place.how,) if how]
    return said, finding
