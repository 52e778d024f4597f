"""The doctor's verdict on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from shlex import quote
from typing import Any

from inductoscope import verdicts as v
from inductoscope.doctor.verdict import Verdict, read_verdict
from inductoscope.model.entities import Recording
from inductoscope.model.fault_trail import FaultTrail, TrailBuffer
from inductoscope.views.report.terminal import BAD, FAINT, GOOD, WARN, Printer
from inductoscope.views.report.times import seconds_text
from inductoscope.wording import count_of

_STYLES = {
    v.CLEAN: GOOD,
    v.NOT_CHECKED: WARN,
    v.NOT_A_BUG: WARN,
    v.NOT_INDUCTOR: WARN,
    v.UNKNOWN: WARN,
}
# A line with its indentation and style.
Line = tuple[str, int, str]


def print_verdict(printer: Printer, verdict: Verdict, *, can_resume: bool = False) -> None:
    """Print a verdict, section by section; skip empty sections."""
    printer.line()
    style = _STYLES.get(verdict.verdict, BAD)
    printer.line(f"{verdict.verdict}: {verdict.summary}", style=style)
    if verdict.partial:
        printer.line("The examination is not complete. This is what is known so far.", style=WARN)
        if can_resume:
            printer.line("To go on:")
            printer.code(f"inductoscope doctor --resume {quote(verdict.recording)}", indent=2)
    printer.line()
    culprit = {name.rstrip("_"): value for name, value in vars(verdict.culprit).items()}
    left = verdict.reduction
    if left is not None and left.kernel and not culprit["kernel"]:
        culprit["kernel"] = f"{left.kernel} (of the reproducer)"
    printer.pairs({"stage": verdict.stage, **culprit, "confidence": verdict.confidence})
    print_trail(printer, verdict.trail)
    _print_section(printer, "Evidence", _evidence(verdict))
    gaps = ((f"- {text}", 2, "") for text in verdict.not_checked)
    _print_section(printer, "Not checked", gaps)
    _print_section(printer, "Notes: differences from eager that are not failures", _notes(verdict))
    _print_section(printer, "Reproducer", _reproducer(verdict))
    _print_section(printer, "Workaround", _workaround(verdict))
    if verdict.workaround is not None and verdict.workaround.verified:
        printer.code(verdict.workaround.code, indent=4)
    printer.line()
    printer.pairs(
        {
            "bug report": verdict.issue,
            "recording": verdict.recording,
            "it printed": verdict.output,
            "took": f"{verdict.seconds:.0f} s, {count_of(verdict.runs, 'run')}",
        }
    )


def _print_section(printer: Printer, heading: str, lines: Iterable[Line]) -> None:
    for number, (text, indent, style) in enumerate(lines):
        if not number:
            printer.line()
            printer.heading(heading)
        printer.line(text, indent=indent, style=style)


def _evidence(verdict: Verdict) -> Iterator[Line]:
    for item in verdict.evidence:
        yield f"- {item['what']}", 2, ""
        if item["where"]:
            yield item["where"], 4, FAINT


# The JSON has all notes.
_MOST_NOTES = 6


def _notes(verdict: Verdict) -> Iterator[Line]:
    alike: dict[tuple[str, str, str], list[str]] = {}
    for note in verdict.notes:
        kind = (note.compile, note.aspect, note.compile or note.text)
        alike.setdefault(kind, []).append(note.text)
    for (compile_id, *_), texts in list(alike.items())[:_MOST_NOTES]:
        count = len(texts) - 1
        more = f"{count_of(count, 'more result')} like it" if count else ""
        where = "; ".join(filter(None, (compile_id and f"compile {compile_id}", more)))
        yield f"- {texts[0]} ({where})" if where else f"- {texts[0]}", 2, ""
    if len(alike) > _MOST_NOTES:
        yield f"and {len(alike) - _MOST_NOTES} more", 2, FAINT


def _reproducer(verdict: Verdict) -> Iterator[Line]:
    repro = verdict.repro
    if repro is not None:
        state = "verified" if repro.verified else "NOT verified"
        times = f"failed {repro.failed} of {repro.of} runs in fresh processes"
        text = f"{repro.path}: {state}, {times}; {count_of(repro.nodes, 'graph node')}"
        yield text, 2, GOOD if repro.verified else WARN


def _workaround(verdict: Verdict) -> Iterator[Line]:
    found = verdict.workaround
    if found is None:
        return
    works = "measured" if verdict.verdict == v.SLOW else "the program is correct with it"
    said = [works if found.verified else "did not help the program"]
    if found.slowdown:
        said.append(f"the compiled call takes {found.slowdown:.2f} times as long")
    if found.saved is not None and found.saved > 0:
        predicted = found.predicted
        beside = "" if predicted is None else f", predicted {seconds_text(predicted)}"
        said.append(f"saves {seconds_text(found.saved)}{beside}")
    yield f"{found.text} ({'; '.join(said)})", 2, ""


# --- the short form, in the summary of a recording ------------------------------------------------


def stored_verdict_view(recording: Recording) -> dict[str, Any] | None:
    """Return the main fields of the stored verdict; None if the doctor did not run."""
    found = read_verdict(Path(recording.path))
    if found is None:
        return None
    names = ("verdict", "stage", "confidence", "summary", "partial", "trail")
    data = found.as_data()
    return {name: data[name] for name in names}


def print_stored_verdict(printer: Printer, folder: str) -> None:
    """Print the stored verdict, which precedes the summary of a doctor's recording."""
    verdict = read_verdict(Path(folder))
    if verdict is None:
        return
    so_far = " (so far: the examination is not complete)" if verdict.partial else ""
    printer.heading(f"doctor: {verdict.verdict}{so_far}")
    printer.line(verdict.summary, indent=2)
    print_trail(printer, verdict.trail)
    how = "go on" if verdict.partial else "evidence"
    printer.pair(how, f"inductoscope doctor --resume {quote(folder)}")


# --- the trail from the fault back to the culprit kernel ------------------------------------------

# The number of steps shown at each end of a long trail.
_MOST_AT_EACH_END = 6


def print_trail(printer: Printer, trail: FaultTrail | None) -> None:
    """Print the fault trail, the culprit last; nothing without steps."""
    if trail is not None and trail.steps:
        heading = f"Trail: from the fault back to its cause, in {trail.graph}"
        _print_section(printer, heading, _trail(trail))


def _trail(trail: FaultTrail) -> Iterator[Line]:
    yield trail.fault, 2, ""
    if not trail.reaches_fault:
        yield "← (how it gets there is not known)", 2, FAINT
    left_out = range(_MOST_AT_EACH_END, len(trail.steps) - _MOST_AT_EACH_END)
    for number, step in enumerate(trail.steps):
        if number in left_out:
            if number == left_out[0]:
                yield f"← {len(left_out)} more", 2, FAINT
            continue
        for buffer in step.buffers:
            yield f"← {_buffer_text(buffer)}", 2, ""
        call = f", call {step.call} of {trail.calls}" if step.call else ""
        is_last = step is trail.steps[-1]
        yield f"← kernel {step.kernel}{call}", 2, BAD if is_last else ""
    last = trail.steps[-1]
    if last.buffers:
        yield f"here it goes wrong: {trail.wrong}", 4, ""
    if last.reads:
        yield f"it reads {', '.join(map(_buffer_text, last.reads))}", 4, ""
    if trail.how:
        yield trail.how, 4, FAINT


def _buffer_text(buffer: TrailBuffer) -> str:
    about = ", ".join(word for word in (buffer.operation, buffer.source) if word)
    return f"{buffer.name} ({about})" if about else buffer.name
