"""Ways to find something on the page: search, find in a pane, tables by key, buffers, paper."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inductoscope.views.page.live import LiveServer
from support.examples import stored
from support.visitor import Visitor


@pytest.mark.parametrize(
    ("words", "kind", "leads_to"),
    [
        ("model.py:14", "source", {"graph": ["0"], "op": ["sigmoid"]}),
        ("ln_1", "operation", {"graph": ["0"], "op": ["sigmoid"]}),
        ("aten.sigmoid", "operation", {"graph": ["0"], "op": ["sigmoid"]}),
        ("buf2", "buffer", {"graph": ["0"], "buffer": ["buf2"]}),
        ("op3", "node", {"graph": ["0"], "node": ["op3"], "when": ["before"]}),
    ],
)
def test_whatever_has_a_name_is_found(
    visitor: Callable[..., Visitor], words: str, kind: str, leads_to: dict[str, list[str]]
) -> None:
    guest = visitor("realistic")
    guest.page.keyboard.press("Control+k")
    guest.page.keyboard.type(words)
    guest.page.locator(".global-search [role=option] .kind", has_text=kind).first.wait_for()
    assert guest.all(".global-search [role=option] .kind")[0] == kind
    guest.page.keyboard.press("Enter")
    assert guest.parameters() == leads_to


def test_search_reads_the_lines_of_every_text(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic", "search?q=tl.load")
    guest.page.get_by_role("button", name="Kernels").first.wait_for()
    assert re.search(r"[1-9]\d* lines? in (\d+) of \1 texts", guest.all("[role=status]")[0])
    guest.page.get_by_role("button", name="Kernels").first.click()
    guest.page.wait_for_selector("[data-pane=kernel] .cm-line.chosen")
    assert "tl.load" in guest.all("[data-pane=kernel] .cm-line.chosen")[0]
    guest.page.go_back()
    assert guest.all("h1") == ["Search"]


def test_a_pane_is_searched_as_a_whole(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic", "explorer?panes=kernel")
    guest.page.locator("[data-pane=kernel] .cm-content").focus()
    guest.page.keyboard.press("Control+f")
    guest.page.keyboard.type("tl.load")
    whole = int(guest.all(".find [role=status]")[0].partition(" of ")[2])
    assert whole > 1
    assert guest.page.locator(".found-here").all_text_contents() == ["tl.load"]
    guest.page.keyboard.press("Enter")
    assert guest.all(".find [role=status]") == [f"2 of {whole}"]
    guest.page.keyboard.press("Escape")
    assert guest.all(".found") == []
    assert guest.parameters() == {"panes": ["kernel"]}, "nothing else was cleared"


def test_arrow_keys_walk_over_a_table_and_enter_opens_a_row(
    visitor: Callable[..., Visitor],
) -> None:
    guest = visitor("realistic", "buffers?graph=0")
    guest.page.locator(".scroller").focus()
    for key in ("ArrowDown", "End", "ArrowUp", "Enter"):
        guest.page.keyboard.press(key)
    assert guest.parameters() == {"graph": ["0"], "buffer": ["buf2"]}


def test_a_buffer_says_whose_memory_it_takes_over(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic", "buffers?graph=0&buffer=buf2")
    details = guest.page.get_by_role("complementary", name="The chosen buffer")
    assert "buf0 (memory)" in details.inner_text()
    details.get_by_role("button", name="buf0").click()
    assert guest.parameters() == {"graph": ["0"], "buffer": ["buf0"]}
    details.get_by_role("link", name="op0").click()
    assert guest.all("h1") == ["Scheduler graph"]


def test_decompositions_of_a_compile_lead_to_what_they_became(
    visitor: Callable[..., Visitor],
) -> None:
    guest = visitor("realistic", "compiles?compile=0")
    guest.page.get_by_role("link", name="aten.native_layer_norm.default ×2").click()
    assert guest.parameters() == {"q": ["aten.native_layer_norm"]}


def test_the_configuration_that_ran_is_shown_first(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("realistic", "explorer?panes=kernel,native&op=relu")
    chosen = guest.page.get_by_label("Config").locator("option:checked").inner_text()
    assert chosen == "40 µs, ran: XBLOCK: 256, num_warps: 8"


def test_paper_has_all_rows_and_columns(visitor: Callable[..., Visitor]) -> None:
    guest = visitor("large", "kernels")
    drawn = len(guest.all("tbody tr[aria-rowindex]"))
    guest.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    guest.page.emulate_media(media="print")
    guest.settle()
    assert len(guest.all("tbody tr[aria-rowindex]")) > drawn
    wide = "table => table.scrollWidth <= table.closest('main').clientWidth"
    assert guest.page.locator(".scroller table").evaluate(wide)


def test_a_live_page_shows_graphs_as_they_are_compiled(browser: Any, tmp_path: Path) -> None:
    """The stream of a real run grows while a browser looks on."""
    folder = tmp_path / "growing"
    shutil.copytree(stored("recompiles"), folder)
    streams = {path: path.read_bytes() for path in (folder / "streams").iterdir()}
    for path, data in streams.items():
        path.write_bytes(data[: len(data) // 2])
    with LiveServer(folder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = browser.new_page()
        page.goto(server.address)
        running = page.get_by_text("this page updates by itself")
        running.wait_for()
        page.goto(f"{server.address}#/compiles")
        before = page.locator("tbody tr[aria-rowindex]").count()
        for path, data in streams.items():
            path.write_bytes(data)
        running.wait_for(state="detached")
        assert page.locator("tbody tr[aria-rowindex]").count() > before
        page.close()
        server.shutdown()
