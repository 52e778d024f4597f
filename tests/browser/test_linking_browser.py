"""Links made in the browser and in Python are the same: both, for every stored recording."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inductoscope.model.fold import load
from inductoscope.views.page.contents import Contents
from inductoscope.views.page.document import compact, write_page
from support.examples import NAMES, stored
from support.linking import linked_panes

# Maps become objects on the way to Python, and lines are asked for pane by pane.
_PANES = """async name => {
    const plain = value => value instanceof Map ? Object.fromEntries(value) : value;
    const { panes, operations, kernels } = await linkedPanes(name);
    const asked = lines => Object.fromEntries(
        panes.map(({ id }) => [id, lines.get(id)]).filter(([, there]) => there.length)
    );
    return {
        panes: panes.map(({ labels, ...pane }) => pane),
        operations: operations.map(
            one => ({ ...one, lines: asked(one.lines), leads: asked(one.leads) })
        ),
        kernels: kernels.map(one => ({ ...one, facts: plain(one.facts) })),
    };
}"""


@pytest.mark.parametrize("name", NAMES)
def test_panes_are_linked_alike(name: str, browser: Any, tmp_path: Path) -> None:
    recording = load(stored(name))
    contents = Contents(recording)
    write_page(contents, tmp_path / "page.html")
    page = browser.new_page()
    try:
        page.goto((tmp_path / "page.html").as_uri())
        for number in contents.graphs:
            expected = json.loads(compact(linked_panes(recording, number)))
            found = page.evaluate(_PANES, f"sources-{number}")
            assert found["panes"] == expected["panes"]
            assert found["operations"] == expected["operations"]
            assert found["kernels"] == expected["kernels"]
    finally:
        page.close()
