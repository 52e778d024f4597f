"""A GPT-2 of four layers that is trained, healthy and with a fault: make bench-real_models.

The script is that of the battery (`battery/models/scripts/gpt2_train.py`) with a larger model, of
random weights; nothing is downloaded. A clean verdict is compared with the plain compiled run in
processor seconds of all processes, in turns, each run with an empty cache. Then a fault is planted
in torch, below the model. What counts is the time until the doctor's JSON file names it rightly and
for good, and until a reproducer is verified.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from battery.fault import Fault, Recipe
from battery.generate import write_plant
from battery.judge import judge
from battery.models.catalogue import SCRIPTS, Model
from battery.models.trial import Conditions, run_doctor, run_plain
from battery.plants import RECIPES
from battery.workplace import workplace
from bench.figures import finish
from bench.measurement import Measurement
from bench.verdict_clock import VerdictClock, first_for_good, is_proven, names_culprit

SCRIPT = SCRIPTS / "gpt2_train.py"
# As it is in the script, and what is measured: twice as deep and as wide.
SIZES = {
    "n_layer=2, n_embd=128,": "n_layer=4, n_embd=256,",
    "vocab_size=1000)": "vocab_size=2000, n_positions=128)",
    "randint(0, 1000, (4, 32))": "randint(0, 2000, (4, 64))",
}
# Where `make` puts transformers.
LIBRARIES = Path(sys.prefix) / "models"
FAULTS = ("lowering-tanh-wrong-result", "decomposition-layer-norm-wrong-result")
GOALS = {"clean": 2.0, "named": 60.0, "proven": 120.0}


@dataclass
class Healthy:
    """Processor seconds, turn by turn, and how the runs went."""

    plain: list[float | None] = field(default_factory=list)
    doctor: list[float | None] = field(default_factory=list)
    why_no_plain: str = ""
    why_not_clean: str = ""


def enlarge(text: str) -> str:
    """The script with the larger model."""
    for written, instead in SIZES.items():
        if written not in text:
            raise ValueError(f"{SCRIPT} does not have {written!r} any more")
        text = text.replace(written, instead)
    return text


def measure_healthy(model: Model, folder: Path, limit: float, turns: int) -> Healthy:
    """Plainly and under the doctor, in turns; without a plain run there is nothing to examine."""
    found, conditions = Healthy(), Conditions(limit)
    for turn in range(turns):
        outcome, plain = run_plain(model, folder, conditions)
        if outcome.exit_code != 0:
            found.plain.append(None)
            found.why_no_plain = f"could not run: {last_line(outcome.output)}"
            break
        _, doctor, verdict = run_doctor(model, folder, conditions)
        is_clean = verdict.get("verdict") == "clean"
        found.plain.append(plain.cpu_seconds)
        found.doctor.append(doctor.cpu_seconds if is_clean else None)
        if not is_clean:
            found.why_not_clean = str(verdict.get("summary", "no verdict"))
        _progress(turn, f"plain {plain.cpu_seconds:.1f}, doctor {doctor.cpu_seconds:.1f} CPU s")
    return found


def last_line(text: str) -> str:
    return (text.strip() or "nothing was printed").rpartition("\n")[2]


@dataclass
class Planted:
    """Seconds until the fault was named and proven, turn by turn."""

    recipe: Recipe
    named: list[float | None] = field(default_factory=list)
    proven: list[float | None] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)
    said: str = ""


def measure_planted(model: Model, recipe: Recipe, folder: Path, limit: float) -> Planted:
    fault = Fault(model.name, model.text, recipe.truth, write_plant(recipe))

    def names(verdict: dict[str, Any]) -> bool:
        return names_culprit(verdict) and judge(fault, verdict, 0.0).named

    with VerdictClock(folder / "examined" / "verdict.json") as clock:
        outcome, cost, verdict = run_doctor(model, folder, Conditions(limit), fault.plant)
    # What did not come before the limit counts with it.
    late = cost.seconds if outcome.exit_code is None else None
    proof = first_for_good(clock.versions, lambda known: names(known) and is_proven(known))
    return Planted(
        recipe,
        [first_for_good(clock.versions, names) or late],
        [proof or late],
        [cost.seconds],
        str(verdict.get("summary", "no verdict")),
    )


def summarize(healthy: Healthy, planted: Sequence[Planted]) -> list[Measurement]:
    clean = Measurement(
        name="a clean verdict",
        unit="CPU s",
        ours=(*healthy.doctor,),
        goal=GOALS["clean"],
        compared_with="the plain run",
        peer=(*healthy.plain,),
        why_no_peer=healthy.why_no_plain,
        why_failed=healthy.why_not_clean,
    )
    return [clean, *(m for name in FAULTS for m in _of_fault(name, planted, healthy))]


def _of_fault(name: str, planted: Sequence[Planted], healthy: Healthy) -> list[Measurement]:
    runs = [run for run in planted if run.recipe.name == name]
    said = "; ".join(dict.fromkeys(run.said for run in runs)) or healthy.why_no_plain
    ended = ", ".join(f"{seconds:.0f} s" for run in runs for seconds in run.ended)
    return [
        Measurement(
            name=f"{name}, {what}",
            unit="s",
            ours=tuple(seconds for run in runs for seconds in getattr(run, what)),
            goal=GOALS[what],
            why_failed=said,
            note=f"the doctor ended after {ended}" if ended and what == "proven" else "",
        )
        for what in ("named", "proven")
    ]


def _progress(turn: int, text: str) -> None:
    print(f"  turn {turn + 1} {text}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.real_models", description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--fault", action="append", choices=FAULTS, help="only this fault")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for one run")
    parser.add_argument("--script", type=Path, help="another model")
    parser.add_argument("--json", type=Path, help="write the measurements to this file")
    options = parser.parse_args()
    libraries = [str(LIBRARIES), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(libraries)
    recipes = [recipe for recipe in RECIPES if recipe.name in (options.fault or FAULTS)]
    planted: list[Planted] = []
    with workplace("bench-models") as folder:
        script = (options.script or folder / "gpt2_of_four_layers.py").absolute()
        if not options.script:
            script.write_text(enlarge(SCRIPT.read_text()))
        model = Model(script.stem, script)
        healthy = measure_healthy(model, folder, options.limit, options.turns)
        for turn in range(0 if healthy.why_no_plain else options.turns):
            for recipe in recipes:
                planted.append(measure_planted(model, recipe, folder, options.limit))
                last = planted[-1]
                _progress(turn, f"{recipe.name}: named {last.named}, proven {last.proven}")
    finish(summarize(healthy, planted), options.json)


if __name__ == "__main__":
    main()
