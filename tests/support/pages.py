"""Data of pages, made up: a realistic one, and from it a hostile, a large and a damaged one.

The tests of the page in a browser need data with everything in it and data with nothing right in
it, and neither is to depend on what a torch at hand would record.
"""

from __future__ import annotations

import base64
import copy
import gzip
import json
import random
from pathlib import Path
from typing import Any

from inductoscope.views.page.document import asset, head

STORED = Path(__file__).parents[1] / "data" / "page"
Json = dict[str, Any]

# What a page shows: the index, and the chunks by name.
PageData = tuple[Json, Json]

VIEWS = (
    "overview", "timeline", "runtime", "memory", "advice", "compiletime", "explorer", "passes",
    "scheduler", "ledger", "buffers", "autotune", "compiles", "kernels", "search",
)  # fmt: skip
# Every view of the realistic page, with something chosen where that can be.
ROUTES = (
    "overview", "timeline", "timeline?as=sum", "runtime", "explorer?op=relu&panes=python,ir,native",
    "memory", "memory?run=eager", "advice", "compiletime",
    "passes", "scheduler", "scheduler?node=op3", "ledger?row=2", "buffers?graph=0&buffer=buf2",
    "autotune", "compiles?compile=0", "compiles?kind=recompiles", "kernels", "search?q=relu",
)  # fmt: skip

HOSTILE = (
    "</script><script>window.hostile = true</script>",
    "<img src=x onerror='window.hostile = true'>",
    "<!--<script>",
    "&lt;b&gt;&amp;&#60;",
    "bell \x07 escape \x1b[31m null \x00 right-to-left \u202e end",
    "lone \ud800 surrogate",
    "javascript:window.hostile = true",
    "__proto__",
)
LONG_LINE = "x = " + "0123456789" * 100_000


def write(data: PageData, path: Path) -> Path:
    """One file with everything in it, as `inductoscope report` writes it."""
    index, chunks = data
    with path.open("w", encoding="utf-8") as file:
        file.write(opening(index, live=False))
        for name, value in chunks.items():
            packed = base64.b64encode(gzip.compress(json.dumps(value).encode(), 3)).decode()
            kind = "application/gzip;base64"
            file.write(f'<script type="{kind}" id="chunk-{name}">{packed}</script>\n')
        file.write("</body></html>\n")
    return path


def opening(index: Json, *, live: bool) -> str:
    """Everything up to the chunks; a live page is not more than this."""
    data = json.dumps(index).replace("<", "\\u003c")
    start = head(str(index.get("title", "")), live=live)
    return (
        f'{start}<script type="application/json" id="index">{data}</script>\n'
        f"<script>{asset('page.js')}</script>\n"
    )


def realistic() -> PageData:
    """Something in every view."""
    stored = json.loads((STORED / "realistic.json").read_text(encoding="utf-8"))
    return stored["index"], stored["chunks"]


def unprofiled() -> PageData:
    """The same without measured times."""
    index, chunks = realistic()
    kernels = chunks["modules"]["kernels"]
    kernels["rows"] = [[*row[:-1], None] for row in kernels["rows"]]
    return {**index, "profile": None}, chunks


def empty() -> PageData:
    """A program in which nothing was compiled."""
    return {"schema": 1, "title": "nothing.py", "notes": ["Nothing was compiled."]}, {}


# Names that lead from the index to chunks, and values that decide on how something is shown.
_KEPT = {
    "chunk", "passes", "schedule", "guards", "id", "writer", "reader", "group", "members",
    "columns", "severity", "outcome", "state", "language",
}  # fmt: skip


def hostile() -> PageData:
    """Every text of the realistic page ends in something that wants to break out of it."""
    index, chunks = realistic()
    ends = iter(HOSTILE * 1000)

    def spoil(value: Any, key: str = "") -> Any:
        if isinstance(value, str):
            return value if key in _KEPT else f"{value} {next(ends)}"
        if isinstance(value, list):
            return [spoil(item, key) for item in value]
        if isinstance(value, dict):
            return {name: spoil(item, name) for name, item in value.items()}
        return value

    index, chunks = spoil(index), {name: spoil(chunk) for name, chunk in chunks.items()}
    chunks["graph-0"]["panes"][0]["text"] += "\n" + LONG_LINE
    return index, chunks


def damaged(seed: int) -> PageData:
    """Some values are of another type, some are gone, one chunk is missing."""
    choose = random.Random(seed)
    wrong: tuple[Any, ...] = (None, 7, -1, "text", [], {}, [None], {"a": 1}, True, 1e300, [[]])

    def harm(value: Any, depth: int) -> Any:
        if depth > 1 and choose.random() < 0.12:
            return choose.choice(wrong)
        if isinstance(value, list):
            return [harm(item, depth + 1) for item in value]
        if isinstance(value, dict):
            kept = {key: item for key, item in value.items() if choose.random() > 0.03}
            return {key: harm(item, depth + 1) for key, item in kept.items()}
        return value

    index, chunks = realistic()
    harmed = {name: harm(chunk, 0) for name, chunk in chunks.items()}
    del harmed[choose.choice(sorted(harmed))]
    return harm(index, 0), harmed


def huge() -> PageData:
    """20,000 kernels."""
    return large(lines=1, graphs=400)


def large(lines: int = 8, graphs: int = 40) -> PageData:
    """2,000 kernels in 40 graphs, 10,000 fusion decisions; 80 lines per kernel make 20 MB."""
    kernels, decisions = 50, 10_000
    index, chunks = realistic()
    template = chunks["graph-0"]
    index["graphs"] = [_large_graph(index["graphs"][0], number) for number in range(graphs)]
    index["kernels"]["rows"] = [
        [
            f"triton_fused_{g}_{k}",
            f"triton_fused_{g}_{k}",
            "Triton",
            "compiled",
            1,
            g,
            f"relu_{k}, add_{k}",
            40 + k,
            4096 * k,
            k / 50,
            20,
            0,
            0,
        ]
        for g in range(graphs)
        for k in range(kernels)
    ]
    index["compiles"] *= 40
    chunks["modules"]["kernels"]["rows"] = [
        [0, row[5], row[0], row[1], 1, 4096 * place + 4096, None]
        for place, row in enumerate(index["kernels"]["rows"])
    ]
    for number in range(graphs):
        chunks[f"graph-{number}"] = _large_panes(template, number, kernels, lines)
        chunks[f"schedule-{number}"] = large_schedule(3 * kernels)
    keys = [graph["key"] for graph in index["graphs"]]
    chunks["ledger"] = _large_ledger(chunks["ledger"], keys, decisions)
    index["ledger"].update(fused=decisions // 2, refused=decisions // 4, never=decisions // 4)
    return index, chunks


def _large_ledger(small: Json, keys: list[str], decisions: int) -> Json:
    """The rows of a small ledger again and again, in all graphs, with scores of their own."""
    columns, values, places = small["columns"], list(small["values"]), small["places"]
    graph, score = columns.index("graph"), columns.index("score")
    values[graph], values[score] = keys, [n * 37 % 10_007 for n in range(decisions)]
    many = [[column[n % len(column)] for n in range(decisions)] for column in places]
    many[graph], many[score] = [n % len(keys) for n in range(decisions)], list(range(decisions))
    return {"columns": columns, "values": values, "places": many}


def _large_graph(graph: Json, number: int) -> Json:
    named = {"chunk": f"graph-{number}", "schedule": f"schedule-{number}"}
    return {**graph, **named, "key": f"{number}/0 forward", "kernels": 50}


def _large_panes(small: Json, graph: int, kernels: int, lines: int) -> Json:
    panes = copy.deepcopy(small)
    noise = random.Random(graph)
    source = []
    for kernel in range(kernels):
        source += [
            f"def triton_fused_{graph}_{kernel}(in_ptr0, out_ptr0):",
            *_noisy_lines(noise, lines),
        ]
    height = len(source) // kernels
    panes["panes"][-1]["text"] = "\n".join(source)
    panes["kernels"] = [
        {
            "name": f"triton_fused_{graph}_{k}",
            "first_line": k * height + 1,
            "last_line": (k + 1) * height,
        }
        for k in range(kernels)
    ]
    panes["operations"] = [
        {"name": f"relu_{k}", "label": "aten.relu", "lines": {"kernel": [k * height + 5]}}
        for k in range(kernels)
    ]
    return panes


def _noisy_lines(noise: random.Random, lines: int) -> list[str]:
    """Text that compression cannot make much smaller."""
    return [f"    tmp{n} = {noise.getrandbits(640):x}" for n in range(lines)]


def large_schedule(count: int) -> Json:
    nodes = [
        {"id": f"op{n}", "kind": "SchedulerNode", "label": f"relu_{n}", "operations": [f"relu_{n}"],
         "group": f"g{n // 3}", "bytes": 4096}
        for n in range(count)
    ]  # fmt: skip
    edges = [
        {"writer": f"op{n}", "reader": f"op{n + step}", "buffer": f"buf{n}", "bytes": 4096,
         "inside": n // 3 == (n + step) // 3}
        for n in range(count)
        for step in (1, 7)
        if n + step < count
    ]  # fmt: skip
    groups = [
        {
            "id": f"g{n}",
            "kind": "FusedSchedulerNode",
            "members": [f"op{3 * n + k}" for k in range(3)],
        }
        for n in range(count // 3)
    ]
    return {"nodes": nodes, "edges": edges, "groups": groups}
