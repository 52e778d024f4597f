"""Large recordings on the page: what is drawn stays small, however much there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support import pages
from support.examples import inductoscope, stored
from support.multiplied import multiply
from support.visitor import Visitor

# Elements of a whole page. Time depends on the machine; this does not, and time follows it.
MOST_ELEMENTS = 2000
_COUNT = "document.querySelectorAll('#root *').length"
# Pairs of boxes of the scheduler graph that cover each other.
_OVERLAPS = """() => {
    const nodes = [...document.querySelectorAll('.node rect')];
    const boxes = nodes.map(one => one.getBoundingClientRect());
    const meet = (a, b) =>
        a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    return boxes.flatMap((a, n) => boxes.slice(n + 1).filter(b => meet(a, b))).length;
}"""


def _visitor(browser: Any, data: pages.PageData, path: Path, route: str) -> Visitor:
    guest = Visitor(browser, pages.write(data, path))
    guest.visit(route)
    return guest


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_scheduler_graph_of_thousands_draws_what_is_in_sight(
    browser: Any, tmp_path: Path, when: str
) -> None:
    index, chunks = pages.realistic()
    chunks["schedule-0"] = pages.large_schedule(3000)
    path = tmp_path / "scheduled.html"
    guest = _visitor(browser, (index, chunks), path, f"scheduler?graph=0&when={when}")
    guest.page.wait_for_selector("[data-node=op3]")
    in_sight = guest.page.locator(".node").count()
    assert 10 < in_sight < 300
    assert guest.page.evaluate(_COUNT) < MOST_ELEMENTS
    assert guest.page.evaluate(_OVERLAPS) == 0
    guest.page.get_by_role("button", name="Fit").click()
    guest.page.wait_for_selector(".outlines")
    assert guest.page.evaluate(_COUNT) < MOST_ELEMENTS
    # The keyboard leads to a node that was not drawn.
    guest.visit(f"scheduler?graph=0&when={when}&node=op2500")
    guest.page.wait_for_selector("[data-node=op2500].chosen")
    guest.page.locator("[data-node=op2500]").focus()
    guest.page.keyboard.press("ArrowDown")
    guest.page.wait_for_selector("[data-node=op2501].chosen")
    assert guest.troubles == []
    guest.context.close()


def test_a_line_leads_from_above_to_below(browser: Any, tmp_path: Path) -> None:
    """A producer stands above its consumers, also where nodes are fused."""
    index, chunks = pages.realistic()
    chunks["schedule-0"] = pages.large_schedule(12)
    guest = _visitor(browser, (index, chunks), tmp_path / "lines.html", "scheduler?graph=0")
    guest.page.wait_for_selector("[data-node=op3]")
    tops = guest.page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('.node')]"
        ".map(one => [one.dataset.node, one.getBoundingClientRect().top]))"
    )
    edges = chunks["schedule-0"]["edges"]
    shown = [edge for edge in edges if edge["writer"] in tops and edge["reader"] in tops]
    assert len(shown) > 10
    assert [edge for edge in shown if tops[edge["writer"]] >= tops[edge["reader"]]] == []
    guest.context.close()


@pytest.mark.parametrize(
    "view", ["overview", "explorer", "scheduler", "ledger", "kernels", "compiles", "timeline"]
)
def test_no_view_of_two_thousand_kernels_is_large(browser: Any, files: Any, view: str) -> None:
    guest = Visitor(browser, files("large"))
    guest.visit(view)
    guest.settle()
    assert guest.page.evaluate(_COUNT) < MOST_ELEMENTS
    assert guest.troubles == []
    guest.context.close()


def test_a_made_up_page_of_twenty_thousand_kernels_is_small_in_every_view(
    browser: Any, files: Any
) -> None:
    """Data made up for the page, with 10,000 fusion decisions: nothing is cut, the last opens."""
    _visit_twenty_thousand(browser, files("huge"), "graph=399&kernel=triton_fused_399_49")


def test_a_recording_of_twenty_thousand_kernels_opens(browser: Any, tmp_path: Path) -> None:
    """The events of a recorded compile, 200 times with 100 kernels each, through the command."""
    once, page = stored("relu_add_sum"), tmp_path / "many.html"
    recording = multiply(once, tmp_path / "many", compiles=200, kernels=100)
    answer = inductoscope("report", recording, "-o", page, "--assembly", "0")
    assert answer.exit_code == 0, answer.stderr
    _visit_twenty_thousand(browser, page, "graph=199&kernel=cpp_fused_add_relu_sum_0_99")


def _visit_twenty_thousand(browser: Any, page: Path, last: str) -> None:
    """Every view stays small, the table has every row, and the last kernel opens."""
    guest = Visitor(browser, page)
    guest.visit("kernels")
    assert guest.all(".count") == ["20,000 rows"]
    for view in pages.VIEWS:
        guest.visit(view)
        guest.settle()
        assert guest.page.evaluate(_COUNT) < MOST_ELEMENTS, view
    guest.visit(f"explorer?{last}")
    guest.page.wait_for_selector("[data-pane=kernel] .mark")
    assert guest.troubles == []
    guest.context.close()
