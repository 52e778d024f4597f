"""One HTML page for all ranks of a job, from the template `assets/ranks.html`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from inductoscope.analysis.ranks.decisions import KINDS
from inductoscope.analysis.ranks.report import ranks_text
from inductoscope.views.page.document import write_parts

View = dict[str, Any]

_TEMPLATE = Path(__file__).parent / "assets" / "ranks.html"
# Squares in a row of the map: a row then begins with a number that is easy to count from.
_IN_A_ROW = 50
# The possible states of a square, the worst last.
_MEANINGS = {
    "": "as most",
    "slow": "slow",
    "odd": "decided otherwise",
    "deadly": "other collectives",
    "stuck": "stuck or failed",
    "missing": "no log",
}


def write_ranks_page(view: View, path: Path) -> int:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters["ranks"] = ranks_text
    kinds = _kinds(view)
    ranks = list(kinds)
    parts = environment.from_string(_TEMPLATE.read_text("utf-8")).generate(
        view=view,
        kinds=kinds,
        counts=Counter(kinds.values()),
        meanings=_MEANINGS,
        words={name: kind.words for name, kind in KINDS.items()},
        rows=[ranks[begin : begin + _IN_A_ROW] for begin in range(0, len(ranks), _IN_A_ROW)],
    )
    return write_parts(parts, path)


def _kinds(view: View) -> dict[int, str]:
    """Return the status of each rank's square: the most severe one that applies."""
    found = dict.fromkeys(sorted({*view["ranks"], *view["missing"]}), "")
    found.update({one["rank"]: "slow" for one in view["stragglers"]})
    for odd in sorted(view["odd"], key=lambda odd: bool(odd["problem"])):
        found.update(dict.fromkeys(odd["ranks"], "deadly" if odd["problem"] else "odd"))
    for place in view["places"]:
        if place["problem"]:
            found.update(dict.fromkeys(place["ranks"], "stuck"))
    found.update(dict.fromkeys(view["missing"], "missing"))
    return found
