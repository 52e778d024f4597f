"""The HTML file: styles, script and data in one, so that it opens offline from disk.

Everything from the recording is data: JSON inside script elements that are not executed, with
`<` written so that no text can end its element, or compressed and in base 64.
"""

from __future__ import annotations

import base64
import json
import math
import secrets
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import is_dataclass
from functools import partial
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from inductoscope.errors import ToolFailure, unwritable
from inductoscope.processes.side_by_side import several_at_once
from inductoscope.processes.status import own_cores
from inductoscope.recording.codec import as_json
from inductoscope.torch_facts.printed_graphs import with_usual_names
from inductoscope.views.page.contents import Contents
from inductoscope.views.page.contract import RecordedPayload
from inductoscope.views.page.graph_tables import GraphSummary

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; connect-src {connect}; base-uri 'none'; form-action 'none'"
)


def asset(name: str) -> str:
    place = resources.files("inductoscope.views.page") / "assets" / name
    try:
        return place.read_text("utf-8")
    except OSError as error:
        raise ToolFailure(
            f"The page's {name} is missing from this installation: {error.strerror}. "
            "In a checkout, 'make web' builds it."
        ) from error


def write_page(contents: Contents, path: Path) -> int:
    return write_parts(_parts(contents), path)


def write_parts(parts: Iterable[str], path: Path) -> int:
    """Write the file atomically, through a temporary file; return its size."""
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        # Text of an untrusted log or file name may not be encodable as UTF-8.
        with unfinished.open("w", encoding="utf-8", errors="replace") as file:
            file.writelines(parts)
        size = unfinished.stat().st_size
        unfinished.replace(path)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        unfinished.unlink(missing_ok=True)
    return size


def page_text(contents: Contents) -> str:
    return "".join(_parts(contents))


def _parts(contents: Contents) -> Iterator[str]:
    # The chunks come first, since building them computes what the index needs.
    chunks = packed_chunks(contents)
    yield head(contents.index.title, live=False)
    yield f'<script type="application/json" id="index">{_json(contents.index)}</script>\n'
    yield f"<script>{asset('page.js')}</script>\n"
    for name, packed in chunks.items():
        # A recording, which anybody can write, names the graphs in it.
        place = f'id="chunk-{escape(name)}"'
        yield f'<script type="application/gzip;base64" {place}>{packed}</script>\n'
    yield "</body></html>\n"


def head(title: str, *, live: bool) -> str:
    policy = _POLICY.format(connect="'self'" if live else "'none'")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} · inductoscope</title>\n"
        f"<style>{asset('page.css')}</style></head>\n"
        '<body><div id="root"></div>\n'
        "<noscript>This page needs JavaScript. 'inductoscope show' prints the same in a "
        "terminal.</noscript>\n"
    )


def _json(value: Any) -> str:
    """Serialize to JSON that cannot end a script element: `<` is escaped."""
    return dumps(value, ascii_only=True).replace("<", "\\u003c")


# --- Makes and compresses the chunks of a page ----------------------------------------------------

_MOST_COMPILERS = 8
# The fastest: a fifth more bytes than the usual level, in a third of the time.
_LEVEL = 1


def packed_chunks(contents: Contents) -> dict[str, str]:
    """Compress all chunks: those of graphs on all cores, with compilers running in threads."""
    chunks, slow = contents.chunks, contents.slow_chunks
    graphs = range(len(contents.chunks_by_graph))
    with several_at_once(None, len(graphs), begin=partial(_use, contents)) as map_:
        by_graph = map_(_pack_graph, graphs)
        # Threads suffice for these chunks: they wait for compilers, which take seconds.
        with ThreadPoolExecutor(min(_MOST_COMPILERS, len(own_cores()))) as compilers:
            try:
                compiled = {name: compilers.submit(chunks[name]) for name in slow}
                contents.find_out()  # Runs while workers compress the chunks.
                packed: dict[str, str] = {}
                for number, (of_graph, summary) in zip(graphs, by_graph, strict=True):
                    packed |= of_graph
                    contents.keep_summary(number, summary)
                packed |= {name: pack(found.result()) for name, found in compiled.items()}
            except BaseException:
                compilers.shutdown(cancel_futures=True)  # Ctrl-C cancels queued compiles.
                raise
    # Keep the chunks' order. All other chunks use data collected from all graphs.
    return {name: packed.get(name) or pack(make()) for name, make in chunks.items()}


def _use(contents: Contents) -> None:
    global _contents  # Forked workers inherit the page.
    _contents = contents


def _pack_graph(number: int) -> tuple[dict[str, str], GraphSummary]:
    slow = _contents.slow_chunks
    chunks = _contents.chunks_by_graph[number]
    packed = {name: pack(make()) for name, make in chunks.items() if name not in slow}
    return packed, _contents.summary(number)


_contents: Contents


def pack(value: Any) -> str:
    packer = zlib.compressobj(_LEVEL, wbits=_GZIP)
    data = packer.compress(compact(value)) + packer.flush()
    return base64.b64encode(data).decode("ascii")


# The gzip format without a time stamp makes equal chunks equal texts.
_GZIP = 16 + zlib.MAX_WBITS


def compact(value: Any) -> bytes:
    """Serialize to compact UTF-8 JSON; recorded JSON is passed through."""
    if isinstance(value, RecordedPayload):
        return with_usual_names(value.text).encode("utf-8", "replace")
    return dumps(value, ascii_only=False).encode("utf-8", "backslashreplace")


def dumps(value: Any, *, ascii_only: bool) -> str:
    """Serialize to JSON that browsers parse, without Infinity and NaN."""
    try:
        text = json.dumps(
            value,
            ensure_ascii=ascii_only,
            separators=(",", ":"),
            allow_nan=False,
            default=as_json,
        )
        return with_usual_names(text)
    except ValueError:
        return dumps(_finite(value), ascii_only=ascii_only)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if is_dataclass(value):
        value = as_json(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value
