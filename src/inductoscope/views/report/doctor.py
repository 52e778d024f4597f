"""The verdict on a terminal."""

from __future__ import annotations

from shlex import quote
from typing import Any

from inductoscope.views.report.terminal import BAD, FAINT, GOOD, WARN, Printer
from inductoscope.views.report.times import seconds_text
from inductoscope.views.report.trail import print_trail
from inductoscope.vocabulary import verdicts as v
from inductoscope.vocabulary.counting import count_of

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
