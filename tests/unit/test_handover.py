"""What the search hands over while it goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inductoscope.doctor.failure import ERROR, Failure, Location
from inductoscope.doctor.finding import Found

FOUND = Found("0/0", Failure(ERROR, "KeyError", stage="scheduler"), operations=["aten.tanh"])


@pytest.mark.parametrize(
    ("before", "left", "is_located"),
    [(40, 0, False), (40, 40, False), (40, 2, True), (1, 1, True)],
    ids=["not cut down yet", "could not be cut down", "cut down", "nothing to cut"],
)
def test_what_is_left_of_a_graph_is_a_place_once_something_was_cut_off(
    before: int, left: int, is_located: bool
) -> None:
    found = replace(FOUND, nodes_before=before, nodes=left)
    assert found.is_located is is_located


def test_a_name_is_a_place_in_a_graph_of_any_size() -> None:
    found = replace(FOUND, nodes_before=40, nodes=40, location=Location(operation="aten.tanh"))
    assert found.is_located
