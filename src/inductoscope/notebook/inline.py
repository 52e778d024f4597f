"""What a cell shows below itself: text for every front end, and the page where HTML is shown."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from inductoscope.errors import InductoscopeError
from inductoscope.model.fold import load
from inductoscope.views.page.contents import Contents
from inductoscope.views.page.document import page_text

# A notebook keeps what its cells show: a larger page would make it slow to open and to save.
_LARGEST_PAGE = 6_000_000
_STYLE = "width:100%;height:640px;border:1px solid #8886;border-radius:4px"


def show_inline(shell: Any, text: str, recording: Path | None) -> None:
    """Show the text and, if a recording is given, its page."""
    shown = f"<pre>{escape(text)}</pre>"
    if recording is not None:
        shown += _frame(recording)
    shell.display_pub.publish({"text/plain": text, "text/html": shown})


def _frame(recording: Path) -> str:
    """The page in a frame that may run its own script, and reach nothing of the notebook."""
    try:
        page = page_text(Contents(load(recording), assembly=0, linked=False))
    except InductoscopeError as error:
        return f"<pre>{escape(f'The page cannot be shown: {error}')}</pre>"
    if len(page) > _LARGEST_PAGE:
        told = f"The page is too large for a notebook: inductoscope report {recording}"
        return f"<pre>{escape(told)}</pre>"
    # Otherwise its own links would be relative to the notebook, and lead there.
    page = page.replace("<head>", '<head><base href="about:srcdoc">', 1)
    return (
        f'<iframe title="inductoscope" sandbox="allow-scripts" style="{_STYLE}" '
        f'srcdoc="{escape(page)}"></iframe>'
    )
