"""Makes the battery from a seed."""

from __future__ import annotations

import random

from battery.fault import CLEAN, Fault, Recipe, Truth
from battery.healthy import HEALTHY
from battery.plants import RECIPES
from battery.programs import TEMPLATES, write_program

PLANT = '''"""Start-up hook of this fault: changes one module when it is imported."""
import importlib.machinery
import sys


def patch(m):
    import torch

    aten = torch.ops.aten
{body}


PATCHES = {{"{module}": patch}}


class _Finder:
    def find_spec(self, name, path=None, target=None):
        if name not in PATCHES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            PATCHES[name](module)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, _Finder())
'''


def generate(seed: int = 0) -> tuple[Fault, ...]:
    """Every fault, then every healthy program; the same for the same seed."""
    faults = [make_fault(recipe, seed) for recipe in RECIPES]
    healthy = [
        Fault(f"healthy-{name}", text, Truth(CLEAN, "none")) for name, text in HEALTHY.items()
    ]
    return (*faults, *healthy)


def make_fault(recipe: Recipe, seed: int) -> Fault:
    # Drawn for each by its name, so that a new recipe changes no other one's program.
    chance = random.Random(f"{seed} {recipe.name}")
    script = recipe.script
    if not script:
        template = chance.choice(recipe.templates or tuple(TEMPLATES))
        script = write_program(chance, recipe.operation, template, recipe.touches)
    return Fault(recipe.name, script, recipe.truth, write_plant(recipe))


def write_plant(recipe: Recipe) -> str:
    if not recipe.module:
        return ""
    return PLANT.format(module=recipe.module, body=_indent(recipe.body))


def _indent(text: str) -> str:
    return "\n".join(
        f"    {line}" if line.strip() else "" for line in text.strip("\n").splitlines()
    )
