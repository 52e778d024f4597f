"""Views made of sections: a title, facts, and a text such as code."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from inductoscope.views.report.terminal import FAINT, Printer

View = dict[str, Any]


@dataclass(frozen=True)
class Section:
    """One result or decision of a stage."""

    title: str
    facts: dict[str, Any] = field(default_factory=dict)
    text: str = ""


def sections_view(stage: str, sections: list[Section], *, empty: str) -> View:
    """Return sections as data; `empty` explains why there are none."""
    return {
        "stage": stage,
        "sections": [asdict(section) for section in sections],
        "empty": "" if sections else empty,
    }


def print_sections(printer: Printer, view: View) -> None:
    if view.get("explanation"):
        printer.line(view["explanation"], style=FAINT)
    if view["empty"]:
        printer.line(view["empty"])
    for section in view["sections"]:
        printer.heading(section["title"])
        for name, value in section["facts"].items():
            if value not in (None, "", [], {}, ()):
                printer.pair(name.replace("_", " "), fact_text(value))
        if section["text"]:
            printer.code(section["text"])
        printer.line()


def fact_text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {fact_text(item)}" for name, item in value.items())
    if isinstance(value, (list, tuple)):
        texts = [fact_text(item) for item in value]
        # Where an item has commas of its own, they would not show where it ends.
        return ("; " if any(", " in text for text in texts) else ", ").join(texts)
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
