"""Selection of the view that `inductoscope show` prints."""

from __future__ import annotations

from dataclasses import dataclass, replace

from inductoscope.errors import UsageError
from inductoscope.model.entities import Recording
from inductoscope.views.report.sections import print_sections
from inductoscope.views.report.target import Render, View, with_target
from inductoscope.views.report.terminal import Printer


@dataclass(frozen=True)
class ShowSelection:
    """The selection of `inductoscope show`; empty fields select everything."""

    stage: str = ""
    operation: str = ""
    source: str = ""
    kernel: str = ""
    form: str = ""
    compile: str = ""
    runnable: str = ""
    write_to: str = ""


def choose_view(recording: Recording, selection: ShowSelection) -> tuple[View, Render]:
    """Return the data of the selected view, and the function that prints it."""
    _refuse_contradictions(selection)
    return with_target(recording, *_chosen(recording, selection))


def _chosen(recording: Recording, selection: ShowSelection) -> tuple[View, Render]:
    if selection.compile:
        recording = _only(recording, selection.compile)
    if selection.runnable:
        from inductoscope.views.report.runnable import print_runnable, runnable_view

        return runnable_view(recording, selection.runnable, selection.write_to), print_runnable
    if selection == ShowSelection(compile=selection.compile):
        return _overview(recording)
    # These imports load most of the tool, which the overview does not need.
    from inductoscope.views.report import stage_views

    if selection.kernel:
        return stage_views.kernel_view(recording, selection.kernel, selection.form), print_sections
    if selection.stage:
        return stage_views.stage_view(recording, selection.stage), print_sections
    view = stage_views.operations_view(recording, selection.operation, selection.source)
    return view, stage_views.print_operations


def _refuse_contradictions(selection: ShowSelection) -> None:
    views = {
        "--stage": selection.stage,
        "--op": selection.operation,
        "--source": selection.source,
        "--kernel": selection.kernel,
        "--runnable": selection.runnable,
    }
    chosen = [option for option, value in views.items() if value]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} cannot be combined. Choose one.")
    if selection.form and not selection.kernel:
        raise UsageError("--form needs a kernel. Add --kernel NAME.")
    if selection.write_to and not selection.runnable:
        raise UsageError("--to needs a graph to write. Add --runnable GRAPH.")


def _only(recording: Recording, compile_id: str) -> Recording:
    found = tuple(compile_ for compile_ in recording.compiles if compile_.id == compile_id)
    if not found:
        known = ", ".join(dict.fromkeys(compile_.id for compile_ in recording.compiles))
        raise UsageError(f"There is no compile {compile_id}. There are: {known or 'none'}.")
    return replace(recording, compiles=found)


def _overview(recording: Recording) -> tuple[View, Render]:
    from inductoscope.analysis.rules import diagnose
    from inductoscope.views.report.summary import print_compiles, print_summary, summary_view

    def print_overview(printer: Printer, view: View) -> None:
        print_summary(printer, view)
        print_compiles(printer, view)

    return summary_view(recording, diagnose(recording)), print_overview
