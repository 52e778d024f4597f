"""Labelled scripts on disk: a folder each, with script.py, truth.json and perhaps a plant.

truth.json says what a correct verdict says: `kind`, `stage`, `stage_also_ok`, `culprit_names`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from battery.fault import Fault, Truth

# The only environment that a stored script may ask for: its own start-up hook.
PLANT_PATH = "{case}/plant"


def read_stored(folders: Iterable[Path]) -> list[Fault]:
    """All labelled scripts in these folders, by name; a folder that is not there has none."""
    found = [read_one(path.parent) for folder in folders for path in folder.glob("*/truth.json")]
    return sorted(found, key=lambda fault: fault.name)


def read_one(folder: Path) -> Fault:
    truth = json.loads((folder / "truth.json").read_text())
    environment = truth.get("env", {})
    if environment not in ({}, {"PYTHONPATH": PLANT_PATH}):
        raise ValueError(f"{folder}: cannot set {environment}; only PYTHONPATH={PLANT_PATH} is.")
    plants = {path.name: path.read_text() for path in (folder / "plant").glob("*.py")}
    plant = plants.pop("sitecustomize.py", "")
    return Fault(
        name=folder.name,
        script=(folder / "script.py").read_text(),
        truth=Truth(
            truth["kind"],
            truth["stage"],
            tuple(truth["stage_also_ok"]),
            tuple(truth["culprit_names"]),
        ),
        plant=plant if environment else "",
        beside_plant=plants if environment else {},
    )
