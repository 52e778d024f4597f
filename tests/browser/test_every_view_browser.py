"""Every view by keyboard alone, and every view in Firefox."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support import pages
from support.firefox import started_firefox
from support.visitor import Visitor
from support.waiting import wait_until

# What a reader without a mouse must get to in each view, by the name that is read out.
_TABLE = ("Filter",)
REACHABLE = {
    "overview": (
        *("Copy workaround", "Copy reproducer", "Copy report", "Copy: Workaround"),
        *("lowering: 1.26 s, 11 %", "Parts of layers.0 … layers.1", "layers.0 … layers.1"),
        "Compiles, rows",
    ),
    "timeline": (
        "In order of time",
        "Added up (flame graph)",
        "Flame chart",
        "Spans, rows",
        *_TABLE,
    ),
    "timeline?as=sum": ("In order of time", "the program's threads", "Spans, rows", *_TABLE),
    "runtime": ("triton_per_fused", "Kernels of one call", "Measured kernels, rows", *_TABLE),
    "explorer?op=relu&panes=python,ir,native": (
        *("Graph", "Python", "Find an operation", "Operations", "Python, code"),
        *("Find in Python, code", "Copy all of Python", "Hide Python"),
        *("Width of the pane", "Kernel", "Form", "Native, code"),
    ),
    "memory": ("Compiled", "In eager", "Alive at the peak, rows", *_TABLE),
    "memory?run=eager": ("Compiled", "In eager", "Alive at the peak, rows", *_TABLE),
    "advice": ("Copy: torch._inductor.config.cpp.simdlen = 256",),
    "compiletime": ("Stage", "Stages, rows"),
    "passes": (
        "Graph",
        "Passes that changed the graph",
        "Copy before",
        "Copy after",
        "What the pass did",
    ),
    "scheduler": (
        "Graph",
        "Before fusion",
        "After fusion",
        "Larger",
        "Smaller",
        "Fit",
        "var_mean",
    ),
    "scheduler?node=op3": (
        *("Close the details", "Show in the linked panes", "Its fusion decisions"),
    ),
    "ledger?row=2": (
        *("All 4", "Fused 2", "Refused 1", "Never tried 1", "Cause", "Fusion decisions, rows"),
        *("Close the details", "Show in the scheduler graph", "Show in the linked panes", *_TABLE),
    ),
    "buffers?graph=0&buffer=buf2": (
        *("Graph", "All", "Reused memory", "Buffers, rows", "Close the details", *_TABLE),
    ),
    "autotune": ("Searches", "Choices, rows"),
    "compiles?compile=0": ("Compiles, rows", "12 guards"),
    "compiles?kind=recompiles": ("Compiles, rows",),
    "kernels": ("Kernel", "Kernels, rows", *_TABLE),
    "search?q=relu": ("Words", "Results, rows"),
}
# How a control is read out.
_NAMES = """() => {
    window.nameOf = one => {
        const label = one.getAttribute('aria-label') ?? one.labels?.[0]?.textContent;
        return (label ?? one.textContent).replace(/\\s+/g, ' ').trim().slice(0, 90);
    };
}"""
# Controls in the content of a view to which the Tab key has not led. Rows have the arrow keys.
_MISSED = """() => {
    const shown = one => one.checkVisibility() && !one.disabled;
    const kinds = ['a[href]', 'button', 'input', 'select', 'summary', '[tabindex="0"]'];
    const all = [...document.querySelectorAll(kinds.map(one => 'main ' + one).join())];
    const inRows = one => one.closest('tbody tr[tabindex]') || one.closest('[role=option]');
    const missed = all.filter(one => shown(one) && !inRows(one) && !window.stops.has(one));
    return missed.map(window.nameOf);
}"""
_HERE = """() => {
    const here = document.activeElement;
    if (!here || !here.closest('main')) return null;
    const again = (window.stops ??= new Set()).has(here);
    window.stops.add(here);
    const editor = here.closest('.cm-editor') ?? here;
    const ring = [here, editor, ...here.querySelectorAll('rect, circle')].some(one => {
        const look = getComputedStyle(one);
        const stroke = look.stroke !== 'none' && parseFloat(look.strokeWidth) >= 2;
        return stroke || look.outlineStyle !== 'none';
    });
    const visible = getComputedStyle(here).visibility !== 'hidden';
    return {name: window.nameOf(here), again, visible, ring};
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
    guest.page.evaluate(_NAMES)
    guest.page.evaluate(_SKIP)
    guest.page.keyboard.press("Enter")
    reached: list[str] = []
    for _ in range(300):
        guest.page.keyboard.press("Tab")
        here = guest.page.evaluate(_HERE)
        if here is None or here["again"]:
            break
        assert here["visible"], here
        assert here["ring"], f"the focus is not seen on {here['name']}"
        reached.append(here["name"])
    wanted = [name for name in REACHABLE[route] if not any(one.startswith(name) for one in reached)]
    assert wanted == [], reached
    assert guest.page.evaluate(_MISSED) == []


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
