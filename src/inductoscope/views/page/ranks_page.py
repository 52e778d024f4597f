"""One HTML page for all ranks of a job: no script, nothing loaded, every text escaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from inductoscope.analysis.ranks.rank_numbers import ranks_text
from inductoscope.views.page.document import write_parts

View = dict[str, Any]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem;
  padding: 0 1rem; color: #1c2430; background: #fff; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .3rem .6rem;
  border-bottom: 1px solid #d5dbe3; vertical-align: top; }
code { font: 13px/1.4 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
.map { display: flex; flex-wrap: wrap; gap: 2px; } .map span { width: 1.1rem; height: 1.1rem;
  border-radius: 3px; background: #c9e4d0; } .map .odd { background: #f2b84b; }
.map .stuck { background: #d5504a; } .map .missing { background: #fff; outline: 1px dashed #888; }
.map .slow { background: #8fb4e8; } .bad { color: #a3211b; } .faint { color: #5b6675; }
@media (prefers-color-scheme: dark) { body { color: #e3e8ef; background: #14181f; }
  th, td { border-color: #39424f; } .bad { color: #ff8f88; } .faint { color: #9aa6b5; }
  .map .missing { background: #14181f; } }
"""


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
    """One square per rank."""
    classes: dict[int, str] = {one["rank"]: "slow" for one in view["stragglers"]}
    for odd in view["odd"]:
        classes.update(dict.fromkeys(odd["ranks"], "odd"))
    for place in view["places"]:
        if place["problem"]:
            classes.update(dict.fromkeys(place["ranks"], "stuck"))
    classes.update(dict.fromkeys(view["missing"], "missing"))
    words = {"slow": "slow", "odd": "decided otherwise", "stuck": "stuck or failed"}
    yield '<p class="faint">One square for each rank: green as most, '
    yield "amber decided otherwise, red stuck or failed, blue slow, dashed no log.</p>\n"
    yield '<div class="map" role="img" aria-label="All ranks">'
    for rank in sorted({*view["ranks"], *view["missing"]}):
        kind = classes.get(rank, "")
        what = words.get(kind, "no log" if kind == "missing" else "as most")
        yield f'<span class="{kind}" title="rank {rank}: {what}"></span>'
    yield "</div>\n"


def _table(title: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    if not rows:
        return
    yield f"<h2>{escape(title)}</h2>\n<table><tr>"
    yield "".join(f"<th>{escape(head)}</th>" for head in heads)
    yield "</tr>\n"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n"
    yield "</table>\n"


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
    behind = [(escape(ranks_text(one["ranks"])), escape(one["decision"])) for one in view["behind"]]
    yield from _table("Behind", ("ranks", "the first decision that they have not taken"), behind)


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
    heads = ("ranks", "since the decision", "there", "the others", "what it means")
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
            f"{stage['slowest']:.2f} (rank {stage['slowest_rank']})",
        )
        for stage in view["stages"]
    ]
    yield from _table("Seconds by stage", ("stage", "ranks", "median", "slowest"), rows)
    if rows:
        yield f'<p class="faint">{escape(view["clocks"])}</p>\n'
