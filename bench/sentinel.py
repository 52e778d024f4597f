"""Cost of the sentinel, and how soon it notices a fault: make bench-sentinel.

Every measurement is a training run in a new process, with a warm cache. The cost is measured in
turns, without and with the sentinel, as seconds of a step. The fault is a gradient of GELU that is
too large by a factor of 1.001. Runs without a fault shadow every call, with new data in every step
and with the same batch for ever, which is what makes rounding look like a bias.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from battery.workplace import workplace

KINDS = ("float32", "bfloat16", "float32 dropout", "bfloat16 dropout")
# As much as it takes to shadow every call.
EVERY_CALL = 1e6

Result = dict[str, Any]


def train(kind: str, steps: int, overhead: float, *, faulty: bool, width: int) -> Result:
    """Train in this process, and say how it went."""
    import torch

    import inductoscope

    if faulty:
        _plant()
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(width, 2 * width),
        torch.nn.GELU(),
        torch.nn.Dropout(0.1 if "dropout" in kind else 0.0),
        torch.nn.LayerNorm(2 * width),
        torch.nn.Linear(2 * width, 10),
    )

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled="bfloat16" in kind):
            return torch.nn.functional.cross_entropy(net(x).float(), y)

    step = torch.compile(loss_of)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    same = torch.randn(64, width), torch.randint(0, 10, (64,))

    def run() -> float:
        started = 0.0
        for number in range(steps):
            x, y = same if "same batch" in kind else (torch.randn_like(same[0]), same[1])
            loss = step(x, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if number == 9:
                started = time.perf_counter()
        return (time.perf_counter() - started) / (steps - 10)

    if not overhead:
        return {"seconds": run()}
    with tempfile.TemporaryDirectory() as folder:
        with inductoscope.sentinel(overhead=overhead, output=Path(folder) / "watched") as watch:
            seconds = run()
        shadows = _shadowed(watch.path)
        alarms = [
            {"calls": alarm.calls, "shadowed": alarm.shadowed, "bias": alarm.bias}
            for alarm in watch.alarms
        ]
    return {"seconds": seconds, "shadowed": shadows, "alarms": alarms}


def _plant() -> None:
    import torch
    from torch._inductor import decomposition

    operation = torch.ops.aten.gelu_backward.default
    right = decomposition.decompositions[operation]
    decomposition.decompositions[operation] = lambda *a, **k: right(*a, **k) * 1.001


def _shadowed(recording: Path) -> int:
    from inductoscope.doctor.sentinel_run import read_shadows

    return sum(map(len, read_shadows(recording).shadowed.values()))


def child(kind: str, steps: int, overhead: float, *more: str) -> Result:
    """The same in a new process. A cached graph would not know of a planted fault."""
    command = [sys.executable, "-m", "bench.sentinel", "--child", kind, str(steps), str(overhead)]
    caches = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
    done = subprocess.run(
        [*command, *more],
        env={**os.environ, **caches},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    result: Result = json.loads(done.stdout.splitlines()[-1])
    print(f"  {kind} {steps} steps {' '.join(more)}: {result}", file=sys.stderr, flush=True)
    return result


def measure_cost(turns: int, steps: int) -> dict[str, list[float]]:
    """Seconds of a step without and with the sentinel, in turns."""
    found: dict[str, list[float]] = {"plain": [], "watched": []}
    for _ in range(turns):
        found["plain"].append(child("float32", steps, 0.0)["seconds"])
        found["watched"].append(child("float32", steps, 0.05)["seconds"])
    return found


def measure_all(options: argparse.Namespace) -> dict[str, Any]:
    """The cost, then runs with a fault and without."""
    small = ("--width", "64")
    return {
        "cost": measure_cost(options.turns, options.cost_steps),
        "faulty": {
            kind: child(kind, options.fault_steps, EVERY_CALL, "--faulty", *small) for kind in KINDS
        },
        "right": {
            kind + data: child(kind + data, options.clean_steps, EVERY_CALL, *small)
            for kind in KINDS
            for data in ("", " same batch")
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5, help="runs without and with, each")
    parser.add_argument("--cost-steps", type=int, default=2000, help="steps of such a run")
    parser.add_argument("--fault-steps", type=int, default=400, help="steps of a faulty run")
    parser.add_argument("--clean-steps", type=int, default=2000, help="steps of a right run")
    parser.add_argument("--json", type=Path, help="also write every measurement to this file")
    parser.add_argument("--child", nargs=3, metavar="WORD", help=argparse.SUPPRESS)
    parser.add_argument("--faulty", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--width", type=int, default=256, help="of the model whose cost is measured"
    )
    options = parser.parse_args()
    if options.child:
        kind, steps, overhead = options.child
        faulty, width = options.faulty, options.width
        print(json.dumps(train(kind, int(steps), float(overhead), faulty=faulty, width=width)))
        return
    with workplace("bench-sentinel"):
        everything = measure_all(options)
    report(everything)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(everything, indent=1))


def report(everything: dict[str, Any]) -> None:
    """Print the tables."""
    cost = everything["cost"]
    ratios = [b / a for a, b in zip(cost["plain"], cost["watched"], strict=True)]
    if ratios:
        middle = statistics.median(ratios)
        print(f"a step takes {middle:.3f} ({min(ratios):.3f} … {max(ratios):.3f}) times as long")
    for kind, result in everything["faulty"].items():
        alarms = result["alarms"]
        said = f"alarm after {alarms[0]['shadowed']} shadowed calls" if alarms else "no alarm"
        print(f"wrong by a thousandth, {kind}: {said}")
    for kind, result in everything["right"].items():
        print(f"right, {kind}: {len(result['alarms'])} alarms in {result['shadowed']} calls")


if __name__ == "__main__":
    main()
