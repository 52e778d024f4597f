"""The built files of the page are those of the sources beside them; nothing of it needs node."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from inductoscope.views.page.document import asset

WEB = Path(__file__).parents[2] / "web"
checkout = pytest.mark.skipif(not WEB.is_dir(), reason="the sources of the page are not here")


def _fingerprint() -> str:
    """As web/build.mjs computes it."""
    files = [path for path in (WEB / "src").rglob("*") if path.is_file()]
    files += [WEB / "package-lock.json", WEB / "build.mjs"]
    named = sorted((path.relative_to(WEB).as_posix(), path) for path in files)
    digest = hashlib.sha256()
    for name, path in named:
        digest.update(f"{name}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


@checkout
def test_assets_were_built_from_these_sources() -> None:
    assert asset("built_from.txt").strip() == _fingerprint(), (
        "run: cd web && npm ci && npm run build"
    )


@checkout
def test_versions_are_exact_and_name_no_place_to_download_from() -> None:
    wanted = json.loads((WEB / "package.json").read_text(encoding="utf-8"))["devDependencies"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in wanted.values())
    lock = (WEB / "package-lock.json").read_text(encoding="utf-8")
    assert "resolved" not in lock
    assert "integrity" in lock


def test_bundle_fits_into_a_page() -> None:
    """It is small, asks for nothing, evaluates no text and cannot end its own element."""
    script = asset("page.js")
    assert len(script) < 1_200_000
    for forbidden in (
        "</script",
        "<!--",
        "eval(",
        "new Function(",
        "new Worker(",
        "XMLHttpRequest",
    ):
        assert forbidden not in script
    assert "</style" not in asset("page.css")
    assert "url(" not in asset("page.css")


def test_licences_of_the_libraries_come_with_them() -> None:
    licences = asset("THIRD_PARTY_LICENSES.txt")
    for library in (
        "preact",
        "@codemirror/view",
        "@tanstack/virtual-core",
        "d3-scale",
    ):
        assert f"{library} " in licences
    assert "Permission is hereby granted" in licences
