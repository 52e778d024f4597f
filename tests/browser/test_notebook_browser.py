"""The page below a cell of a notebook: in a frame, which reaches nothing of the notebook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from inductoscope.notebook.magic import show_inline
from support.examples import stored


class Shell:
    """Takes what a cell shows."""

    def __init__(self) -> None:
        self.shown: dict[str, str] = {}
        self.display_pub = self

    def publish(self, data: dict[str, str]) -> None:
        self.shown = data


def test_the_page_in_a_cell_works_and_stays_in_its_frame(browser: Any, tmp_path: Path) -> None:
    shell, host, troubles = Shell(), tmp_path / "notebook.html", []
    show_inline(shell, "<script>document.title = 'taken'</script>", stored("relu_add_sum"))
    host.write_text(f"<!doctype html><title>notebook</title>{shell.shown['text/html']}")
    page = browser.new_page()
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto(host.as_uri())
    frame = page.frames[1]
    frame.wait_for_selector(".view")
    frame.click("a[href='#/explorer']")
    frame.wait_for_selector(".cm-line")
    # Chooses an operation, which goes into the address.
    frame.click(".cm-line >> text=relu >> nth=0")
    frame.wait_for_function("() => location.hash.includes('=')")
    assert frame.url.startswith("about:srcdoc#/explorer")
    assert page.url == host.as_uri()
    assert page.title() == "notebook"
    assert frame.evaluate("window.origin") == "null"
    assert troubles == []
    page.close()
