"""Verdicts on memory accesses as data and on the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from inductoscope.analysis.bounds.accesses import NO_TIME
from inductoscope.analysis.bounds.index_range import INDEX_KINDS, JudgedIndexType, Overflows
from inductoscope.analysis.bounds.kernels import JudgedGraph
from inductoscope.analysis.bounds.sentences import index_sentence, sentence
from inductoscope.analysis.bounds.verdicts import KINDS, Broken, JudgedAccess
from inductoscope.model.entities import Recording
from inductoscope.model.target import recording_target
from inductoscope.recording.codec import as_json
from inductoscope.views.report.terminal import BAD, FAINT, GOOD, Printer
from inductoscope.wording import count_of

View = dict[str, Any]

_MOST_PRINTED = 20


def bounds_view(recording: Recording, judged: Iterable[JudgedGraph]) -> View:
    """Return every access with its verdict, and the count of each verdict."""
    graphs = [_graph_view(graph) for graph in judged]
    return {
        "recording": recording.path,
        "target": recording_target(recording),
        "totals": _totals(_of_all(graphs, "accesses")),
        "graphs": graphs,
        "trials": [],
    }


def _graph_view(judged: JudgedGraph) -> View:
    return {
        "graph": judged.graph.key,
        "function": judged.compile.function,
        "place": judged.compile.place,
        "sizes_recorded": judged.memory.is_recorded,
        "without_loop_body": judged.without_body,
        "accesses": _accesses(judged),
        "index_types": [
            _found_view(each, index_sentence(judged, each)) for each in judged.index_types
        ],
    }


def _accesses(judged: JudgedGraph) -> list[View]:
    return [_found_view(access, sentence(judged, access)) for access in judged.accesses]


def _found_view(found: JudgedAccess | JudgedIndexType, text: str) -> View:
    return {**as_json(found), "verdict": found.verdict.kind, "text": text, "details": found.verdict}


def _of_all(graphs: list[View], name: str) -> list[View]:
    return [found for graph in graphs for found in graph[name]]


def facts_of_nodes(judged: JudgedGraph) -> dict[str, View]:
    """Count the proven and open accesses of each scheduler node, and list the broken ones."""
    by_node = _grouped(_accesses(judged), "node")
    return {
        node: {
            "bounds": _counts_in_time(accesses),
            "broken": [view["text"] for view in accesses if view["verdict"] == Broken.kind],
        }
        for node, accesses in by_node.items()
    }


def _counts_in_time(accesses: list[View]) -> str:
    """Like `_counts`, but report accesses that were not judged for lack of time separately."""
    judged = [view for view in accesses if NO_TIME not in view["text"]]
    if len(judged) == len(accesses):
        return _counts(judged)
    note = "not judged for lack of time: see inductoscope bounds"
    return f"{_counts(judged)}, the rest {note}" if judged else note


def _totals(found: list[View]) -> dict[str, int]:
    counted = Counter(view["verdict"] for view in found)
    return {name: counted[name] for name in KINDS}


def is_broken(view: View) -> bool:
    """Check whether any access leaves its buffer, or an index overflows its type."""
    return bool(view["totals"]["broken"]) or any(
        found["verdict"] == Overflows.kind for found in _of_all(view["graphs"], "index_types")
    )


def print_bounds(printer: Printer, view: View) -> None:
    """Print the counts of each kernel, then everything that is not proven."""
    totals = view["totals"]
    if not view["graphs"]:
        printer.line(
            "The recording has no loop bodies: nothing was compiled, or all of it came from a "
            "cache. 'inductoscope run --fresh SCRIPT' records them."
        )
        return
    printer.line(_summary(totals), style=BAD if is_broken(view) else GOOD)
    accesses = _of_all(view["graphs"], "accesses")
    if any(NO_TIME in access["text"] for access in accesses):
        printer.line("The time for the proofs was used up: some accesses were not looked at.")
    for graph in view["graphs"]:
        printer.line()
        printer.heading(f"{graph['function'] or graph['graph']}, {graph['graph']}")
        for kernel, found in _grouped(graph["accesses"], "kernel", "node").items():
            printer.line(f"{kernel or 'parts of buffers'}: {_counts(found)}", indent=2)
        if graph["without_loop_body"]:
            names = ", ".join(dict.fromkeys(graph["without_loop_body"]))
            printer.line(f"without a loop body, not looked at: {names}", indent=2, style=FAINT)
    _print_open(printer, accesses)
    _print_index_types(printer, _of_all(view["graphs"], "index_types"))
    for trial in view["trials"]:
        printer.line()
        printer.line(f"Tried: {trial['text']}", style=BAD if trial["fails"] else "")


def _print_index_types(printer: Printer, found: list[View]) -> None:
    """Print the number of kernels with 32-bit indices, then those not proven."""
    if not found:
        return
    proven = [index for index in found if index["verdict"] == "proven"]
    printer.line()
    printer.heading(f"{count_of(len(found), 'kernel')} with indices of 32 bits")
    if proven:
        number = "all" if len(proven) == len(found) else str(len(proven))
        printer.line(f"{number} proven to fit, for all sizes that the guards admit", indent=2)
    for kind in INDEX_KINDS:
        if kind != "proven":
            texts = [index["text"] for index in found if index["verdict"] == kind]
            style = BAD if kind == Overflows.kind else ""
            _print_some(printer, texts, style)


def _print_some(printer: Printer, texts: Iterable[str], style: str) -> None:
    """Print each distinct text once, up to `_MOST_PRINTED`."""
    different = list(dict.fromkeys(texts))
    for text in different[:_MOST_PRINTED]:
        printer.line(text, indent=2, style=style)
    if len(different) > _MOST_PRINTED:
        rest = len(different) - _MOST_PRINTED
        printer.line(f"and {rest} more; --json has them all", indent=2, style=FAINT)


def _summary(totals: dict[str, int]) -> str:
    number = sum(totals.values())
    count = f"{number} loads and stores" if number != 1 else "1 load or store"
    if not any(found for kind, found in totals.items() if kind != "proven"):
        return f"{count}: all proven inside their buffers, for all sizes that the guards admit."
    parts = [f"{found} {kind}" for kind, found in totals.items() if found]
    return f"{count}: {', '.join(parts)}."


def _grouped(found: list[View], *names: str) -> dict[str, list[View]]:
    """Group accesses by the first of their fields `names` that is not empty."""
    groups: dict[str, list[View]] = {}
    for view in found:
        groups.setdefault(next(filter(None, map(view.get, names)), ""), []).append(view)
    return groups


def _counts(accesses: list[View]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in _totals(accesses).items() if number)


def _print_open(printer: Printer, accesses: list[View]) -> None:
    for kind, style in ((Broken.kind, BAD), ("out-of-reach", ""), ("data-dependent", FAINT)):
        texts = [access["text"] for access in accesses if access["verdict"] == kind]
        if texts:
            printer.line()
            printer.heading(kind)
            _print_some(printer, texts, style)
