"""The Python API. Everything public is re-exported from the package itself."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inductoscope.analysis.rules import diagnose
from inductoscope.analysis.rules.finding import Finding
from inductoscope.doctor.alarm import Alarm, read_alarms
from inductoscope.doctor.instructions import FOLDER
from inductoscope.doctor.sentinel_options import SentinelOptions
from inductoscope.inside.sentinel.sentinel_agent import log_alarm, sentinel_hooks
from inductoscope.inside.start import recorded
from inductoscope.model.entities import Recording
from inductoscope.model.fold import load
from inductoscope.torch_facts.torch_names import Hook
from inductoscope.views.report.show import ShowSelection, choose_view
from inductoscope.views.report.terminal import Printer

if TYPE_CHECKING:
    from inductoscope.inside.compare.bug_or_rounding import EagerComparison


class LiveRecording:
    """A recording that `record` is making or has made.

    It can be read at any time, and contains what has been recorded so far.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def model(self) -> Recording:
        """The model of the recording so far, as frozen dataclasses."""
        return load(self.path)

    @property
    def findings(self) -> list[Finding]:
        """The findings: problems, and facts worth knowing."""
        return diagnose(self.model)

    def text(self, *, stage: str = "", op: str = "", source: str = "", kernel: str = "") -> str:
        """Return the text of `inductoscope show`, for the summary or for one selection."""
        selection = ShowSelection(stage=stage, operation=op, source=source, kernel=kernel)
        view, render = choose_view(self.model, selection)
        page = io.StringIO()
        render(Printer(page, is_terminal=False), view)
        return page.getvalue()

    def show(self, *, stage: str = "", op: str = "", source: str = "", kernel: str = "") -> None:
        """Print what `text` returns."""
        print(self.text(stage=stage, op=op, source=source, kernel=kernel))

    def __repr__(self) -> str:
        # A notebook shows this for the last value of a cell.
        return self.text()


@contextlib.contextmanager
def record(*, output: Path | str | None = None, fresh: bool = False) -> Iterator[LiveRecording]:
    """Record what this process compiles inside the block.

        with inductoscope.record() as recording:
            torch.compile(model)(x)
        recording.show(op="relu")

    `fresh` compiles in a private cache, so that every stage runs. Functions that were compiled
    before the block are not compiled again: call `torch._dynamo.reset()` first.
    """
    with recorded(output=None if output is None else Path(output), fresh=fresh) as folder:
        yield LiveRecording(folder)


class LiveSentinel(LiveRecording):
    """A run that `sentinel` watches or has watched."""

    @property
    def alarms(self) -> list[Alarm]:
        """The values of compiled graphs with a biased error, oldest first."""
        return [alarm for _, alarm in read_alarms(self.path / FOLDER)]


@contextlib.contextmanager
def sentinel(*, overhead: float = 0.05, output: Path | str | None = None) -> Iterator[LiveSentinel]:
    """Test what this process compiles inside the block for a bias, for as long as it runs.

        with inductoscope.sentinel() as watch:
            train()
        print(watch.alarms)

    Calls of compiled graphs, chosen at random, are also made in eager and float64, forward and
    backward; `overhead` is the share of the program's time that this may add. Results and random
    numbers stay as they are. An alarm is logged, and keeps the call for `doctor --kept`.
    """
    options = SentinelOptions(overhead)

    def hooks(folder: Path) -> tuple[Hook, ...]:
        place = folder / FOLDER
        place.mkdir(exist_ok=True)
        return sentinel_hooks(options, place, log_alarm)

    folder = None if output is None else Path(output)
    with recorded(output=folder, fresh=False, more_hooks=hooks) as path:
        yield LiveSentinel(path)


def open_recording(path: Path | str) -> LiveRecording:
    """Open a recording made earlier by `record` or by `inductoscope run`."""
    return LiveRecording(Path(path))


def check(function: Callable[..., Any], *arguments: Any, **options: Any) -> EagerComparison:
    """Compile `function` and check whether it matches eager on `arguments`.

        result = inductoscope.check(model, x)
        if not result:
            print(result)

    Outputs, gradients, written inputs, types, shapes, strides and shared memory are compared, and
    values are judged against float64. Options: `compiled` (a compiled function to judge instead),
    `backward` (whether to compare gradients), and those of `torch.compile`.
    """
    from inductoscope.inside.compare import beside_eager as checking  # Needs torch.

    return checking.check(function, *arguments, **options)


def assert_same(function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """Raise an AssertionError that says what differs; for tests. Same arguments as `check`."""
    from inductoscope.inside.compare import beside_eager as checking

    checking.assert_same(function, *arguments, **options)
