"""One HTML page for all ranks of a job: no script, nothing loaded, every text escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from inductoscope.analysis.ranks.decisions import KINDS
from inductoscope.analysis.ranks.report import ranks_text
from inductoscope.views.page.document import write_parts

View = dict[str, Any]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem;
  padding: 0 1rem; color: #1c2430; background: #fff; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; } th, td { text-align: left; padding: .3rem 1.2rem .3rem 0;
  border-bottom: 1px solid #d5dbe3; vertical-align: top; overflow-wrap: anywhere; }
th { font-weight: 600; color: #5b6675; white-space: nowrap; } td { min-width: 4.5rem; }
code { font: 13px/1.4 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
.bad { color: #a3211b; } .faint { color: #5b6675; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; padding: 0; list-style: none; }
.legend i, .row i { display: inline-block; border-radius: 20%; background: #c9e4d0; }
.legend i { width: .9rem; height: .9rem; margin-right: .4rem; vertical-align: -.1rem; }
.row { display: flex; gap: 2px; margin-bottom: 2px; align-items: center; }
.row b { flex: 0 0 2.6rem; font: 12px/1 ui-monospace, monospace; color: #5b6675; }
.row i { flex: 1 1 0; max-width: 1.1rem; aspect-ratio: 1; min-width: 0; }
i.none { visibility: hidden; }
i.odd { background: #f2b84b; } i.stuck { background: #d5504a; } i.slow { background: #8fb4e8; }
i.deadly { background: #f2b84b; box-shadow: inset 0 0 0 2px #a3211b; }
i.missing { background: none; box-shadow: inset 0 0 0 1px #888; }
@media (max-width: 40rem) { .row { gap: 1px; margin-bottom: 1px; } thead { display: none; }
  tr { display: block; border-bottom: 1px solid #d5dbe3; padding: .4rem 0; }
  td { display: flex; gap: .6rem; border: 0; padding: .1rem 0; }
  td::before { content: attr(data-head); flex: 0 0 6.5rem; color: #5b6675; } }
@media (prefers-color-scheme: dark) { body { color: #e3e8ef; background: #14181f; }
  th, td, tr { border-color: #39424f; } .bad { color: #ff8f88; }
  .faint, th, .row b, td::before { color: #9aa6b5; }
  i[class=""] { background: #2f5d43; } }
"""
# Squares in a row of the map: a row then begins with a number that is easy to count from.
_IN_A_ROW = 50
# What a square can mean, the worst last.
_MEANINGS = {
    "": "as most",
    "slow": "slow",
    "odd": "decided otherwise",
    "deadly": "other collectives",
    "stuck": "stuck or failed",
    "missing": "no log",
}


def write_ranks_page(view: View, path: Path) -> int:
    """Write the page; returns its size."""
    return write_parts(_parts(view), path)


def _parts(view: View) -> Iterator[str]:
    title = f"ranks: {view['headline']}"
    yield (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} · inductoscope</title>\n<style>{_STYLE}</style></head><body>\n"
    )
    yield f"<h1{_bad(view)}>{escape(title)}</h1>\n"
    yield f"<p>Read from {escape(view['read_from'])}; {view['decisions']} decisions compared.</p>\n"
    yield from _map(view)
    yield from _places(view)
    yield from _odd(view)
    yield from _splits(view)
    yield from _times(view)
    yield from (f"<p>{escape(note)}</p>\n" for note in view["notes"])
    yield "</body></html>\n"


def _bad(item: View) -> str:
    return ' class="bad"' if item["problem"] else ""


def _map(view: View) -> Iterator[str]:
    """What squares mean, and how many there are of each; then one square per rank."""
    kinds = _kinds(view)
    counts = Counter(kinds.values())
    yield '<ul class="legend">'
    for kind, words in _MEANINGS.items():
        if counts[kind]:
            yield f'<li><i class="{kind}"></i>{counts[kind]} {words}</li>'
    yield '</ul>\n<div role="img" aria-label="All ranks, one square each">\n'
    ranks = list(kinds)
    for begin in range(0, len(ranks), _IN_A_ROW):
        row = ranks[begin : begin + _IN_A_ROW]
        squares = "".join(
            f'<i class="{kinds[rank]}" title="rank {rank}: {_MEANINGS[kinds[rank]]}"></i>'
            for rank in row
        )
        # A short last row has squares of the same size.
        room = '<i class="none"></i>' * (_IN_A_ROW - len(row) if begin else 0)
        yield f'<div class="row"><b>{row[0]}</b>{squares}{room}</div>\n'
    yield "</div>\n"
    if view["missing"]:
        yield f"<p>No log: {escape(ranks_text(view['missing']))}.</p>\n"


def _kinds(view: View) -> dict[int, str]:
    """What the square of each rank means: the worst that is known of it."""
    found = dict.fromkeys(sorted({*view["ranks"], *view["missing"]}), "")
    found.update({one["rank"]: "slow" for one in view["stragglers"]})
    for odd in sorted(view["odd"], key=lambda odd: bool(odd["problem"])):
        found.update(dict.fromkeys(odd["ranks"], "deadly" if odd["problem"] else "odd"))
    for place in view["places"]:
        if place["problem"]:
            found.update(dict.fromkeys(place["ranks"], "stuck"))
    found.update(dict.fromkeys(view["missing"], "missing"))
    return found


def _table(title: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    if not rows:
        return
    yield f"<h2>{escape(title)}</h2>\n<table><thead><tr>"
    yield "".join(f"<th>{escape(head)}</th>" for head in heads)
    yield "</tr></thead><tbody>\n"
    for row in rows:
        # On a narrow screen every cell is a line of its own, and says what it is.
        cells = zip(heads, row, strict=True)
        yield "<tr>"
        yield "".join(
            f'<td data-head="{escape(head)}"><div>{cell}</div></td>' for head, cell in cells
        )
        yield "</tr>\n"
    yield "</tbody></table>\n"


def _places(view: View) -> Iterator[str]:
    rows = [
        (
            f"<span{_bad(place)}>{escape(ranks_text(place['ranks']))}</span>",
            escape(place["title"]),
            escape(f"{place['stage']} {place['compile']}".strip()),
            escape(place["confidence"]),
        )
        for place in view["places"]
    ]
    yield from _table("Where each rank is", ("ranks", "what", "stage", "how sure"), rows)
    behind = [
        (
            escape(ranks_text(one["ranks"])),
            f"{escape(one['decision'])}<br>{escape(KINDS[one['kind']].words)}",
        )
        for one in view["behind"]
    ]
    yield from _table("Behind", ("ranks", "not decided yet"), behind)


def _odd(view: View) -> Iterator[str]:
    rows = [
        (
            f"<span{_bad(odd)}>{escape(ranks_text(odd['ranks']))}</span>",
            f"{escape(odd['decision'])}<br>{escape(odd['what'])}",
            _side(odd["here"], odd["first_line"], "here"),
            _side(f"{odd['there']} ({odd['majority']} ranks)", odd["first_line"], "there"),
            escape(odd["effect"]),
        )
        for odd in view["odd"]
    ]
    heads = ("ranks", "since", "these ranks", "the others", "what it means")
    yield from _table("The odd ones out", heads, rows)


def _side(text: str, line: View | None, side: str) -> str:
    if line is None:
        return escape(text)
    return f"{escape(text)}<br>line {line['number']}: <code>{escape(line[side])}</code>"


def _splits(view: View) -> Iterator[str]:
    rows = [
        (
            f"{escape(split['decision'])}<br>{escape(split['what'])}",
            "every rank has its own"
            if split["by_rank"]
            else "<br>".join(
                escape(f"{ranks_text(side['ranks'])}: {side['value']}") for side in split["sides"]
            ),
            escape(split["effect"]),
        )
        for split in view["splits"]
    ]
    yield from _table("No majority", ("decision", "who decided what", "what it means"), rows)


def _times(view: View) -> Iterator[str]:
    slow = [
        (f"rank {s['rank']}", escape(s["stage"]), f"{s['seconds']:.1f}", f"{s['median']:.1f}")
        for s in view["stragglers"]
    ]
    yield from _table("Stragglers", ("rank", "stage", "seconds", "median"), slow)
    rows = [
        (
            escape(stage["stage"]),
            str(stage["ranks"]),
            f"{stage['median']:.2f}",
            _slowest(stage),
        )
        for stage in view["stages"]
    ]
    yield from _table("Seconds by stage", ("stage", "ranks", "median", "slowest"), rows)
    if rows:
        yield f'<p class="faint">{escape(view["clocks"])}</p>\n'


def _slowest(stage: View) -> str:
    """With its rank, unless all ranks took as long as far as can be seen."""
    seconds, median = f"{stage['slowest']:.2f}", f"{stage['median']:.2f}"
    return seconds if seconds == median else f"{seconds} (rank {stage['slowest_rank']})"
