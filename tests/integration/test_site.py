"""The docs as a site: every page, every link, every schema, and nothing from another host."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("material", reason="mkdocs-material is not installed: pip install '.[docs]'")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make site` does: a broken link or a page without a place is an error."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_document_is_a_page(site: Path) -> None:
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    sources = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    assert pages >= {path.with_suffix(".html").as_posix() for path in sources}
    assert pages >= {"index.html", "contributing.html", "changelog.html", "schemas/index.html"}
    assert "One command tells you what is wrong" in (site / "index.html").read_text("utf-8")


def test_the_schemas_are_published_as_they_are(site: Path) -> None:
    for path in (ROOT / "docs" / "schemas").glob("*.json"):
        assert json.loads((site / "schemas" / path.name).read_text("utf-8")) == json.loads(
            path.read_text("utf-8")
        )
        assert f'href="{path.name}"' in (site / "schemas" / "index.html").read_text("utf-8")


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    loads = re.compile(
        r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//"
        r"|<link\b[^>]*\brel=[\"']?(?:stylesheet|icon|preconnect|preload)[^>]*href=[\"']?https?://"
        r"|@import\s+[\"'(]|url\([\"']?https?://"
    )
    texts = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(texts) > 40
    for path in texts:
        found = loads.search(path.read_text("utf-8", errors="replace"))
        assert found is None, f"{path.name}: {found[0] if found else ''}"


def test_no_tool_of_the_docs_is_published(site: Path) -> None:
    assert not list(site.rglob("*.py"))
    assert not (site / "guides" / "ran").exists()
