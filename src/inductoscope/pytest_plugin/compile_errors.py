"""A test that fails because Inductor raised an exception while it compiled."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from inductoscope.analysis.rules.compile_error import check
from inductoscope.model.fold import load
from inductoscope.pytest_plugin.results import SuiteFinding
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.verdicts import COMPILE_ERROR, CRASH

TORCH_NAMES = {
    "torch._dynamo.exc": ("BackendCompilerFailed",),
    "torch._inductor.exc": ("InductorError",),
}

_NATIVE = (stages.CPP_COMPILE, stages.TRITON_COMPILE)


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


def finding_of_exception(error: BaseException, recording: str) -> SuiteFinding:
    """What the recording of the test says about it; what the exception says, if that is all."""
    said = f"{type(error).__name__}: {error}".partition("\n")[0][:400]
    finding = SuiteFinding(
        CRASH,
        f"Inductor failed to compile a graph: {said}",
        known_by=["the test failed with this exception, or while it handled it"],
    )
    recorded = [one for one in check(load(Path(recording))) if one.is_problem] if recording else []
    if not recorded:
        return finding
    # The last one: what was raised before did not end the test.
    last = recorded[-1]
    finding.verdict = COMPILE_ERROR if last.stage in _NATIVE else CRASH
    finding.summary, finding.stage, finding.source = last.title, last.stage, last.source
    finding.compile = last.compile
    finding.known_by += list(last.evidence)
    return finding
