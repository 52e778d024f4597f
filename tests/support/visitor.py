"""A reader of a page in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

# Which chunks were inflated is seen from the number of streams that were begun.
_COUNT_INFLATED = """
    window.inflated = 0;
    window.DecompressionStream = class extends window.DecompressionStream {
        constructor(format) { super(format); window.inflated += 1; }
    };
"""


# An editor that is new scrolls a second time when it has measured itself.
_FRAMES = """() => new Promise(done => {
    const wait = frames => requestAnimationFrame(() => frames ? wait(frames - 1) : done());
    wait(4);
})"""
_LOADED = "() => !document.querySelector('.view')?.textContent.includes('Loading…')"


class Visitor:
    """A reader of one page, who notices what must never happen."""

    def __init__(self, browser: Any, path: Path, **context: Any) -> None:
        size = {"width": 1280, "height": 800}
        self.context = browser.new_context(viewport=size, reduced_motion="reduce", **context)
        self.context.add_init_script(_COUNT_INFLATED)
        self.page = self.context.new_page()
        self.path = path
        self.troubles: list[str] = []
        self.page.on("pageerror", lambda error: self.troubles.append(f"exception: {error}"))
        self.page.on("console", self._console)
        self.page.on("request", self._request)

    def _console(self, message: Any) -> None:
        if message.type == "error":
            self.troubles.append(f"console: {message.text}")

    def _request(self, request: Any) -> None:
        if not request.url.startswith(self.path.as_uri()):
            self.troubles.append(f"request: {request.url[:100]}")

    def visit(self, route: str) -> None:
        """Open the page at a route, or lead the open page there."""
        address = f"{self.path.as_uri()}#/{route}"
        self.page.goto(address)
        self.page.wait_for_selector(".view")
        self.page.wait_for_function(_LOADED)

    def settle(self) -> None:
        """Wait until what was done last has been drawn."""
        self.page.evaluate(_FRAMES)

    def all(self, selector: str) -> list[str]:
        """The text of everything that a selector finds."""
        self.settle()
        found: list[str] = self.page.locator(selector).all_inner_texts()
        return found

    def marked(self, pane: str) -> list[str]:
        """The lines of a pane that are highlighted as counterparts."""
        return [line.strip() for line in self.all(f"[data-pane={pane}] .cm-line.mark")]

    def choose_line(self, pane: str, number: int) -> None:
        """Click on a line, near its beginning: the rest of it may be out of sight."""
        line = self.page.locator(f"[data-pane={pane}] .cm-line").nth(number - 1)
        line.click(position={"x": 60, "y": 8})

    def parameters(self) -> dict[str, list[str]]:
        """The part of the address after the name of the view."""
        self.settle()
        return parse_qs(self.page.url.partition("?")[2])
