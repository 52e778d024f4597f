"""Makes and compresses the chunks of a page."""

from __future__ import annotations

import base64
import json
import math
import os
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import is_dataclass
from typing import Any

from inductoscope.model.as_json import as_json
from inductoscope.views.page.contents import Contents
from inductoscope.views.page.source_contract import RecordedPayload
from inductoscope.vocabulary.operator_names import with_usual_names

_MOST_COMPILERS = 8
# The fastest: a fifth more bytes than the usual level, in a third of the time.
_LEVEL = 1


def packed_chunks(contents: Contents) -> Iterator[tuple[str, str]]:
    """All chunks by name, compressed; compilers run beside, as they take seconds."""
    chunks = contents.chunks
    with ThreadPoolExecutor(min(_MOST_COMPILERS, os.cpu_count() or 1)) as executor:
        compiled = {name: executor.submit(chunks[name]) for name in contents.slow_chunks}
        try:
            for name, make in chunks.items():
                yield name, pack(compiled[name].result() if name in compiled else make())
        except BaseException:
            executor.shutdown(cancel_futures=True)  # Ctrl-C: starts nothing new.
            raise


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
