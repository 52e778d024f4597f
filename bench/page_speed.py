"""How fast a page opens and switches: python -m bench.page_speed PAGE.html [TURNS].

Opened in Chromium, from disk. A switch is a click on a link of the navigation, until the view is
there with what it inflates. The clock is the page's own; the middle of the turns counts.
"""

from __future__ import annotations

import shutil
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

GOALS = {"first view": 1.0, "switch": 0.2}
CHROMIUM_OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]

Measured = TypeVar("Measured")

# Clicks, then looks at every frame whether the view is there.
_SWITCH = """name => new Promise(done => {
    const link = [...document.querySelectorAll('nav a')].find(a => a.hash === '#/' + name);
    const began = performance.now();
    link.click();
    const look = () => {
        const view = document.querySelector('.view-' + name);
        const loads = !view || view.textContent.includes('Loading…');
        const there = !loads && view.querySelector('h1, .empty');
        if (there) requestAnimationFrame(() => done(performance.now() - began));
        else requestAnimationFrame(look);
    };
    look();
})"""


def why_not_measured() -> str:
    """Programs missing to open a page; empty where nothing is."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "Playwright is not installed (pip install playwright)"
    return "" if _browser() else "there is no Chromium (apt-get install chromium)"


def _browser() -> str | None:
    return shutil.which("chromium") or shutil.which("google-chrome")


def _in_chromium(measure: Callable[[Any], Measured]) -> Measured:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=_browser(), args=CHROMIUM_OPTIONS)
        return measure(chromium)


def first_views(page: Path, turns: int) -> list[float]:
    """Seconds until the first view is there."""
    return _in_chromium(lambda chromium: [_first_view(chromium, page) for _ in range(turns)])


def _first_view(chromium: Any, path: Path) -> float:
    page = chromium.new_page()
    page.goto(path.absolute().as_uri(), wait_until="commit")
    page.wait_for_selector("h1")
    milliseconds = page.evaluate(
        "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? performance.now()"
    )
    page.close()
    return float(milliseconds) / 1000


def switches(path: Path, turns: int) -> dict[str, list[float]]:
    """Seconds that it takes to get to each view, one after the other."""
    return _in_chromium(lambda chromium: _switches(chromium, path, turns))


def _switches(chromium: Any, path: Path, turns: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for _ in range(turns):
        page = chromium.new_page()
        page.goto(path.absolute().as_uri())
        page.wait_for_selector("h1")
        for name in _views(page):
            found.setdefault(name, []).append(page.evaluate(_SWITCH, name) / 1000)
        page.close()
    return found


def _views(page: Any) -> list[str]:
    links = page.locator("nav a").evaluate_all("all => all.map(a => a.hash.slice(2))")
    return [name for name in links if name != "overview"] + ["overview"]


def main() -> None:
    """Measure and show."""
    path, turns = Path(sys.argv[1]), int([*sys.argv[2:], "3"][0])
    if why_not_measured():
        sys.exit(f"Nothing was measured: {why_not_measured()}.")
    first = statistics.median(first_views(path, turns))
    print(f"{'first view':12} {first:.2f} s (goal {GOALS['first view']} s)")
    for name, seconds in switches(path, turns).items():
        middle, slowest = statistics.median(seconds), max(seconds)
        print(f"{name:12} {middle:.2f} s, slowest {slowest:.2f} s (goal {GOALS['switch']} s)")


if __name__ == "__main__":
    main()
