"""`inductoscope explain`: the meaning of a stage, finding, verdict, stall or view."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from inductoscope.errors import UsageError
from inductoscope.views.explain import (
    STAGES,
    StageEntry,
    find_stage,
    stages_by_symptom,
    topics,
    verdicts_by_symptom,
)
from inductoscope.views.report.terminal import FAINT, Printer
from inductoscope.wording import nearest

View = dict[str, Any]


def explanation_view(words: tuple[str, ...]) -> View:
    """Explain a name; list all names for no words; search symptoms for several words."""
    if not words:
        return _list_view()
    if len(words) == 1:
        return _named_view(words[0])
    joined = "-".join(words).lower()
    if find_stage(joined) is not None:
        return _named_view(joined)
    return _symptom_view(words[1:] if words[0] == "symptom" else words)


def _list_view() -> View:
    entries: dict[str, dict[str, str]] = {}
    for topic in topics():
        entries.setdefault(topic.kind, {})[topic.name] = topic.summary
    return {"kind": "list", "entries": entries}


def _named_view(name: str) -> View:
    """Return all meanings of a name, which may be both a stage and a stall."""
    wanted = name.strip().lower()
    stage = find_stage(wanted)
    meanings = [] if stage is None else [_stage_view(stage)]
    spellings = (wanted, wanted.replace("-", "_"), wanted.replace("_", "-"))
    for topic in topics():
        if topic.kind != "stage" and topic.name in spellings:
            meanings.append(asdict(topic))
    if not meanings:
        raise UsageError(_unknown(wanted))
    return {"kind": "name", "name": wanted, "meanings": meanings}


def _stage_view(stage: StageEntry) -> View:
    flags = [{**asdict(flag), "text": flag.text} for flag in stage.flags]
    return {"kind": "stage", **asdict(stage), "flags": flags}


def _unknown(name: str) -> str:
    aliases = [alias for stage in STAGES for alias in stage.aliases]
    near = nearest(name, dict.fromkeys([*(topic.name for topic in topics()), *aliases]))
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    return f"Nothing is called {name}. {meant}'inductoscope explain' lists all names."


def _symptom_view(words: tuple[str, ...]) -> View:
    found = stages_by_symptom(words)
    if not found:
        raise UsageError(
            f"No stage lists a symptom like '{' '.join(words)}'. Try fewer or other words, or "
            "'inductoscope doctor SCRIPT', which finds the stage itself."
        )
    return {
        "kind": "symptom",
        "words": words,
        "verdicts": [
            {"name": one.name, "summary": one.meaning} for one in verdicts_by_symptom(words)
        ],
        "stages": [
            {"name": stage.name, "summary": stage.summary, "symptoms": shown}
            for stage, shown in found
        ],
    }


# --- text -----------------------------------------------------------------------------------------


def print_explanation(printer: Printer, view: View) -> None:
    prints = {"list": _print_list, "name": _print_named, "symptom": _print_symptom}
    prints[view["kind"]](printer, view)


_TITLES = {
    "stage": "Stages, in the order of the compiler",
    "finding": "Findings",
    "verdict": "Verdicts of the doctor",
    "confidence": "How sure a statement is",
    "view": "Views of the page",
    "stall": "Kinds of stalls",
}


def _print_list(printer: Printer, view: View) -> None:
    for kind, entries in view["entries"].items():
        printer.heading(_TITLES[kind])
        for name, summary in entries.items():
            printer.pair(name, summary, width=22)
        printer.line()
    printer.line(
        "Several words describe a symptom: inductoscope explain wrong gradient", style=FAINT
    )


def _print_symptom(printer: Printer, view: View) -> None:
    for verdict in view["verdicts"]:
        printer.heading(f"{verdict['name']} (verdict of the doctor)")
        printer.line(verdict["summary"])
        printer.line()
    printer.heading(f"'{' '.join(view['words'])}' can come from")
    for stage in view["stages"]:
        printer.pair(stage["name"], stage["summary"], width=18)
        for symptom in stage["symptoms"]:
            printer.line(f"- {symptom}", indent=20)
    printer.line()
    printer.line(
        "'inductoscope explain STAGE' says more. 'inductoscope doctor SCRIPT' finds the stage.",
        style=FAINT,
    )


def _print_named(printer: Printer, view: View) -> None:
    for number, meaning in enumerate(view["meanings"]):
        if number:
            printer.line()
        if meaning["kind"] == "stage":
            _print_stage(printer, meaning)
            continue
        printer.heading(f"{meaning['name']} ({meaning['kind']})")
        printer.line(meaning["summary"])
        for title, told in meaning["parts"].items():
            printer.line()
            printer.line(f"{title}: {told}")


def _print_stage(printer: Printer, stage: View) -> None:
    printer.heading(f"{stage['name']} (stage)")
    printer.line(stage["summary"])
    printer.line()
    printer.line(stage["does"])
    _print_words(printer, "In torch", stage["lives"])
    _print_pairs(printer, "Notions", stage["notions"])
    _print_words(printer, "Look here when", stage["look_here_when"])
    _print_words(printer, "Symptoms it causes", stage["symptoms"])
    _print_pairs(printer, "Symptoms it does not cause", stage["elsewhere"], "→ ")
    flags = [(flag["text"], flag["what"]) for flag in stage["flags"]]
    _print_pairs(printer, "What torch offers", flags)
    _print_pairs(printer, "What inductoscope shows", stage["commands"])


def _print_words(printer: Printer, title: str, lines: list[str]) -> None:
    if lines:
        printer.line()
        printer.heading(title)
        for line in lines:
            printer.line(line, indent=2)


def _print_pairs(printer: Printer, title: str, pairs: list[Any], mark: str = "") -> None:
    """Print names with their meanings: short names beside them, long ones above."""
    if not pairs:
        return
    printer.line()
    printer.heading(title)
    width = max(len(name) for name, _ in pairs) + 2
    for name, told in pairs:
        if width <= 30:
            printer.pair(name, f"{mark}{told}", width=width)
        else:
            printer.line(name, indent=2)
            printer.line(f"{mark}{told}", indent=6)
