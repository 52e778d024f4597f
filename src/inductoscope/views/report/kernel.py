"""Views of a kernel: its file, its compile in isolation, and the values in its buffers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from inductoscope.kernels.alone import WORST_FIRST, Attempt, KernelTrial
from inductoscope.recording.kernel_values import FOLDER, INDEX, KernelValue
from inductoscope.torch_facts.triton_kernels import Dotted, KernelFile, Made, Opaque
from inductoscope.views.report.terminal import BAD, FAINT, GOOD, HEADING, WARN, Printer
from inductoscope.wording import count_of

View = dict[str, Any]

NO_GPU = "Compiled only: nothing ran on a GPU."
_VERDICTS = {
    "compiles": "compiles alone",
    "does not end": "does not end alone",
    "fails": "fails alone",
}


def file_view(kernel: KernelFile) -> View:
    return {
        "file": kernel.path,
        "kernel": kernel.name,
        "heuristic": kernel.heuristic,
        "generated_for": None if kernel.target is None else str(kernel.target),
        "device": _plain(kernel.device),
        "size_hints": _plain(kernel.size_hints),
        "configuration": _plain(kernel.configuration),
        "configs": _plain(kernel.configs),
        "signature": dict(kernel.signature),
        "constants": _plain(kernel.constants),
        "options": _plain(kernel.options),
        "device_functions": [definition.name for definition in kernel.device_functions],
        "inductor_meta": _plain(kernel.inductor_meta),
        "problems": list(kernel.problems),
        "source": kernel.source,
    }


def _plain(value: Any) -> Any:
    """Convert values from the file to JSON types."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_plain(item) for item in value]
    if isinstance(value, (Dotted, Made, Opaque)):
        return str(value)
    if isinstance(value, float) and value - value != 0:  # JSON has no infinity.
        return str(value)
    return value


def kernel_view(kernel: KernelFile, trials: Sequence[KernelTrial]) -> View:
    worst = min(trials, key=lambda trial: WORST_FIRST.index(trial.outcome))
    return {
        **file_view(kernel),
        "target": str(worst.plan.target),
        "triton": worst.attempts[0].triton,
        "verdict": _VERDICTS[worst.outcome],
        "confidence": "proven",
        "ran_on_gpu": False,
        "summary": _summary(trials, worst),
        "trials": [_trial(trial) for trial in trials],
    }


def _trial(trial: KernelTrial) -> View:
    return {
        "config": _plain(trial.plan.config.values),
        "config_from": trial.plan.config.origin,
        "compile_options": _plain(trial.plan.options),
        "compile_constants": _plain(trial.plan.constants),
        "outcome": trial.outcome,
        "time_limit": trial.limits.seconds,
        "attempts": [_attempt(attempt) for attempt in trial.attempts],
        "files": {form: str(path) for form, path in trial.files.items()},
    }


def _attempt(attempt: Attempt) -> View:
    fields = asdict(attempt)
    del fields["triton"]
    return {**fields, "unfinished_stage": attempt.unfinished}


def _summary(trials: Sequence[KernelTrial], worst: KernelTrial) -> str:
    name, target = worst.plan.kernel.name, worst.plan.target
    tries = [attempt for trial in trials for attempt in trial.attempts]
    same = [attempt for attempt in tries if attempt.outcome == worst.outcome]
    count = f", {len(same)} of {len(tries)} times" if len(tries) > 1 else ""
    if worst.outcome == "compiles":
        slowest = max(attempt.seconds for attempt in tries)
        most = "at most " if len(tries) > 1 else ""
        done = f"{name} compiles alone for {target} in {most}{slowest:.2f} s{count}"
        return f"{done} ({_consequence(worst)})"
    if worst.outcome == "does not end":
        limit = f"{worst.limits.seconds:g} s"
        return (
            f"{name} alone does not finish compiling within {limit}{count}: {_stuck(worst.worst)}"
        )
    place = f" in stage {worst.worst.unfinished}" if worst.worst.unfinished else ""
    return f"{name} fails alone for {target}{place}{count}: {_essence(worst.worst.message)}"


def _consequence(trial: KernelTrial) -> str:
    """State the consequence for a hang: none, unless target and configuration match."""
    own, config = trial.plan.kernel.target, trial.plan.config
    if own is not None and str(own) != str(trial.plan.target):
        return f"the kernel was generated for {own}, which this did not test"
    if not config.is_own:
        return "this did not test any of its own configurations"
    return f"so with Triton {trial.attempts[0].triton} the hang is elsewhere"


def _essence(message: str) -> str:
    """Return the informative line of an error: Triton puts its reason after the quoted code."""
    lines = [line.strip() for line in message.splitlines() if line.strip()] or ["no message"]
    kind, _, rest = lines[0].partition(": ")
    return f"{kind}: {lines[-1]}" if re.fullmatch(r"at \d+:\d+:", rest) else lines[0]


def _stuck(attempt: Attempt) -> str:
    stage = f"stage {attempt.unfinished or 'unknown'}"
    if attempt.waits_for is not None:
        return f"{stage} (child {attempt.waits_for.tool}, {attempt.waits_for.state})"
    if attempt.itself is not None:
        return f"{stage} (no child; the compiler itself, {attempt.itself.state})"
    return stage


# --- terminal -------------------------------------------------------------------------------------


def print_source(kernel: KernelFile, printer: Printer, view: View) -> None:
    _print_file(printer, view)
    printer.line("Not compiled: --show source only reads the file.")
    _print_shown(printer, "source", "\n\n".join(d.source for d in kernel.definitions))


def _print_file(printer: Printer, view: View) -> None:
    printer.heading(f"{view['kernel']} ({view['heuristic']})")
    printer.pair("file", view["file"])
    printer.pair("made for", view["generated_for"] or "not in the file")
    for name, key in (("size hints", "size_hints"), ("in the file", "configuration")):
        if view[key]:
            printer.pair(name, _words(view[key]))
    for config in view["configs"]:
        printer.pair("config", _words(config))
    printer.pair("signature", _words(view["signature"]))
    printer.pairs({"functions": ", ".join(view["device_functions"])})
    for problem in view["problems"]:
        printer.pair("note", problem)


def print_kernel(printer: Printer, view: View) -> None:
    """Print the compile of a kernel, and the form of it that was asked for."""
    _print_file(printer, view)
    printer.pair("target", f"{view['target']}, Triton {view['triton']}")
    trials = view["trials"]
    if len(trials) == 1:
        _print_trial(printer, trials[0])
    else:
        _print_table(printer, trials)
    printer.line()
    printer.line(view["summary"], style=GOOD if view["verdict"] == "compiles alone" else BAD)
    _print_advice(printer, trials)
    printer.line(f"{view['confidence']} by the compile itself. {NO_GPU}", style=FAINT)
    if "shown" in view:
        form, text = view["shown"]["form"], view["shown"]["text"]
        _print_shown(printer, form, text or f"This kernel has no {form} for {view['target']}.")


def _print_trial(printer: Printer, trial: View) -> None:
    printer.pair("configuration", f"{_words(trial['config'])} (from {trial['config_from']})")
    for number, attempt in enumerate(trial["attempts"], start=1):
        if len(trial["attempts"]) > 1:
            printer.line(
                f"try {number}: {attempt['outcome']}, {attempt['seconds']:.2f} s", indent=2
            )
        printer.pair("stages", _stage_words(attempt))
        _print_end(printer, attempt)
    for form, path in trial["files"].items():
        printer.pair(form, path)


def _print_end(printer: Printer, attempt: View) -> None:
    if attempt["outcome"] == "compiles":
        printer.pair("takes", _resource_words(attempt["resources"]))
    for name, title in (("waits_for", "child"), ("itself", "compiler")):
        process = attempt[name]
        if process is not None:
            state = "spinning" if process["busy"] >= 0.2 else "sleeping"
            tool = process["tool"] if name == "waits_for" else "python"
            printer.pair(
                title,
                f"{tool} (pid {process['pid']}), {state}: {process['busy']:.0%} of one core, "
                f"{process['resident_mib']} MiB",
            )
    if attempt["message"]:
        printer.line("output", indent=2)
        printer.code("\n".join(attempt["message"].splitlines()[-30:]), indent=4)


def _print_table(printer: Printer, trials: Sequence[View]) -> None:
    same = set.intersection(*({*_words_of(trial["config"])} for trial in trials))
    shared = [word for word in _words_of(trials[0]["config"]) if word in same]
    printer.line()
    printer.line(f"configurations from {trials[0]['config_from']}", indent=2)
    if shared:
        printer.line(f"in all of them: {', '.join(shared)}", indent=2)
    printer.line("seconds   regs   spills   shared  configuration", indent=2, style=FAINT)
    for trial in trials:
        attempt = trial["attempts"][-1]
        taken = attempt["resources"]
        numbers = f"{attempt['seconds']:7.2f}  {_or_dash(taken['registers']):>5}"
        numbers += f"  {_or_dash(taken['spills']):>7}  {_or_dash(taken['shared']):>7}  "
        outcome = "" if trial["outcome"] == "compiles" else f" — {trial['outcome']}"
        words = [word for word in _words_of(trial["config"]) if word not in same]
        _print_row(printer, numbers, f"{', '.join(words)}{outcome}")


def _print_row(printer: Printer, numbers: str, text: str) -> None:
    # Not a pair: the columns must keep their spaces.
    if len(numbers) + len(text) + 2 <= printer.width:
        printer.code(numbers + text)
    else:
        printer.code(numbers.rstrip())
        printer.line(text, indent=10)


def _words_of(values: Mapping[str, Any]) -> list[str]:
    return [f"{name}={value}" for name, value in values.items()]


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def _print_advice(printer: Printer, trials: Sequence[View]) -> None:
    stuck = [a for t in trials for a in t["attempts"] if a["outcome"] == "does not end"]
    for attempt in stuck[:1]:
        process = attempt["waits_for"] or attempt["itself"]
        if process is not None and process["busy"] >= 0.2:
            text = "It was still computing when it was stopped, so it may just be slow: "
            printer.line(f"{text}try a larger --timeout.", style=WARN)
        elif process is not None:
            printer.line("It was not computing when it was stopped: it was waiting.", style=WARN)


def _stage_words(attempt: View) -> str:
    return ", ".join(
        f"{stage['name']} {stage['seconds']:.2f}"
        if stage["seconds"] is not None
        else f"{stage['name']} {'FAILED' if attempt['message'] else 'NOT ENDED'}"
        for stage in attempt["stages"]
    )


def _resource_words(taken: View) -> str:
    parts = {
        "registers": taken["registers"],
        "scalar registers": taken["scalar_registers"],
        f"spills ({taken['spill_unit']})": taken["spills"],
        "shared memory (bytes)": taken["shared"],
        "local memory (bytes)": taken["local"],
    }
    words = [f"{name} {value}" for name, value in parts.items() if value is not None]
    return ", ".join(words) or "unknown"


def _words(values: Mapping[str, Any]) -> str:
    return ", ".join(_words_of(values)) or "nothing"


def _print_shown(printer: Printer, form: str, text: str) -> None:
    printer.line()
    printer.heading(form)
    printer.code(text, indent=0)


def shown_text(view: View, form: str) -> str:
    """Read the text of a form from the files of the first trial."""
    path = view["trials"][0]["files"].get(form)
    return Path(path).read_text("utf-8", "replace") if path else ""


# --- The saved values of kernel buffers -----------------------------------------------------------

_MOST_LINES = 24


def print_values(
    printer: Printer, folder: Path, kernels: str, values: Sequence[KernelValue]
) -> None:
    """Print a line for each buffer, and the path of the saved numbers."""
    printer.line()
    if not values:
        printer.line(f"No kernel that was called has a name like {kernels!r}.", style=WARN)
        printer.line("'inductoscope show RECORDING' lists the names of all kernels.", indent=2)
        return
    printer.line(f"Values after each kernel: {count_of(len(values), 'buffer')}", style=HEADING)
    kernel = ""
    for value in values[:_MOST_LINES]:
        if (call := f"{value.kernel}, call {value.call}") != kernel:
            kernel = call
            printer.line(kernel, indent=2)
        printer.line(_line(value), indent=4, style=WARN if value.nan or value.infinite else "")
    if len(values) > _MOST_LINES:
        printer.line(f"{len(values) - _MOST_LINES} more", indent=2, style=FAINT)
    first = next((value.file for value in values if value.file), "")
    # Paths are printed unbroken, so that they can be copied.
    printer.code(f"All of them: {folder / FOLDER / INDEX}", style=FAINT)
    if first:
        printer.code(f"To read one: torch.load({str(folder / first)!r})", style=FAINT)


def _line(value: KernelValue) -> str:
    shape = "x".join(map(str, value.shape)) or "scalar"
    parts = [f"{value.buffer:10} {value.dtype.removeprefix('torch.')} {shape}"]
    if value.why_not:
        parts.append(f"not saved: {value.why_not}")
    if value.smallest is not None and value.largest is not None and value.mean is not None:
        parts.append(f"{value.smallest:.4g} to {value.largest:.4g}, mean {value.mean:.4g}")
    if value.nan:
        parts.append(f"{value.nan} NaN")
    if value.infinite:
        parts.append(f"{value.infinite} infinite")
    return ", ".join(parts)
