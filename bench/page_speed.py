"""How fast a page opens and switches: python -m bench.page_speed PAGE.html [TURNS].

Opened in Chromium, from disk. A switch is a click on a link of the navigation, until the view is
there with what it inflates. The clock is the page's own; the middle of the turns counts.
"""

from __future__ import annotations

import shutil
import statistics
import sys
from pathlib import Path
from typing import Any

from bench.report import CHROMIUM_OPTIONS, first_views

GOALS = {"first view": 1.0, "switch": 0.3}

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


def switches(path: Path, turns: int) -> dict[str, list[float]]:
    """Seconds that it takes to get to each view, from the first view."""
    from playwright.sync_api import sync_playwright

    found: dict[str, list[float]] = {}
    with sync_playwright() as playwright:
        browser = shutil.which("chromium")
        chromium = playwright.chromium.launch(executable_path=browser, args=CHROMIUM_OPTIONS)
        for _ in range(turns):
            page = chromium.new_page()
            page.goto(path.absolute().as_uri())
            page.wait_for_selector("h1")
            for name in _views(page):
                seconds = page.evaluate(_SWITCH, name) / 1000
                found.setdefault(name, []).append(seconds)
            page.close()
    return found


def _views(page: Any) -> list[str]:
    links = page.locator("nav a").evaluate_all("all => all.map(a => a.hash.slice(2))")
    return [name for name in links if name != "overview"] + ["overview"]


def main() -> None:
    """Measure and show."""
    path, turns = Path(sys.argv[1]), int([*sys.argv[2:], "3"][0])
    first = statistics.median(first_views(path.absolute(), turns))
    print(f"{'first view':12} {first:.2f} s (goal {GOALS['first view']} s)")
    for name, seconds in switches(path, turns).items():
        middle, slowest = statistics.median(seconds), max(seconds)
        print(f"{name:12} {middle:.2f} s, slowest {slowest:.2f} s (goal {GOALS['switch']} s)")


if __name__ == "__main__":
    main()
