"""When everything is compiled already: cache hits, and later calls of compiled code."""

from __future__ import annotations

from support.programs import Outcome, Workplace

# --- the second run: everything is in the cache ---------------------------------------------------


def test_a_cache_hit_is_said_with_the_way_to_see_the_stages(workplace: Workplace) -> None:
    workplace.write(
        "again.py", "import torch\ntorch.compile(lambda x: x.sin() + 1)(torch.ones(16))"
    )
    first = workplace.run("again.py", options=("--output", str(workplace.folder / "first")))
    second = workplace.run("again.py", options=("--output", str(workplace.folder / "second")))
    assert "came from a cache" not in first.stderr
    assert "came from a cache" in second.stderr
    assert "run --fresh" in second.stderr
    kept = Outcome(0, "", "", workplace.folder / "second").recording
    assert kept.graphs[0].cached
    assert "async_compile" in kept.payload(kept.graphs[0].wrapper)


# --- calls of compiled code -----------------------------------------------------------------------

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


def test_a_call_of_compiled_code_runs_nothing_of_the_scope(workplace: Workplace) -> None:
    """Calls are counted, of Python and of C functions: a clock would say less."""
    workplace.write("count.py", COUNT_CALLS)
    workplace.run_plain("count.py")  # Fills the cache, so that both runs below take the same way.
    recorded = workplace.run("count.py")
    plain = workplace.run_plain("count.py")
    assert recorded.exit_code == 0, recorded.stderr
    assert recorded.stdout == plain.stdout
