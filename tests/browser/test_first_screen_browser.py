"""Where time goes, in a browser: the model as areas and as a tree, and what was measured."""

from __future__ import annotations

from collections.abc import Callable

from support.visitor import Visitor


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
