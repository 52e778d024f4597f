"""The HTML file: styles, script and data in one, so that it opens from disk with no network.

Everything from the recording is data: JSON inside script elements that are not executed, with
`<` written so that no text can end its element, or compressed and in base 64.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from inductoscope.errors import ToolFailure, unwritable
from inductoscope.views.page.contents import Contents
from inductoscope.views.page.packing import dumps, packed_chunks

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; connect-src {connect}; base-uri 'none'; form-action 'none'"
)


def asset(name: str) -> str:
    """A built file that ships with the package."""
    place = resources.files("inductoscope.views.page") / "assets" / name
    try:
        return place.read_text("utf-8")
    except OSError as error:
        raise ToolFailure(
            f"The page's {name} is missing from this installation: {error.strerror}. "
            "In a checkout, 'make web' builds it."
        ) from error


def write_page(contents: Contents, path: Path) -> int:
    """Write the page of a recording; returns its size."""
    return write_parts(_parts(contents), path)


def write_parts(parts: Iterable[str], path: Path) -> int:
    """Write to a temporary file first, so that the page is complete or absent; returns its size."""
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        # Text of a foreign log or file name may hold what UTF-8 cannot.
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
    """The whole page, for what shows it inside something else."""
    return "".join(_parts(contents))


def _parts(contents: Contents) -> Iterator[str]:
    # First: the index is made of what making chunks finds out.
    chunks = packed_chunks(contents)
    yield head(contents.index.title, live=False)
    yield f'<script type="application/json" id="index">{_json(contents.index)}</script>\n'
    yield f"<script>{asset('page.js')}</script>\n"
    for name, packed in chunks.items():
        yield f'<script type="application/gzip;base64" id="chunk-{name}">{packed}</script>\n'
    yield "</body></html>\n"


def head(title: str, *, live: bool) -> str:
    """Everything up to the data."""
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
    """JSON that cannot end the script element: escapes the `<` of `</script>` and `<!--`."""
    return dumps(value, ascii_only=True).replace("<", "\\u003c")
