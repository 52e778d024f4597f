"""The view of all ranks of a job: their positions, the odd ones out, and stragglers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from inductoscope.analysis.ranks.comparing import OddRanks, RankDifference, RankSplit
from inductoscope.analysis.ranks.decisions import DEADLY, KINDS, Weight
from inductoscope.analysis.ranks.report import (
    ABOUT_CLOCKS,
    RankPlace,
    RankReport,
    headline,
    numbers_text,
    ranks_text,
)
from inductoscope.hangs.logs.answers import Kind
from inductoscope.torch_facts import stages
from inductoscope.views.report.terminal import BAD, FAINT, GOOD, WARN, Printer
from inductoscope.wording import count_of

View = dict[str, Any]

_MOST_SHOWN = 8
_FORMS = {
    "trace": "TORCH_TRACE",
    "text": "TORCH_LOGS text, which shows fewer decisions than TORCH_TRACE does",
    "recording": "the recording",
    "preflight": "TORCH_TRACE and the collectives that were called",
}
_BY_DESIGN = (
    "no fault if these ranks have other work or other inputs, such as a stage of a pipeline or a "
    "last short batch"
)


def ranks_view(report: RankReport) -> View:
    """Return all results as data; the terminal shows a part of them."""
    return {
        "headline": headline(report),
        "problem": report.is_problem or bool(report.stuck),
        "count": len(report.ranks),
        "ranks": list(report.ranks),
        "missing": list(report.missing),
        "not_compared": list(report.not_compared),
        "read_from": _FORMS.get(report.form, report.form),
        "decisions": report.comparison.decisions,
        "places": _places(report.places),
        "odd": sorted(
            (_odd(one, report) for one in report.comparison.odd), key=lambda one: not one["problem"]
        ),
        "splits": [_split(one, report) for one in report.comparison.splits],
        "behind": [asdict(one) for one in report.comparison.behind],
        "stages": [asdict(one) for one in report.stage_times],
        "stragglers": [asdict(one) for one in report.stragglers],
        "clocks": ABOUT_CLOCKS,
        "notes": list(report.notes),
    }


def _places(places: Sequence[RankPlace]) -> list[View]:
    """Group ranks by position; the most frequent comes last, as the least informative."""
    together: dict[tuple[tuple[str, Any], ...], list[int]] = defaultdict(list)
    for place in places:
        about = asdict(place)
        rank = about.pop("rank")
        together[tuple(about.items())].append(rank)
    found = [{"ranks": ranks, **dict(about)} for about, ranks in together.items()]
    return sorted(found, key=lambda one: (not one["problem"], len(one["ranks"])))


def _odd(odd: OddRanks, report: RankReport) -> View:
    return {
        "ranks": list(odd.odd.ranks),
        "kind": odd.kind,
        "what": KINDS[odd.kind].words,
        "decision": odd.key,
        "here": odd.odd.text,
        "there": odd.majority.text,
        "majority": len(odd.majority.ranks),
        "first_line": _line(report, odd),
        "effect": _effect(odd),
        "problem": odd.is_deadly,
        "confidence": "likely" if odd.is_deadly else "unknown",
        "later": dict(odd.later),
    }


def _split(split: RankSplit, report: RankReport) -> View:
    return {
        "kind": split.kind,
        "what": KINDS[split.kind].words,
        "decision": split.key,
        "sides": [{"ranks": list(side.ranks), "value": side.text} for side in split.sides],
        "by_rank": split.is_by_rank,
        "first_line": _line(report, split),
        "effect": _effect(split),
        "problem": split.is_deadly,
    }


def _line(report: RankReport, difference: RankDifference) -> View | None:
    line = report.first_lines.get((difference.kind, difference.key))
    return asdict(line) if line is not None else None


def _effect(difference: RankDifference) -> str:
    if difference.is_deadly:
        return "ranks of one group that call different collectives wait for each other forever"
    if isinstance(difference, OddRanks) and difference.others_may_follow:
        return "the other ranks have not come to it so far"
    if difference.weight in DEADLY:
        return f"{_BY_DESIGN}; no hang is proven: {difference.unproven}"
    if difference.weight is Weight.PROGRAM:
        return _BY_DESIGN
    return "the same is computed; it costs time, and rounding may differ"


# --- terminal -------------------------------------------------------------------------------------


def print_ranks(printer: Printer, view: View) -> None:
    differs = any(KINDS[o["kind"]].weight is not Weight.COST for o in view["odd"] + view["splits"])
    style = BAD if view["problem"] else WARN if differs else GOOD
    printer.line(f"ranks: {view['headline']}", style=style)
    printer.pair("read from", f"{view['read_from']}; {count_of(view['decisions'], 'decision')}")
    if view["missing"]:
        printer.pair("missing", f"no log of {ranks_text(view['missing'])}")
    if view["not_compared"]:
        printer.pair("not compared", f"{ranks_text(view['not_compared'])}: no such log")
    _print_places(printer, view["places"])
    for odd in view["odd"][:_MOST_SHOWN]:
        _print_odd(printer, odd)
    _print_rest(printer, view["odd"])
    for split in view["splits"]:
        _print_split(printer, split)
    for behind in view["behind"][:_MOST_SHOWN]:
        _print_behind(printer, behind)
    _print_stragglers(printer, view)
    for note in view["notes"]:
        printer.pair("note", note)
    printer.line()


def _print_places(printer: Printer, places: list[View]) -> None:
    for place in places[:_MOST_SHOWN]:
        where = f", compile {place['compile']}" if place["compile"] else ""
        stage = f" ({place['stage']}{where})" if place["stage"] not in ("", stages.NO_STAGE) else ""
        bad = "failed" if place["what"] == Kind.ERROR.value else "stuck"
        name = bad if place["problem"] else "where"
        printer.pair(name, f"{ranks_text(place['ranks'])}: {place['title']}{stage}")
    _print_rest(printer, places)


def _print_odd(printer: Printer, odd: View) -> None:
    printer.line()
    ones = "one" if len(odd["ranks"]) == 1 else "ones"
    printer.line(
        f"{ranks_text(odd['ranks'])}: the odd {ones} out since {odd['decision']}: {odd['what']}",
        style=BAD if odd["problem"] else WARN,
    )
    printer.pair("here", odd["here"])
    printer.pair("others", f"{odd['there']} ({count_of(odd['majority'], 'rank')})")
    _print_line(printer, odd["first_line"], "here", "others")
    printer.pair(odd["confidence"] if odd["problem"] else "means", odd["effect"])
    if odd["later"]:
        later = ", ".join(f"{count} x {kind}" for kind, count in odd["later"].items())
        printer.pair("later", f"these differ too: {later}")


def _print_split(printer: Printer, split: View) -> None:
    printer.line()
    what = f"{split['decision']}: {split['what']}"
    if split["by_rank"]:
        printer.line(f"{what}: every rank has its own", style=WARN)
    else:
        printer.line(f"no majority in {what}", style=BAD if split["problem"] else WARN)
        for side in split["sides"][:_MOST_SHOWN]:
            printer.pair("", f"{ranks_text(side['ranks'])}: {side['value']}", width=2)
        _print_rest(printer, split["sides"])
    first, second = (numbers_text(side["ranks"]) for side in split["sides"][:2])
    _print_line(printer, split["first_line"], f"rank {second}", f"rank {first}")
    printer.pair("means", split["effect"])


def _print_line(printer: Printer, line: View | None, here: str, there: str) -> None:
    if line is None:
        return
    printer.pair(f"line {line['number']}", f"{here}: {line['here'] or '(nothing)'}")
    printer.pair("", f"{there}: {line['there'] or '(nothing)'}")


def _print_behind(printer: Printer, behind: View) -> None:
    where = "inside a compile" if behind["inside_a_compile"] else "between compiles"
    printer.pair(
        "behind",
        f"{ranks_text(behind['ranks'])} ({where}): not yet at {behind['decision']} "
        f"({KINDS[behind['kind']].words}), which most ranks have passed",
    )


def _print_stragglers(printer: Printer, view: View) -> None:
    for straggler in view["stragglers"][:_MOST_SHOWN]:
        printer.pair(
            "straggler",
            f"rank {straggler['rank']}: {straggler['seconds']:.1f} s in {straggler['stage']}, "
            f"the median is {straggler['median']:.1f} s",
        )
    _print_rest(printer, view["stragglers"])
    if view["stages"]:
        times = (f"{stage['stage']} {stage['median']:.2f}" for stage in view["stages"])
        printer.pair("median s", ", ".join(times))
        printer.line(view["clocks"], indent=2, style=FAINT)


def _print_rest(printer: Printer, items: list[View]) -> None:
    if len(items) > _MOST_SHOWN:
        printer.line(f"… and {len(items) - _MOST_SHOWN} more; --json lists all", indent=2)
