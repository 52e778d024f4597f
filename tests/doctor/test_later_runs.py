"""When everything is compiled already: cache hits, and later calls of compiled code."""

from __future__ import annotations

import pytest

from support.programs import Outcome, Workplace

COUNT_CALLS = """
import sys, torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
compiled = torch.compile(model)
x = torch.randn(4, 8)
for _ in range(3):
    compiled(x).sum().backward()
counts = {}
def count(frame, event, argument):
    counts[event] = counts.get(event, 0) + 1
sys.setprofile(count)
compiled(x).sum().backward()
sys.setprofile(None)
print(sorted(counts.items()))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Outcome, Outcome]:
    """The same program three times: into an empty cache, out of it, and without the tool."""
    folder = tmp_path_factory.mktemp("later")
    place = Workplace(folder, folder / "cache")
    place.write("count.py", COUNT_CALLS)
    first, second = (
        Outcome(run.exit_code, run.stdout, run.stderr, folder / name)
        for name in ("first", "second")
        for run in [place.run("count.py", options=("--output", str(folder / name)))]
    )
    return first, second, place.run_plain("count.py")


# --- the second run: everything is in the cache ---------------------------------------------------


def test_a_cache_hit_is_said_with_the_way_to_see_the_stages(
    runs: tuple[Outcome, Outcome, Outcome],
) -> None:
    first, second, _ = runs
    assert "run --fresh" not in first.stderr
    assert "run --fresh" in second.stderr
    kept = second.recording
    assert not first.recording.graphs[0].cached
    assert kept.graphs[0].cached
    assert "async_compile" in kept.payload(kept.graphs[0].wrapper)


# --- calls of compiled code -----------------------------------------------------------------------


def test_a_call_of_compiled_code_runs_nothing_of_the_scope(
    runs: tuple[Outcome, Outcome, Outcome],
) -> None:
    """Calls are counted, of Python and of C functions: a clock would say less."""
    _, recorded, plain = runs
    assert recorded.exit_code == 0, recorded.stderr
    assert recorded.stdout == plain.stdout
