"""Results as tables: per kind, every miss by name, and every program."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from battery.fault import CLEAN, FAULTY_KINDS
from battery.judge import SMALL, Result
from battery.markdown import plain, row

HEADER = ("kind", "programs", "named rightly", "proven", "minimised", "median seconds")


def make_rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """One row per kind that was run, and their total."""
    rows = []
    for kind in (*FAULTY_KINDS, CLEAN):
        if of_kind := [r for r in results if r.kind == kind]:
            rows.append(_make_row(kind, of_kind))
    return [*rows, _make_row("all", results)] if results else []


def _make_row(title: str, results: Sequence[Result]) -> tuple[str, ...]:
    provable = [r for r in results if r.provable]
    return (
        title,
        str(len(results)),
        _share(sum(r.named for r in results), len(results)),
        _share(sum(r.verified for r in provable), len(provable)),
        _share(sum(r.minimised for r in provable), len(provable)),
        f"{statistics.median(r.seconds for r in results):.0f}",
    )


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}" if whole else "-"


def describe_miss(result: Result) -> str:
    """The verdict, beside the truth."""
    said = " · ".join(word for word in (result.said_kind, result.said_stage) if word)
    culprit = "" if result.culprit_right or not result.said_stage else ", culprit not named"
    text = f"{result.name}: said {said}{culprit}, true is {result.kind} · {result.stage}"
    return f"{text} ({result.said_summary[:160]})" if result.said_summary else text


def list_misses(results: Sequence[Result]) -> list[str]:
    return [describe_miss(r) for r in results if not r.named]


def list_unproven(results: Sequence[Result]) -> list[str]:
    """Rightly named, but without a reproducer that was seen to fail or with a long one."""
    return [
        f"{r.name}: {'verified' if r.verified else 'not verified'}, nodes {r.nodes}"
        for r in results
        if r.named and r.provable and not r.minimised
    ]


def render_text(results: Sequence[Result]) -> str:
    rows = [HEADER, *make_rows(results)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
    lines = [
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    for title, items in _lists(results):
        lines += ["", title, *(f"  {item}" for item in items)]
    return "\n".join(lines)


@dataclass(frozen=True)
class Page:
    """Subject of the tables."""

    title: str
    introduction: tuple[str, ...]


def render_markdown(results: Sequence[Result], page: Page, about: str) -> str:
    lines = [f"# {page.title}", "", *page.introduction, *EXPLANATION, "", about, ""]
    lines += [row(HEADER), row(["---"] * len(HEADER))]
    lines += [row(cells) for cells in make_rows(results)]
    for title, items in _lists(results):
        lines += ["", f"## {title}", "", *(f"- {plain(item)}" for item in items)]
    lines += ["", "## Every program", "", *_every(results), ""]
    return "\n".join(lines)


EXPLANATION = (
    "Each program runs once under `inductoscope doctor`. *Named rightly*: kind, stage and a name",
    "of the culprit are the true ones. *Proven*: the reproducer failed in fresh processes.",
    f"*Minimised*: proven, with at most {SMALL} nodes. Kinds that have no reproducer show a dash.",
)
BATTERY = Page(
    "The fault battery",
    (
        "Written by `make battery` (`python -m battery.run --markdown docs/battery.md`).",
        "Programs are made from a seed, and a fault is planted in torch below them.",
    ),
)
STORED = Page(
    "The labelled scripts",
    (
        "Written by `make cases`. The scripts in `tests/cases` are open bugs of torch, mistakes",
        "of users, and healthy programs; `truth.json` beside each has the right answer.",
    ),
)


def _lists(results: Sequence[Result]) -> list[tuple[str, list[str]]]:
    found = [
        ("Misses", list_misses(results)),
        ("Named, but not proven or not minimal", list_unproven(results)),
    ]
    return [(f"{title}: {len(items)}", items) for title, items in found if items]


def _every(results: Sequence[Result]) -> list[str]:
    header = ("program", "truth", "verdict", "stage", "culprit", "verified", "nodes", "seconds")
    lines = [row(header), row(["---"] * len(header))]
    for r in results:
        cells = (
            r.name,
            f"{r.kind} · {r.stage}",
            _checked(r.said_kind, r.kind_right),
            _checked(r.said_stage, r.stage_right),
            "yes" if r.culprit_right else "no",
            ("yes" if r.verified else "no") if r.provable else "-",
            "-" if r.nodes is None else str(r.nodes),
            f"{r.seconds:.0f}",
        )
        lines.append(row(cells))
    return lines


def _checked(said: str, right: bool) -> str:
    return said if right else f"**{said or 'none'}**"
