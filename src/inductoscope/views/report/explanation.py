"""`inductoscope explain`: the meaning of a stage, finding, verdict, stall or view.

`views.explain` has the texts of stages, verdicts and views. For findings and stalls, the docstrings
of their rules are the explanation.
"""

from __future__ import annotations

import inspect
from dataclasses import asdict
from typing import Any

from inductoscope.analysis.rules import RULES
from inductoscope.errors import UsageError
from inductoscope.hangs.watch.kinds import KINDS
from inductoscope.views.explain import (
    CONFIDENCES,
    STAGES,
    VERDICTS,
    VIEWS,
    StageEntry,
    find_stage,
    stages_by_symptom,
    verdicts_by_symptom,
)
from inductoscope.views.report.terminal import FAINT, Printer
from inductoscope.wording import nearest

SCHEMA = 1
View = dict[str, Any]


# --- topics ---------------------------------------------------------------------------------------


def _findings() -> dict[str, View]:
    """Return the rules by name, with the paragraphs of their docstrings."""
    return {rule.__name__: _finding(rule) for rule in RULES}


def _finding(rule: Any) -> View:
    text = inspect.getdoc(rule) or ""
    head, *paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
    parts = [part.partition(": ") for part in paragraphs]
    return {"summary": head, "parts": {title: text for title, _, text in parts}}


def _stalls() -> dict[str, View]:
    """Return the kinds of stalls by the names that a diagnosis uses."""
    return {name: {"summary": kind.summary, "parts": {}} for kind in KINDS for name in kind.names}


def catalogue() -> dict[str, dict[str, View]]:
    """Return everything that can be explained, by kind and name."""
    topics = {"verdict": VERDICTS, "confidence": CONFIDENCES, "view": VIEWS}
    return {
        "stage": {stage.name: {"summary": stage.summary} for stage in STAGES},
        "finding": _findings(),
        **{
            kind: {
                topic.name: {"summary": topic.summary, "parts": {"What to do": topic.what_to_do}}
                for topic in topics[kind]
            }
            for kind in topics
        },
        "stall": _stalls(),
    }


# --- views ----------------------------------------------------------------------------------------


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
    listed = {
        kind: {name: entry["summary"] for name, entry in entries.items()}
        for kind, entries in catalogue().items()
    }
    return {"schema": SCHEMA, "kind": "list", "entries": listed}


def _named_view(name: str) -> View:
    """Return all meanings of a name, which may be both a stage and a stall."""
    wanted = name.strip().lower()
    meanings = []
    stage = find_stage(wanted)
    if stage is not None:
        meanings.append(_stage_view(stage))
    for kind, entries in catalogue().items():
        for spelled in (wanted, wanted.replace("-", "_"), wanted.replace("_", "-")):
            if kind != "stage" and spelled in entries:
                meanings.append({"kind": kind, "name": spelled, **entries[spelled]})
                break
    if not meanings:
        raise UsageError(_unknown(wanted))
    return {"schema": SCHEMA, "kind": "name", "name": wanted, "meanings": meanings}


def _stage_view(stage: StageEntry) -> View:
    data = asdict(stage)
    flags = [
        {**shown, "text": flag.text} for shown, flag in zip(data["flags"], stage.flags, strict=True)
    ]
    return {"kind": "stage", **data, "flags": flags}


def _unknown(name: str) -> str:
    known = [entry for entries in catalogue().values() for entry in entries]
    aliases = [alias for stage in STAGES for alias in stage.aliases]
    near = nearest(name, dict.fromkeys([*known, *aliases]))
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
        "schema": SCHEMA,
        "kind": "symptom",
        "words": list(words),
        "verdicts": [
            {"name": topic.name, "summary": topic.summary} for topic in verdicts_by_symptom(words)
        ],
        "stages": [
            {"name": stage.name, "summary": stage.summary, "symptoms": list(shown)}
            for stage, shown in found
        ],
    }


# --- text -----------------------------------------------------------------------------------------


def print_explanation(printer: Printer, view: View) -> None:
    """Print the list, name or symptom view."""
    {"list": _print_list, "name": _print_named, "symptom": _print_symptom}[view["kind"]](
        printer, view
    )


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
