"""How a package ran, as data and as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from inductoscope.packages import cpp_library
from inductoscope.packages.findings import PackageFinding
from inductoscope.packages.growth import Growth
from inductoscope.packages.leaking import LeakTrials
from inductoscope.packages.running import RunOutcome
from inductoscope.packages.serving import Serving
from inductoscope.views.report.terminal import BAD, FAINT, GOOD, WARN, Printer
from inductoscope.vocabulary.counting import count_of

View = dict[str, Any]

EXECUTED = (
    "The package's native code was executed, in a child process with limits on time and memory, "
    "because --inputs was given."
)
NOT_LOADED = "The package was not loaded: nothing in it was executed."
_NOT_MEASURED = "not measured"
_MOST_LINES = 8
_STATES = {
    "none": "none: every call gives the same",
    "container": "in the container: results depend on its earlier calls; a new one starts over",
    "process": "in the process: results depend on earlier calls, also of another container",
}


def with_serving(view: View, serving: Serving) -> View:
    """The view of a run with what serving showed."""
    return {
        **view,
        "serving": {
            "threads": serving.threads,
            "calls": serving.calls,
            "not_in_cpp": serving.problem,
            "is_deterministic": serving.is_deterministic,
            "state": serving.state,
            "ways": [asdict(way) for way in serving.ways],
            "growth": [_growth(growth) for growth in serving.growth],
            "growth_in_python": [_growth(growth) for growth in serving.growth_in_python],
            "left_behind": serving.left_behind,
            "streams_different": serving.streams_different,
            "left_by_loading": serving.left_by_loading,
            "still_mapped": serving.still_mapped,
            "growth_measured": serving.growth_measured,
            "leaks": None if serving.trials is None else _trials(serving.trials),
        },
    }


def _growth(growth: Growth) -> View:
    return {**asdict(growth), "per_call": growth.per_call}


def _trials(trials: LeakTrials) -> View:
    operators = trials.operators or {}
    return {
        "problem": trials.problem,
        "stacks_unread": trials.unread,
        "stacks": [asdict(stack) for stack in trials.stacks],
        "operators": {name: [_growth(one) for one in grown] for name, grown in operators.items()},
        "without_operators": None
        if trials.without is None
        else [_growth(one) for one in trials.without],
    }


def with_run(view: View, name: str, run: RunOutcome, findings: Sequence[PackageFinding]) -> View:
    """The view of a package with a run in it."""
    problems = [finding for finding in findings if finding.is_problem]
    verdict = run.outcome if run.outcome != "runs" else ("problems" if problems else "runs")
    return {
        **view,
        "verdict": verdict,
        "summary": _summary(view, verdict, run, problems),
        "executed": bool(run.outputs) or run.step in ("load", "run"),
        "run": _run(name, run),
        "findings": [asdict(finding) for finding in findings],
    }


def with_second_run(view: View, name: str, run: RunOutcome) -> View:
    """The view with the run that had the C++ library of torch loaded before the package."""
    return {**view, "second_run": _run(name, run)}


def _run(name: str, run: RunOutcome) -> View:
    return {
        "model": name,
        "outcome": run.outcome,
        "stage": run.step,
        "message": run.message,
        "signal": run.signal,
        "exit_code": run.exit_code,
        "seconds": run.seconds,
        "inputs": [asdict(item) for item in run.inputs],
        "outputs": [dict(item) for item in run.outputs],
        "broken_guards": [asdict(item) for item in run.broken],
        "output": run.printed[-20_000:],
    }


def _summary(view: View, verdict: str, run: RunOutcome, problems: Sequence[PackageFinding]) -> str:
    name = view["file"].rpartition("/")[2]
    if verdict == "runs":
        return f"{name} runs here: {count_of(len(run.outputs), 'output')}."
    if verdict == "broken guards":
        harmful = [item for item in run.broken if not item.is_harmless]
        count = count_of(len(harmful), "demand")
        return f"{name} is given inputs that break {count} of the package."
    if verdict == "problems":
        return f"{name} runs, but {count_of(len(problems), 'problem')} showed."
    second = view["second_run"]
    after = f"; with {cpp_library.NAME} loaded first it runs" if _runs(second) else ""
    return f"{name} {verdict} {run.where}{after}."


def _runs(second: View | None) -> bool:
    return second is not None and bool(second["outcome"] == "runs")


def print_run(printer: Printer, view: View) -> None:
    """Inputs, outputs, and what was found."""
    run = view["run"]
    printer.line()
    printer.heading(f"Run of {run['model']}")
    for number, item in enumerate(run["inputs"]):
        printer.pair(f"input {number}", _tensor(item) + f", strides {list(item['strides'])}")
    _print_outputs(printer, run)
    if _runs(view["second_run"]):
        printer.line()
        printer.heading(f"Run of {run['model']} with {cpp_library.NAME} loaded first")
        _print_outputs(printer, view["second_run"])
    if view["serving"]:
        _print_serving(printer, view["serving"])
    if view["second_run"]:
        printer.line()
    for finding in view["findings"]:
        style = BAD if finding["is_problem"] else WARN
        printer.line(finding["text"], style=style, indent=2)
        printer.line(f"{finding['confidence']}: {finding['established']}", style=FAINT, indent=4)
    if run["outcome"] in ("dies", "does not end"):
        _print_said(printer, run["output"])
    printer.line()
    printer.line(view["summary"], style=GOOD if view["verdict"] == "runs" else BAD)
    printer.line(EXECUTED if view["executed"] else NOT_LOADED, style=FAINT)


def _print_outputs(printer: Printer, run: View) -> None:
    for number, item in enumerate(run["outputs"]):
        printer.pair(f"output {number}", _tensor(item) + _range(item))


def _print_serving(printer: Printer, serving: View) -> None:
    printer.line()
    printer.heading(f"Served: {serving['calls']} calls, {serving['threads']} threads")
    if serving["not_in_cpp"]:
        printer.line(f"Not called from C++: {serving['not_in_cpp']}.", indent=2, style=WARN)
    if serving["is_deterministic"] is False:
        printer.line(
            "Calls one after another give other results with another seed: it draws random "
            "numbers, so calls from several threads cannot be compared.",
            indent=2,
            style=WARN,
        )
    if serving["state"] in _STATES:
        printer.pair("state", _STATES[serving["state"]])
    for way in serving["ways"]:
        lost = f", {way['unmatched']} of {way['calls']} results differ" if way["unmatched"] else ""
        printer.pair(way["name"], f"{way['outcome']}{lost}: {way['text']}")
    different = serving["streams_different"]
    if different is not None:
        outcome = f"interferes, {different} results differ" if different else "agrees"
        printer.pair("streams", f"{outcome}: calls on several streams of the GPU")
    grown = serving["growth"] or serving["growth_in_python"]
    if not serving["growth_measured"]:
        printer.pair("growth", _NOT_MEASURED)
    elif not grown:
        printer.pair("growth", "none: memory, open files and threads stay level")
    _print_loading(printer, serving)


def _print_loading(printer: Printer, serving: View) -> None:
    """What a program would lose that loads the package for every request."""
    left = serving["left_by_loading"]
    if not left:
        level = "level: a container that is deleted leaves nothing behind"
        printer.pair("loading", _NOT_MEASURED if left is None else level)
        return
    text = f"every load leaves {left:,} bytes in the process, also when it is deleted"
    if serving["still_mapped"]:
        text += ": torch's loader keeps the library loaded"
    printer.pair("loading", f"{text}. Load it once, not for every request")


def _print_said(printer: Printer, text: str) -> None:
    lines = [line for line in text.splitlines() if line.strip() and "frame #" not in line]
    if lines:
        printer.line("what it printed", indent=2)
        printer.code("\n".join(lines[-_MOST_LINES:]), indent=4)


def _tensor(item: View) -> str:
    return f"{item['dtype']} {list(item['sizes'])}, {item['device']}"


def _range(item: View) -> str:
    text = "" if item["least"] is None else f", {item['least']:.6g} to {item['most']:.6g}"
    for key, noun in (("nan", "NaN"), ("infinite", "infinity")):
        text += f", {item[key]} {noun}" if item[key] else ""
    return text
