"""Additions to mkdocs: pages from outside it, and links that lead there.

README.md becomes the first page. CONTRIBUTING.md and CHANGELOG.md become pages, and the folder of
JSON schemas gets one. A link to a file of the repository that is not on the site becomes text.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
# Files of the repository that are pages of the site.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
_SCHEMAS = "schemas/index.md"
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages whose text is not in docs/."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text("utf-8")
        files.append(File.generated(config, page, content=linked(text, source, page)))
    files.append(File.generated(config, _SCHEMAS, content=schemas_page()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn links into those of the site."""
    place = page.file.src_uri
    if place in (*PAGES.values(), _SCHEMAS):
        return markdown
    return linked(markdown, f"docs/{place}", place)


def linked(text: str, source: str, page: str) -> str:
    """A text of the repository with the links that it has to have as a page of the site."""

    def link(match: re.Match[str]) -> str:
        image, words, target, anchor = match[1], match[2], match[3], match[4] or ""
        if not target or "://" in target:
            return match[0]
        there = site_path(posixpath.normpath(posixpath.join(posixpath.dirname(source), target)))
        if there is None:
            return words
        relative = posixpath.relpath(there, posixpath.dirname(page) or ".")
        return f"{image}[{words}]({relative}{anchor})"

    return _LINK.sub(link, text)


def site_path(path: str) -> str | None:
    """The page or file of the site that a path of the repository leads to."""
    if path in PAGES:
        return PAGES[path]
    if path == "docs/schemas":
        return _SCHEMAS
    inside = path.removeprefix("docs/")
    return inside if inside != path and (ROOT / path).is_file() else None


def schemas_page() -> str:
    """The JSON schemas, one link each."""
    rows = [
        f"- [{path.name}]({path.name}): {shape['title']}"
        for path in sorted((ROOT / "docs" / "schemas").glob("*.json"))
        for described in [json.loads(path.read_text("utf-8"))]
        for shape in described.get("anyOf", [described])[:1]
    ]
    return "\n".join(["# JSON schemas", "", "See [JSON](../json.md).", "", *rows, ""])
