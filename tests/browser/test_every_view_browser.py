"""Every view by keyboard alone, and every view in Firefox."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support import pages
from support.firefox import started_firefox
from support.visitor import Visitor
from support.waiting import wait_until

# What can be operated in the content of a view, by whether a reader without a mouse gets there.
_STOPS = """() => {
    const shown = one => one.getClientRects().length > 0 && !one.disabled;
    const kinds = ['a[href]', 'button', 'input', 'select', 'summary'];
    const all = [...document.querySelectorAll(kinds.map(one => 'main ' + one).join())];
    const inRows = one => one.closest('tbody tr[tabindex]') || one.closest('[role=option]');
    return all.filter(one => shown(one) && !inRows(one) && one.tabIndex >= 0).length;
}"""
_HERE = """() => {
    const here = document.activeElement;
    if (!here || !here.closest('main')) return null;
    window.stops ??= new Map();
    if (!window.stops.has(here)) window.stops.set(here, window.stops.size);
    const style = getComputedStyle(here);
    const editor = here.closest('.cm-editor') ?? here;
    const ring = [here, editor, ...here.querySelectorAll('rect, circle')].some(one => {
        const look = getComputedStyle(one);
        const stroke = look.stroke !== 'none' && parseFloat(look.strokeWidth) >= 2;
        return stroke || look.outlineStyle !== 'none';
    });
    return {number: window.stops.get(here), visible: style.visibility !== 'hidden', ring,
            tag: here.tagName + '.' + (here.getAttribute('class') ?? '')};
}"""
# The text of the view, once nothing in it is loading.
_SHOWN = """
    const view = document.querySelector('.view');
    return view && !view.textContent.includes('Loading…') ? view.innerText.trim() : '';
"""
_SKIP = "document.querySelector('a.skip').focus()"


@pytest.mark.parametrize("route", pages.ROUTES)
def test_every_control_of_a_view_is_reached_with_the_tab_key(
    visitor: Callable[..., Visitor], route: str
) -> None:
    """From the link that skips the navigation, forwards, until the content is left."""
    guest = visitor("realistic", route)
    guest.settle()
    guest.page.evaluate(_SKIP)
    guest.page.keyboard.press("Enter")
    stops: dict[int, str] = {}
    for _ in range(300):
        guest.page.keyboard.press("Tab")
        here = guest.page.evaluate(_HERE)
        if here is None or (here["number"] in stops and len(stops) > 1):
            break
        assert here["visible"], here
        assert here["ring"], f"the focus is not seen on {here['tag']}"
        stops[here["number"]] = here["tag"]
    assert len(stops) >= guest.page.evaluate(_STOPS)
    assert len(stops) > 0


def test_every_view_is_opened_by_keyboard_from_the_navigation(
    visitor: Callable[..., Visitor],
) -> None:
    guest = visitor("realistic")
    for view in pages.VIEWS:
        link = guest.page.locator(f"nav a[href='#/{view}']")
        link.focus()
        guest.page.keyboard.press("Enter")
        guest.page.wait_for_selector(f".view-{view}")
        assert link.get_attribute("aria-current") == "page"


# --- Firefox --------------------------------------------------------------------------------------


def test_every_view_is_without_errors_in_firefox(
    tmp_path: Path, files: Callable[[str], Path], firefox_path: str
) -> None:
    address = files("realistic").as_uri()
    with started_firefox(firefox_path, tmp_path / "profile") as firefox:
        for route in pages.ROUTES:
            firefox.visit(f"{address}#/{route}")
            text = wait_until(lambda: firefox.evaluate(_SHOWN))
            assert text
            assert firefox.evaluate("return document.querySelectorAll('main *').length") > 10
        assert firefox.errors() == []
        firefox.evaluate("setTimeout(() => { throw new Error('seen') })")
        assert wait_until(lambda: [one for one in firefox.errors() if "seen" in one])
