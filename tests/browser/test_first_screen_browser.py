"""Where time goes, in a browser: the model as areas and as a tree, and what was measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.examples import inductoscope, stored
from support.visitor import Visitor

# The headings whose beginning is on the first screen, in their order.
_ON_FIRST_SCREEN = """() => [...document.querySelectorAll('.overview h2, .overview svg.treemap')]
    .filter(one => one.getBoundingClientRect().top < innerHeight - 40)
    .map(one => one.id || one.getAttribute('class'))"""


@pytest.mark.parametrize(
    ("name", "sentence", "first"),
    [
        ("killed_while_lowering", "The program was killed by SIGKILL", "findings-title"),
        (
            "refused_by_compiler",
            "The compile of inner failed in stage cpp-compile",
            "findings-title",
        ),
        ("graph_breaks", "3 compiles made 3 graphs with 3 kernels. Graph break:", "compile-cost"),
        ("profiled_layers", "1 compile made 1 graph with 5 kernels. No rule", "compile-cost"),
    ],
)
def test_the_first_screen_answers_with_what_the_recording_holds(
    browser: Any, tmp_path: Path, name: str, sentence: str, first: str
) -> None:
    """The problem, if there is one; else what compiling and running cost, with its picture."""
    page = tmp_path / "page.html"
    assert inductoscope("report", stored(name), "-o", page).exit_code == 0
    guest = Visitor(browser, page)
    guest.visit("overview")
    said = guest.all(".overview > .lead, .finding h3")[0]
    assert sentence in " ".join(said.split())
    shown = guest.page.evaluate(_ON_FIRST_SCREEN)
    assert shown[0] == first
    if first == "compile-cost":
        assert shown[:3] == ["compile-cost", "run-cost", "treemap"]
    assert guest.troubles == []
    guest.context.close()


def test_the_model_is_shown_by_measured_time_and_leads_to_the_code(
    visitor: Callable[..., Visitor],
) -> None:
    """Two layers that are made alike are one; choosing one selects its operations."""
    guest = visitor("realistic")
    assert "in kernels, measured" in guest.page.locator("#run-cost").inner_text()
    assert guest.page.locator(".treemap a[aria-label*='2 of Gated']").count() == 1
    rows = guest.all(".module-tree > li > ul > li > .module-row")
    assert rows[0].replace("\n", " ").startswith("▸ layers.0 … layers.1 ×2 Gated")
    assert "measured" in rows[0]
    guest.page.locator(".module-tree a.mono", has_text="layers.0").first.click()
    guest.page.wait_for_selector("[data-pane=kernel]")
    assert guest.parameters()["module"] == ["layers.0"]
    chosen = guest.all(".operations [aria-selected=true]")
    assert len(chosen) == 4, chosen
    guest.page.keyboard.press("Escape")
    assert "module" not in guest.parameters()


def test_kernels_stand_under_the_roof_and_a_call_has_its_gaps(
    visitor: Callable[..., Visitor],
) -> None:
    guest = visitor("realistic", "runtime")
    assert guest.page.locator(".roofline a").count() == 2
    first, second = guest.all(".waterfall li")
    assert "+17 µs" in second
    assert "+" not in first.replace("\n", " ").split("µs")[1]
    guest.page.locator(".waterfall a").first.click()
    guest.page.wait_for_selector("[data-pane=kernel]")
    assert guest.parameters()["kernel"] == ["triton_per_fused_native_layer_norm_0"]


def test_the_flame_graph_of_compile_time_is_walked_by_keyboard(
    visitor: Callable[..., Visitor],
) -> None:
    guest = visitor("realistic", "timeline?as=sum")
    frames = guest.all(".frames .frame")
    assert frames[0].startswith("the program's threads")
    guest.page.locator(".frames .frame").nth(1).focus()
    guest.page.keyboard.press("Enter")
    assert guest.all(".frames .frame")[0] == frames[1]
    assert len(guest.all(".breadcrumbs button")) == 3
