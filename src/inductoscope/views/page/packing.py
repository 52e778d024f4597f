"""Makes and compresses the chunks of a page."""

from __future__ import annotations

import base64
import json
import math
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import is_dataclass
from functools import partial
from typing import Any

from inductoscope.model.as_json import as_json
from inductoscope.processes.cores import own_cores
from inductoscope.processes.side_by_side import several_at_once
from inductoscope.views.page.contents import Contents
from inductoscope.views.page.graph_summary import GraphSummary
from inductoscope.views.page.source_contract import RecordedPayload
from inductoscope.vocabulary.operator_names import with_usual_names

_MOST_COMPILERS = 8
# The fastest: a fifth more bytes than the usual level, in a third of the time.
_LEVEL = 1


def packed_chunks(contents: Contents) -> dict[str, str]:
    """All chunks by name, compressed: those of graphs on all cores, compilers beside."""
    chunks, slow = contents.chunks, contents.slow_chunks
    graphs = range(len(contents.chunks_by_graph))
    with several_at_once(None, len(graphs), begin=partial(_use, contents)) as map_:
        by_graph = map_(_pack_graph, graphs)
        # Threads, from here on: they wait for compilers, which take seconds.
        with ThreadPoolExecutor(min(_MOST_COMPILERS, len(own_cores()))) as compilers:
            try:
                compiled = {name: compilers.submit(chunks[name]) for name in slow}
                contents.find_out()  # While the others are at work.
                packed: dict[str, str] = {}
                for number, (of_graph, summary) in zip(graphs, by_graph, strict=True):
                    packed |= of_graph
                    contents.keep_summary(number, summary)
                packed |= {name: pack(found.result()) for name, found in compiled.items()}
            except BaseException:
                compilers.shutdown(cancel_futures=True)  # Ctrl-C: starts nothing new.
                raise
    # In the order of the chunks. The rest is made of what was found out about all graphs.
    return {name: packed.get(name) or pack(make()) for name, make in chunks.items()}


def _use(contents: Contents) -> None:
    global _contents  # A process that makes chunks has the page as a copy.
    _contents = contents


def _pack_graph(number: int) -> tuple[dict[str, str], GraphSummary]:
    slow = _contents.slow_chunks
    chunks = _contents.chunks_by_graph[number]
    packed = {name: pack(make()) for name, make in chunks.items() if name not in slow}
    return packed, _contents.summary(number)


_contents: Contents


def pack(value: Any) -> str:
    """Compressed JSON, in base 64."""
    packer = zlib.compressobj(_LEVEL, wbits=_GZIP)
    data = packer.compress(compact(value)) + packer.flush()
    return base64.b64encode(data).decode("ascii")


# As gzip writes it, without a time: the same chunk is the same text.
_GZIP = 16 + zlib.MAX_WBITS


def compact(value: Any) -> bytes:
    """JSON without whitespace, as UTF-8; what was recorded as JSON stays as it is."""
    if isinstance(value, RecordedPayload):
        return with_usual_names(value.text).encode("utf-8", "replace")
    return dumps(value, ascii_only=False).encode("utf-8", "backslashreplace")


def dumps(value: Any, *, ascii_only: bool) -> str:
    """JSON that a browser reads: dataclasses as objects, without Infinity and NaN."""
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
