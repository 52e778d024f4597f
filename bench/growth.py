"""How the doctor's steps grow with the program, beside the plain compile: make bench-growth.

Programs of more and more small graphs, and of one larger and larger graph, run plainly and under
the doctor, which finds them clean. All graphs have kernels of the same text, so that the C++
compiler has little to do; graph caches are off, and torch's precompiled headers are made before.
From the processor seconds of each step those for the smallest program are taken off, which is what
starting costs. What is left is fitted by a power of the size (least squares of the logarithms). The
figure is the exponent, with one standard error to either side: 1 is linear, 2 is quadratic. The
goal is 1.5, or the exponent of the plain compile where that is larger. Where a size failed nothing
is concluded: what it would have taken is not known.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from battery.models.catalogue import Model
from battery.models.trial import Conditions, run_doctor, run_plain
from battery.workplace import workplace
from bench.figures import finish, show_value
from bench.measurement import Measurement

GOAL = 1.5
# Steps that take less than this at the largest size are noise.
_LEAST_SECONDS = 0.3
_GRAPHS_OF_FUNCTION = 5
_NODES_OF_LAYER = 5

_HEAD = '''"""A program of {size} {kind}, written by bench/growth.py."""
import torch
import torch._functorch.config
import torch._inductor.config

torch._inductor.config.fx_graph_cache = False
torch._functorch.config.enable_autograd_cache = False
'''


def write_graphs(size: int) -> str:
    """Functions of a few graphs: a single one would nest as deep as there are graphs."""
    lines = [_HEAD.format(size=size, kind="graphs")]
    for first in range(0, size, _GRAPHS_OF_FUNCTION):
        count = min(_GRAPHS_OF_FUNCTION, size - first)
        lines += ["", f"def part_{first}(x):"]
        for number in range(count):
            lines += ["    torch._dynamo.graph_break()"] if number else []
            lines += ["    x = torch.sin(x) * 0.5 + torch.cos(x)"]
        lines += ["    return x", ""]
    lines += ["", "x = torch.linspace(0.0, 1.0, 64)"]
    parts = range(0, size, _GRAPHS_OF_FUNCTION)
    lines += [f"x = torch.compile(part_{first})(x)" for first in parts]
    return "\n".join([*lines, "print(x.sum().item())", ""])


def write_nodes(size: int) -> str:
    """One graph: matrix products with the same few operations between them."""
    layers = max(1, size // _NODES_OF_LAYER)
    return _HEAD.format(size=size, kind="nodes") + (
        "\n\n@torch.compile\ndef network(x, w):\n"
        f"    for _ in range({layers}):\n"
        "        x = torch.tanh(x @ w) * 0.5 + x * 0.5\n"
        "    return x\n\n\n"
        "torch.manual_seed(0)\n"
        "x, w = torch.randn(16, 16), torch.randn(16, 16) / 4\n"
        "print(network(x, w).sum().item())\n"
    )


@dataclass(frozen=True)
class Kind:
    """A way in which programs grow."""

    name: str
    write: Callable[[int], str]
    sizes: tuple[int, ...]
    # The program whose cost is that of starting.
    least: int


KINDS = (
    Kind("graphs", write_graphs, (50, 100, 200, 400, 1000), 1),
    Kind("nodes", write_nodes, (300, 600, 1200, 2500, 5000), _NODES_OF_LAYER),
)

PLAIN, WHOLE = "the plain compile", "the doctor, all of it"


@dataclass(frozen=True)
class Point:
    """Cost of one program: processor seconds by step."""

    size: int
    seconds: dict[str, float] = field(default_factory=dict)
    failure: str = ""


def measure(kind: Kind, size: int, folder: Path, limit: float) -> Point:
    path = folder / f"{kind.name}_{size}.py"
    path.write_text(kind.write(size))
    # Which vector instructions compile is tried once more in every empty cache otherwise.
    model, conditions = Model(path.stem, path), Conditions(limit, has_probes=False)
    plain, plain_cost = run_plain(model, folder, conditions)
    if plain.exit_code != 0:
        return Point(size, failure=f"the plain run: {_ending(plain.exit_code, plain.output)}")
    outcome, cost, verdict = run_doctor(model, folder, conditions)
    seconds = {PLAIN: plain_cost.cpu_seconds, WHOLE: cost.cpu_seconds, **read_steps(verdict)}
    if verdict.get("verdict") != "clean":
        said = verdict.get("summary") or _ending(outcome.exit_code, outcome.output)
        return Point(size, failure=f"the doctor: {said}")
    return Point(size, seconds)


def _ending(code: int | None, output: str) -> str:
    last = (output.strip() or "nothing was printed").rpartition("\n")[2]
    return f"no end within the limit ({last})" if code is None else f"exit code {code} ({last})"


def read_steps(verdict: dict[str, Any]) -> dict[str, float]:
    """Processor seconds by process and step, where the verdict has them."""
    found: dict[str, float] = {}
    for entry in verdict.get("time") or ():
        name = f"{entry['process']}: {entry['step']}"
        found[name] = found.get(name, 0.0) + entry["cpu_seconds"]
    return found


@dataclass(frozen=True)
class Fit:
    """An exponent with its standard error, which two points do not have."""

    exponent: float
    error: float | None

    @property
    def runs(self) -> tuple[float, ...]:
        if self.error is None:
            return (self.exponent,)
        return self.exponent - self.error, self.exponent, self.exponent + self.error


def fit(points: Iterable[tuple[int, float]]) -> Fit | None:
    """The slope of logarithms; None without two sizes that took any time."""
    logs = [(math.log(size), math.log(value)) for size, value in points if value > 0]
    if len(logs) < 2:
        return None
    mean_x, mean_y = (sum(column) / len(logs) for column in zip(*logs, strict=True))
    width = sum((x - mean_x) ** 2 for x, _ in logs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in logs) / width
    left = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in logs)
    error = math.sqrt(left / (len(logs) - 2) / width) if len(logs) > 2 else None
    return Fit(slope, error)


def summarize(kind: str, least: Point, points: Sequence[Point]) -> list[Measurement]:
    """The exponent of every step that takes long enough to have one."""
    good = [point for point in points if not point.failure]
    failed = [f"{p.size:,} {kind}: {p.failure}" for p in (least, *points) if p.failure]
    plain = fit(_grown(PLAIN, least, good))
    goal = max(GOAL, plain.exponent) if plain else GOAL
    found = []
    for step in [*dict.fromkeys(name for point in good for name in point.seconds)] or [WHOLE]:
        grown = [*_grown(step, least, good)]
        if step in (PLAIN, WHOLE) or max(value for _, value in grown) >= _LEAST_SECONDS:
            own = None if step == PLAIN else goal
            found.append(_of_step(f"{kind}: {step}", grown, own, failed))
    return found


def _of_step(
    name: str, grown: Sequence[tuple[int, float]], goal: float | None, failed: Sequence[str]
) -> Measurement:
    fitted = fit(grown)
    shown = ", ".join(f"{value:.1f} s for {size:,}" for size, value in grown)
    left = f"exponent of the others {show_value(fitted.exponent, '')}" if failed and fitted else ""
    return Measurement(
        name=name,
        unit="",
        ours=fitted.runs if fitted and not failed else (),
        goal=goal,
        why_failed="; ".join(failed) or "too few sizes",
        note="; ".join(filter(None, (shown, left))),
    )


def _grown(step: str, least: Point, points: Sequence[Point]) -> Iterable[tuple[int, float]]:
    """Without what the smallest program took, too."""
    for point in points:
        yield point.size, point.seconds.get(step, 0.0) - least.seconds.get(step, 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    names = [kind.name for kind in KINDS]
    parser.add_argument("--kind", action="append", choices=names, help="only this kind")
    parser.add_argument("--sizes", type=int, nargs="+", help="instead of the usual ones")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds for one run")
    parser.add_argument("--json", type=Path, help="write the measurements to this file")
    options = parser.parse_args()
    measurements = []
    with workplace("bench-growth") as folder:
        _make_headers(folder, options.limit)
        for kind in KINDS:
            if options.kind and kind.name not in options.kind:
                continue
            sizes = (kind.least, *(options.sizes or kind.sizes))
            least, *points = (_measured(kind, size, folder, options.limit) for size in sizes)
            measurements += summarize(kind.name, least, points)
    finish(measurements, options.json)


def _make_headers(folder: Path, limit: float) -> None:
    """torch precompiles C++ headers once, outside of any cache that is emptied."""
    path = folder / "headers.py"
    path.write_text(write_graphs(1))
    run_plain(Model(path.stem, path), folder, Conditions(limit, has_probes=False))


def _measured(kind: Kind, size: int, folder: Path, limit: float) -> Point:
    point = measure(kind, size, folder, limit)
    shown = ", ".join(f"{name} {seconds:.1f}" for name, seconds in point.seconds.items())
    print(f"  {size} {kind.name}: {point.failure or shown}", file=sys.stderr, flush=True)
    return point


if __name__ == "__main__":
    main()
