"""Verdicts on memory accesses as data and on the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from inductoscope.analysis.bounds.accesses import NO_TIME
from inductoscope.analysis.bounds.index_range import INDEX_VERDICTS, JudgedIndexType, Overflows
from inductoscope.analysis.bounds.kernels import JudgedGraph
from inductoscope.analysis.bounds.sentences import index_sentence, sentence
from inductoscope.analysis.bounds.verdicts import NAMES, Broken, JudgedAccess
from inductoscope.model.entities import Recording
from inductoscope.model.target import recording_target
from inductoscope.views.report.terminal import BAD, FAINT, GOOD, Printer
from inductoscope.wording import count_of

_MOST_PRINTED = 20


def bounds_view(recording: Recording, judged: Iterable[JudgedGraph]) -> dict[str, Any]:
    """Return every access with its verdict, and the count of each verdict."""
    graphs = [_graph_view(graph) for graph in judged]
    totals = _totals(kind for graph in graphs for kind in (a["verdict"] for a in graph["accesses"]))
    return {
        "recording": recording.path,
        "target": recording_target(recording),
        "totals": totals,
        "graphs": graphs,
        "trials": [],
    }


def _graph_view(judged: JudgedGraph) -> dict[str, Any]:
    return {
        "graph": judged.graph.key,
        "function": judged.compile.function,
        "place": judged.compile.place,
        "sizes_recorded": judged.memory.is_recorded,
        "without_loop_body": list(judged.without_body),
        "accesses": [_access_view(judged, access) for access in judged.accesses],
        "index_types": [_index_view(judged, found) for found in judged.index_types],
    }


def _index_view(judged: JudgedGraph, found: JudgedIndexType) -> dict[str, Any]:
    return {
        "kernel": found.kernel,
        "bits": found.bits,
        "origins": list(found.origins),
        "verdict": found.kind,
        "text": index_sentence(judged, found),
        "details": {name: _plain(value) for name, value in asdict(found.verdict).items()},
    }


def _access_view(judged: JudgedGraph, access: JudgedAccess) -> dict[str, Any]:
    return {
        "kernel": access.kernel,
        "node": access.node,
        "line": access.line,
        "operation": access.operation,
        "buffer": access.buffer,
        "index": access.index,
        "origins": list(access.origins),
        "verdict": access.kind,
        "text": sentence(judged, access),
        "details": {name: _plain(value) for name, value in asdict(access.verdict).items()},
    }


def facts_of_nodes(judged: JudgedGraph) -> dict[str, dict[str, Any]]:
    """Count the proven and open accesses of each scheduler node, and list the broken ones."""
    found: dict[str, list[dict[str, Any]]] = {}
    for access in judged.accesses:
        found.setdefault(access.node, []).append(_access_view(judged, access))
    return {
        node: {
            "bounds": _counts_in_time(accesses),
            "broken": [view["text"] for view in accesses if view["verdict"] == NAMES[Broken]],
        }
        for node, accesses in found.items()
    }


def _counts_in_time(accesses: list[dict[str, Any]]) -> str:
    """Like `_counts`, but report accesses that were not judged for lack of time separately."""
    judged = [view for view in accesses if NO_TIME not in view["text"]]
    if len(judged) == len(accesses):
        return _counts(judged)
    note = "not judged for lack of time: see inductoscope bounds"
    return f"{_counts(judged)}, the rest {note}" if judged else note


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _totals(kinds: Iterable[str]) -> dict[str, int]:
    counted = Counter(kinds)
    return {name: counted[name] for name in NAMES.values()}


def is_broken(view: dict[str, Any]) -> bool:
    """Check whether any access leaves its buffer, or an index overflows its type."""
    return bool(view["totals"]["broken"]) or any(
        found["verdict"] == INDEX_VERDICTS[Overflows] for found in _index_types(view)
    )


def _index_types(view: dict[str, Any]) -> list[dict[str, Any]]:
    return [found for graph in view["graphs"] for found in graph["index_types"]]


def print_bounds(printer: Printer, view: dict[str, Any]) -> None:
    """Print the counts of each kernel, then everything that is not proven."""
    totals = view["totals"]
    if not view["graphs"]:
        printer.line(
            "The recording has no loop bodies: nothing was compiled, or all of it came from a "
            "cache. 'inductoscope run --fresh SCRIPT' records them."
        )
        return
    printer.line(_summary(totals), style=BAD if is_broken(view) else GOOD)
    if any(NO_TIME in access["text"] for graph in view["graphs"] for access in graph["accesses"]):
        printer.line("The time for the proofs was used up: some accesses were not looked at.")
    for graph in view["graphs"]:
        printer.line()
        printer.heading(f"{graph['function'] or graph['graph']}, {graph['graph']}")
        for kernel, accesses in _by_kernel(graph["accesses"]).items():
            printer.line(f"{kernel}: {_counts(accesses)}", indent=2)
        if graph["without_loop_body"]:
            names = ", ".join(dict.fromkeys(graph["without_loop_body"]))
            printer.line(f"without a loop body, not looked at: {names}", indent=2, style=FAINT)
    _print_open(printer, view)
    _print_index_types(printer, _index_types(view))
    for trial in view["trials"]:
        printer.line()
        printer.line(f"Tried: {trial['text']}", style=BAD if trial["fails"] else "")


def _print_index_types(printer: Printer, found: list[dict[str, Any]]) -> None:
    """Print the number of kernels with 32-bit indices, then those not proven."""
    if not found:
        return
    proven = [index for index in found if index["verdict"] == "proven"]
    printer.line()
    printer.heading(f"{count_of(len(found), 'kernel')} with indices of 32 bits")
    if proven:
        number = "all" if len(proven) == len(found) else str(len(proven))
        printer.line(f"{number} proven to fit, for all sizes that the guards admit", indent=2)
    for kind in INDEX_VERDICTS.values():
        if kind != "proven":
            texts = [index["text"] for index in found if index["verdict"] == kind]
            style = BAD if kind == INDEX_VERDICTS[Overflows] else ""
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


def _by_kernel(accesses: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for access in accesses:
        found.setdefault(access["kernel"] or access["node"] or "parts of buffers", []).append(
            access
        )
    return found


def _counts(accesses: list[dict[str, Any]]) -> str:
    totals = _totals(access["verdict"] for access in accesses)
    return ", ".join(f"{number} {kind}" for kind, number in totals.items() if number)


def _print_open(printer: Printer, view: dict[str, Any]) -> None:
    """Print the accesses that are not proven."""
    every = [access for graph in view["graphs"] for access in graph["accesses"]]
    for kind, style in ((NAMES[Broken], BAD), ("out-of-reach", ""), ("data-dependent", FAINT)):
        texts = [a["text"] for a in every if a["verdict"] == kind]
        if texts:
            printer.line()
            printer.heading(kind)
            _print_some(printer, texts, style)
