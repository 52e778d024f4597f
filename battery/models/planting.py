"""Breaks torch below some of the models, in a stage that a seed chooses.

A fault of the battery fits a model if the operation that it breaks is in one of its graphs. Whether
it shows there is tried: a plain run prints something else than the healthy one, or fails.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from battery.fault import Fault, Recipe
from battery.generate import write_plant
from battery.judge import judge
from battery.models.catalogue import Model
from battery.models.trial import Conditions, ModelResult, keep_texts, run_doctor, run_plain
from battery.plants import RECIPES
from battery.trial import Outcome

# A hang would be waited for in every plain run.
KINDS = ("wrong-result", "nan", "crash", "compile-error")
_ONLY_PRINTED = KINDS[:2]
# Plain runs per model until a fault shows.
_DRAWS = 6
# A printed number that differs by less than this may be rounding.
_RELATIVE = 1e-3


def choose_models(results: Sequence[ModelResult], count: int, seed: int) -> list[ModelResult]:
    """Which healthy models get a fault."""
    fitting = [r for r in results if not r.planted and r.verdict == "clean" and fitting_recipes(r)]
    chance = random.Random(f"{seed} models")
    return sorted(chance.sample(fitting, min(count, len(fitting))), key=lambda r: r.name)


def fitting_recipes(result: ModelResult) -> dict[str, list[Recipe]]:
    """Faults whose operation the model has, by stage."""
    found: dict[str, list[Recipe]] = {}
    operations = {name.strip("_") for name in result.operations}
    for recipe in RECIPES:
        can_be_planted = recipe.module and not recipe.script and recipe.kind in KINDS
        if can_be_planted and _broken_operations(recipe) & operations:
            found.setdefault(recipe.stage, []).append(recipe)
    return found


def _broken_operations(recipe: Recipe) -> set[str]:
    names = (recipe.operation, *recipe.culprits)
    return {re.sub(r"^aten\.|\.\w+$", "", name).strip("_") for name in names}


def draw(result: ModelResult, seed: int) -> Iterator[Recipe]:
    """Faults in the order in which they are tried: a stage at random, then one of its faults."""
    chance = random.Random(f"{seed} {result.name}")
    by_stage = fitting_recipes(result)
    while by_stage:
        stage = chance.choice(sorted(by_stage))
        recipe = chance.choice(by_stage[stage])
        by_stage[stage].remove(recipe)
        if not by_stage[stage]:
            del by_stage[stage]
        yield recipe


def examine_planted(
    model: Model, healthy: ModelResult, folder: Path, conditions: Conditions, seed: int
) -> ModelResult | None:
    """The doctor on the first fault that shows; None if none of the drawn ones does."""
    place = (folder / f"{model.name}-planted").absolute()
    try:
        expected, _ = run_plain(model, place, conditions)
        for _, recipe in zip(range(_DRAWS), draw(healthy, seed), strict=False):
            plant = write_plant(recipe)
            seen, cost = run_plain(model, place, conditions, plant)
            if not shows(recipe.kind, expected, seen):
                print(f"  {model.name}: {recipe.name} does not show, drawing again", flush=True)
                continue
            print(f"  {model.name}: planted {recipe.name}", flush=True)
            outcome, spent, verdict = run_doctor(
                model, place, conditions, plant, ("--no-workaround",)
            )
            fault = Fault(model.name, model.text, recipe.truth, plant)
            why = outcome.output.strip()[-300:]
            # What was known when the time was up is not what the doctor would have said.
            said = verdict if verdict and outcome.exit_code is not None else None
            judged = judge(fault, said, spent.seconds, why)
            return ModelResult(
                name=model.name,
                planted=recipe.name,
                verdict=judged.said_kind,
                stage=judged.said_stage,
                summary=judged.said_summary,
                confidence=str(verdict.get("confidence", "")),
                not_checked=tuple(verdict.get("not_checked", ())),
                nodes=healthy.nodes,
                operations=(),
                plain_exit=seen.exit_code,
                plain=cost,
                doctor=spent,
                named=judged.named,
                verified=judged.verified,
                nodes_left=judged.nodes,
            )
        return None
    finally:
        keep_texts(place)


def shows(kind: str, expected: Outcome, seen: Outcome) -> bool:
    """Whether a user could see a fault of this kind: the program prints or ends differently.

    A wrong operation may also break the graph around it; that is another fault than was meant.
    """
    ends_otherwise = expected.exit_code != seen.exit_code
    if ends_otherwise or kind not in _ONLY_PRINTED:
        return ends_otherwise and kind not in _ONLY_PRINTED
    one, two = _numbers(expected.output), _numbers(seen.output)
    if len(one) != len(two):
        return True
    pairs = zip(one, two, strict=True)
    return any(abs(a - b) > _RELATIVE * max(abs(a), 1e-2) or b != b for a, b in pairs)


def _numbers(text: str) -> list[float]:
    """Output of the program itself: torch's own warnings are not part of the result."""
    lines = [
        line
        for line in text.splitlines()
        if re.match(r"[\d\[\-(TFn]", line) and not re.match(r"\[[WEIF]\d{4} ", line)
    ]
    found = re.findall(r"nan|-?\d+\.?\d*(?:e[+-]?\d+)?", "\n".join(lines))
    return [float(number) for number in found]
