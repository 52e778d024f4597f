"""The view of `inductoscope diff`: two recordings side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from inductoscope.analysis.diff.entities import Difference, Fact, FusionChange, GraphDifference
from inductoscope.errors import UsageError
from inductoscope.torch_facts.stages import DYNAMO, PASSES
from inductoscope.views.report.terminal import BAD, FAINT, GOOD, WARN, Printer
from inductoscope.wording import count_of

View = dict[str, Any]

# Shorter than this is noise on a machine that does other things as well.
_NOTABLE_SECONDS = 0.05


def difference_view(found: Difference) -> View:
    """Return the difference as data, with the diffs of all stages and kernels."""
    data = asdict(found)
    return {
        "verdict": verdict(found),
        "differs": found.differs,
        **data,
        "cause": likely_cause(found.settings, found.surroundings) if found.differs else "",
        "graphs": list(map(_graph_view, found.graphs, data["graphs"])),
    }


def _graph_view(graph: GraphDifference, data: View) -> View:
    first = graph.first_different
    return {
        **data,
        "label": graph.label,
        "first_different_stage": first.stage if first else "",
        "fusions": [
            {**shown, "text": fusion_text(change)}
            for change, shown in zip(graph.fusions, data["fusions"], strict=True)
        ],
    }


# --- sentences ------------------------------------------------------------------------------------

_MOST_NAMES = 4


def verdict(difference: Difference) -> str:
    """Describe the first difference, in the order in which the compiler works."""
    if not difference.graphs and not difference.only:
        return "Neither run compiled anything."
    if not difference.differs:
        return _nothing_differs(difference)
    if difference.outcomes:
        fact = difference.outcomes[0]
        return f"{fact.name}: {fact.first} in the first run, {fact.second} in the second."
    changed = [graph for graph in difference.graphs if graph.differs]
    if not changed:
        item, *others = difference.only
        more = f" {len(others)} more have no counterpart." if others else ""
        where = f"{item.function or item.compile} ({item.place or 'unknown place'})"
        return f"Only the {item.run} run compiled {where}.{more}"
    earliest = min(changed, key=_stage_number)
    more = f" Different too: {count_of(len(changed) - 1, 'more graph')}." if changed[1:] else ""
    return f"{earliest.label}: {_first_difference(earliest)}.{more}"


def _nothing_differs(difference: Difference) -> str:
    found = {stage.status for graph in difference.graphs for stage in graph.stages}
    if not found & {"same", "renamed"}:
        return "Nothing could be compared; the reasons are below."
    if "not compared" in found:
        return "The same, as far as both runs recorded it: not every stage could be compared."
    return "The same: only names differ." if "renamed" in found else "The same in every stage."


def _stage_number(graph: GraphDifference) -> int:
    names = [stage.stage for stage in graph.stages]
    return names.index(graph.first_different.stage) if graph.first_different else len(names)


def _first_difference(graph: GraphDifference) -> str:
    """Describe the earliest difference of one graph, without its label and the full stop."""
    stage = graph.first_different
    if stage is None:
        return "the passes or kernels differ, the recorded stages do not"
    detail = f": {stage.detail}" if stage.detail else ""
    passes = [item for item in graph.passes if item.stage == stage.stage]
    lost = tuple(item.name for item in passes if not item.second)
    gained = tuple(item.name for item in passes if not item.first)
    if stage.stage == DYNAMO:
        return f"Dynamo already captured a different graph{detail}"
    if stage.stage in PASSES and lost:
        return f"{_names(lost)} no longer changes the graph"
    if stage.stage in PASSES and gained:
        return f"{_names(gained)} changes the graph only in the second run"
    if stage.stage == "fusion" and graph.fusions:
        change, *others = graph.fusions
        rest = f", and {count_of(len(others), 'more fusion')} changed" if others else ""
        return f"the second run {fusion_text(change)}{rest}"
    if stage.stage == "kernel" and graph.kernels:
        changed = tuple(kernel.name for kernel in graph.kernels)
        return f"the same loops became different code, in {_names(changed)}"
    return f"the runs first differ in stage {stage.stage}{detail}"


def fusion_text(change: FusionChange) -> str:
    names = f"{_names(change.operations)} with {_names(change.others)}"
    said = f"torch says '{change.reason}'" if change.in_torchs_words else change.reason
    if change.what == "lost":
        return f"lost the fusion of {names} because {said}"
    return f"gained the fusion of {names} (the first run had none: {said})"


def _names(names: tuple[str, ...]) -> str:
    shown = list(names[:_MOST_NAMES]) + (["…"] if len(names) > _MOST_NAMES else [])
    return " + ".join(shown) or "?"


def likely_cause(settings: tuple[Fact, ...], surroundings: tuple[Fact, ...]) -> str:
    """Name the likely cause among the settings; confidence depends on what else differs."""
    if not settings:
        return ""
    changes = "; ".join(
        f"{fact.name}: {fact.first} in the first run, {fact.second} in the second"
        for fact in settings[:3]
    )
    more = f"; and {len(settings) - 3} more below" if len(settings) > 3 else ""
    if surroundings:
        names = ", ".join(fact.name for fact in surroundings[:4])
        return f"Possible cause, a setting: {changes}{more}. {names} differ too."
    noun = "setting that differs" if len(settings) == 1 else "settings that differ"
    return f"Likely cause, the only {noun}: {changes}{more}."


# --- text -----------------------------------------------------------------------------------------


def print_difference(printer: Printer, view: View) -> None:
    """Print differences between the runs first, then the verdict, then graph by graph."""
    printer.pair("first", view["first"], indent=0, width=8)
    printer.pair("second", view["second"], indent=0, width=8)
    if view["surroundings"] or view["settings"]:
        printer.line()
        printer.heading("The runs differ")
        for fact in (*view["surroundings"], *view["settings"]):
            printer.pair(fact["name"], f"{fact['first']} → {fact['second']}")
    printer.line()
    printer.line(view["verdict"], style=BAD if view["differs"] else GOOD)
    if view["cause"]:
        printer.line(view["cause"], style=WARN)
    for graph in view["graphs"]:
        printer.line()
        _print_graph(printer, graph)
    _print_rest(printer, view)
    _print_seconds(printer, view["seconds"])
    for note in view["notes"]:
        printer.line()
        printer.line(note, style=FAINT)


def _print_graph(printer: Printer, graph: View) -> None:
    printer.heading(graph["label"])
    for status, title in (("same", "same"), ("renamed", "only renamed"), ("different", "differs")):
        names = [stage["stage"] for stage in graph["stages"] if stage["status"] == status]
        printer.pairs({title: ", ".join(names)})
    _print_uncompared(printer, graph["stages"])
    if graph["first_different_stage"]:
        detail = next(s["detail"] for s in graph["stages"] if s["status"] == "different")
        name = graph["first_different_stage"]
        printer.pair("first in", f"{name}: {detail}" if detail else name)
    for item in graph["passes"]:
        counts = f"changed the graph {_times(item['first'])}, now {_times(item['second'])}"
        printer.pair("pass", f"{item['name']} ({item['stage']}) {counts}")
    for text in _merged(f"{c['text']} [{c['confidence']}]" for c in graph["fusions"]):
        printer.pair("fusion", text)
    for text in _merged(_kernel_text(kernel) for kernel in graph["kernels"]):
        printer.pair("kernel", text)
    if any(kernel["diff"] for kernel in graph["kernels"]):
        printer.pair("", "--kernel NAME shows how its source changed")


def _merged(texts: Iterable[str]) -> list[str]:
    """Return each distinct text once, with its count."""
    counts = Counter(texts)
    return [f"{text} ({count} times)" if count > 1 else text for text, count in counts.items()]


def _print_uncompared(printer: Printer, stages: list[View]) -> None:
    """Print the stages that were not compared, grouped by reason."""
    reasons: dict[str, list[str]] = {}
    for stage in stages:
        if stage["status"] == "not compared":
            reasons.setdefault(stage["why"], []).append(stage["stage"])
    for why, names in reasons.items():
        printer.pair("not compared", f"{', '.join(names)}: {why}")


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")


def _kernel_text(kernel: View) -> str:
    names = ", ".join(kernel["others"])
    operations = f" ({', '.join(kernel['operations'])})" if kernel["operations"] else ""
    what = {
        "changed": "changed" + (f", now {names}" if names != kernel["name"] else ""),
        "removed": "removed" + (f", its work is in {names}" if names else ""),
        "added": "added" + (f", its work was in {names}" if names else ""),
    }[kernel["what"]]
    return f"{kernel['name']}{operations} {what}"


def _print_rest(printer: Printer, view: View) -> None:
    if view["outcomes"] or view["only"]:
        printer.line()
    for fact in view["outcomes"]:
        printer.line(f"{fact['name']}: {fact['first']} → {fact['second']}")
    for text in _merged(_only_text(item) for item in view["only"]):
        printer.line(f"{text}.")


def _only_text(item: View) -> str:
    where = f"{item['function'] or item['compile']} ({item['place'] or 'unknown place'})"
    return f"Only the {item['run']} run compiled {where}: {item['outcome']}"


def _print_seconds(printer: Printer, seconds: dict[str, list[float]]) -> None:
    totals = [sum(pair[side] for pair in seconds.values()) for side in (0, 1)]
    if not any(totals):
        return
    printer.line()
    printer.heading("Compile seconds       first    second")
    for stage, (first, second) in seconds.items():
        if abs(first - second) >= _NOTABLE_SECONDS:
            printer.code(f"{stage:18} {first:8.2f}  {second:8.2f}")
    printer.code(f"{'total':18} {totals[0]:8.2f}  {totals[1]:8.2f}")


# --- one diff -------------------------------------------------------------------------------------


def texts_view(view: View, *, kernel: str = "", stage: str = "") -> View:
    """Return the unified diffs of one kernel, or of one stage in every graph."""
    wanted = kernel or stage
    found, known = [], dict[str, None]()
    for graph in view["graphs"]:
        for item in graph["kernels"] if kernel else graph["stages"]:
            names = [item["name"], *item["others"]] if kernel else [item["stage"]]
            if item["diff"]:
                known[names[0]] = None
                if any(wanted in name if kernel else wanted == name for name in names):
                    found.append({"title": f"{graph['label']}: {wanted}", "text": item["diff"]})
    if not found:
        those = ", ".join(known) or "none"
        raise UsageError(
            f"No kernel {kernel} changed. Changed: {those}."
            if kernel
            else f"Stage {stage} does not differ. Stages that do: {those}."
        )
    return {**view, "shown": found}


def print_texts(printer: Printer, view: View) -> None:
    for item in view["shown"]:
        printer.heading(item["title"])
        printer.code(item["text"])
        printer.line()
