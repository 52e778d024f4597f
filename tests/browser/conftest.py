"""A browser, pages on the disk, and readers of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support import pages
from support.visitor import Visitor

CHROMIUM = os.environ.get("INDUCTOSCOPE_CHROMIUM") or shutil.which("chromium")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run",
]  # fmt: skip


def _absent(reason: str) -> None:
    if os.environ.get("INDUCTOSCOPE_BROWSER_TESTS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One Chromium for all tests of this file."""
    if CHROMIUM is None:
        _absent("no chromium on the PATH; Debian's package of that name will do")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _absent("playwright is not installed: pip install playwright")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def firefox_path() -> str:
    """Firefox itself: Playwright drives only builds of its own."""
    found = os.environ.get("INDUCTOSCOPE_FIREFOX") or shutil.which("firefox-esr")
    if found is None:
        _absent("no firefox-esr on the PATH; Debian's package of that name will do")
    assert found is not None
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The file of a page by its name; each is written once."""
    folder = tmp_path_factory.mktemp("pages")
    damaged = {f"damaged-{seed}": seed for seed in range(4)}

    def path(name: str) -> Path:
        place = folder / f"{name}.html"
        if not place.exists():
            data = pages.damaged(damaged[name]) if name in damaged else getattr(pages, name)()
            pages.write(data, place)
        return place

    return path


@pytest.fixture
def visitor(browser: Any, files: Callable[[str], Path]) -> Iterator[Callable[..., Visitor]]:
    """Opens pages; at the end nothing may have gone wrong and nothing been asked of a network."""
    opened: list[Visitor] = []

    def visit(name: str, route: str = "overview", **context: Any) -> Visitor:
        guest = Visitor(browser, files(name), **context)
        opened.append(guest)
        guest.visit(route)
        return guest

    yield visit
    for guest in opened:
        guest.context.close()
        assert guest.troubles == []
