"""The verdict on a terminal."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

from inductoscope import verdicts as v
from inductoscope.doctor.verdict import read_verdict
from inductoscope.model.entities import Recording
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


def print_verdict(printer: Printer, view: dict[str, Any], *, can_resume: bool = False) -> None:
    """Print a verdict object."""
    printer.line()
    style = _STYLES.get(view["verdict"], BAD)
    printer.line(f"{view['verdict']}: {view['summary']}", style=style)
    if view["partial"]:
        printer.line("The examination is not complete. This is what is known so far.", style=WARN)
        if can_resume:
            printer.line("To go on:")
            printer.code(f"inductoscope doctor --resume {quote(view['recording'])}", indent=2)
    printer.line()
    printer.pair("stage", view["stage"])
    for name, value in view["culprit"].items():
        if value:
            printer.pair(name, str(value))
    printer.pair("confidence", view["confidence"])
    print_trail(printer, view["trail"])
    _print_evidence(printer, view)
    _print_not_checked(printer, view)
    _print_notes(printer, view)
    _print_repro(printer, view)
    _print_workaround(printer, view)
    printer.line()
    if view["issue"]:
        printer.pair("bug report", view["issue"])
    printer.pair("recording", view["recording"])
    if view["output"]:
        printer.pair("it printed", view["output"])
    printer.pair("took", f"{view['seconds']:.0f} s, {count_of(view['runs'], 'run')}")


def _print_evidence(printer: Printer, view: dict[str, Any]) -> None:
    if not view["evidence"]:
        return
    printer.line()
    printer.heading("Evidence")
    for item in view["evidence"]:
        printer.line(f"- {item['what']}", indent=2)
        if item["where"]:
            printer.line(item["where"], indent=4, style=FAINT)


def _print_not_checked(printer: Printer, view: dict[str, Any]) -> None:
    if not view["not_checked"]:
        return
    printer.line()
    printer.heading("Not checked")
    for text in view["not_checked"]:
        printer.line(f"- {text}", indent=2)


# All are in the JSON.
_MOST_NOTES = 6


def _print_notes(printer: Printer, view: dict[str, Any]) -> None:
    alike: dict[tuple[str, str], list[str]] = {}
    for note in view["notes"]:
        alike.setdefault((note["compile"], note["aspect"]), []).append(note["text"])
    if not alike:
        return
    printer.line()
    printer.heading("Notes: differences from eager that are not failures")
    for (compile_id, _), texts in list(alike.items())[:_MOST_NOTES]:
        count = len(texts) - 1
        more = f"; {count_of(count, 'more result')} like it" if count else ""
        printer.line(f"- {texts[0]} (compile {compile_id}{more})", indent=2)
    if len(alike) > _MOST_NOTES:
        printer.line(f"and {len(alike) - _MOST_NOTES} more", indent=2, style=FAINT)


def _print_repro(printer: Printer, view: dict[str, Any]) -> None:
    repro = view["repro"]
    if repro is None:
        return
    printer.line()
    printer.heading("Reproducer")
    state = "verified" if repro["verified"] else "NOT verified"
    printer.line(
        f"{repro['path']}: {state}, failed {repro['failed']} of {repro['of']} runs in fresh "
        f"processes; {count_of(repro['nodes'], 'graph node')}",
        indent=2,
        style=GOOD if repro["verified"] else WARN,
    )


def _saving(workaround: dict[str, Any]) -> str:
    """What it saved in a slow program, beside what was predicted."""
    saved, predicted = workaround.get("saved"), workaround.get("predicted")
    if saved is None or saved <= 0:
        return ""
    text = f"; saves {seconds_text(saved)}"
    return text if predicted is None else f"{text}, predicted {seconds_text(predicted)}"


def _print_workaround(printer: Printer, view: dict[str, Any]) -> None:
    found = view["workaround"]
    if found is None:
        return
    printer.line()
    printer.heading("Workaround")
    works = "measured" if view["verdict"] == v.SLOW else "the program is correct with it"
    state = works if found["verified"] else "did not help the program"
    cost = (
        f"; the compiled call takes {found['slowdown']:.2f} times as long"
        if found["slowdown"]
        else ""
    )
    printer.line(f"{found['text']} ({state}{cost}{_saving(found)})", indent=2)
    if found["verified"]:
        printer.code(found["code"], indent=4)


# --- What the doctor concluded about a recorded program, in a few lines ---------------------------

View = dict[str, Any]


def stored_verdict_view(recording: Recording) -> View | None:
    """The main fields; None if the doctor did not examine this program."""
    found = read_verdict(Path(recording.path))
    if found is None:
        return None
    names = ("verdict", "stage", "confidence", "summary", "partial", "trail")
    data = found.as_data()
    return {name: data[name] for name in names}


def print_stored_verdict(printer: Printer, verdict: View, folder: str) -> None:
    """What the doctor said comes first: it is what the recording was made for."""
    so_far = " (so far: the examination is not complete)" if verdict["partial"] else ""
    printer.heading(f"doctor: {verdict['verdict']}{so_far}")
    printer.line(verdict["summary"], indent=2)
    print_trail(printer, verdict["trail"])
    how = "go on" if verdict["partial"] else "evidence"
    printer.pair(how, f"inductoscope doctor --resume {quote(folder)}")


# --- From the fault back to the kernel that is to blame, as text ----------------------------------

TrailView = dict[str, Any]

# Of a long way, so many steps at each end.
_MOST_AT_EACH_END = 6


def print_trail(printer: Printer, trail: TrailView | None) -> None:
    """One step after the other, the one that is to blame last; nothing without steps."""
    if not trail or not trail["steps"]:
        return
    printer.line()
    printer.heading(f"Trail: from the fault back to its cause, in {trail['graph']}")
    printer.line(trail["fault"], indent=2)
    if not trail["reaches_fault"]:
        printer.line("← (how it gets there is not known)", indent=2, style=FAINT)
    steps = trail["steps"]
    left_out = len(steps) - 2 * _MOST_AT_EACH_END
    for number, step in enumerate(steps):
        if left_out > 0 and _MOST_AT_EACH_END <= number < _MOST_AT_EACH_END + left_out:
            if number == _MOST_AT_EACH_END:
                printer.line(f"← {left_out} more", indent=2, style=FAINT)
            continue
        for buffer in step["buffers"]:
            printer.line(f"← {buffer_text(buffer)}", indent=2)
        is_last = number == len(steps) - 1
        call = f", call {step['call']} of {trail['calls']}" if step["call"] else ""
        printer.line(f"← kernel {step['kernel']}{call}", indent=2, style=BAD if is_last else "")
    _print_cause(printer, trail)


def buffer_text(buffer: TrailView) -> str:
    """A buffer, with the operation and the line that it comes from."""
    about = ", ".join(word for word in (buffer["operation"], buffer["source"]) if word)
    return f"{buffer['name']} ({about})" if about else str(buffer["name"])


def _print_cause(printer: Printer, trail: TrailView) -> None:
    last = trail["steps"][-1]
    if last["buffers"]:
        printer.line(f"here it goes wrong: {trail['wrong']}", indent=4)
    reads = [buffer_text(buffer) for buffer in last["reads"]]
    if reads:
        printer.line(f"it reads {', '.join(reads)}", indent=4)
    if trail["how"]:
        printer.line(trail["how"], indent=4, style=FAINT)
