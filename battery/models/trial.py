"""Runs one model: plainly with an empty cache, then under the doctor, and says what both cost."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from battery.models import measure
from battery.models.catalogue import Model
from battery.trial import DOCTOR, Outcome, run_limited
from inductoscope.model.fold import load
from inductoscope.model.fx import read_graph
from inductoscope.torch_facts import stages

# In the place of a verdict: the script fails without the doctor too, so nothing was examined.
COULD_NOT_RUN = "could not run"


@dataclass(frozen=True)
class Conditions:
    """How every run is made."""

    # Seconds.
    limit: float = 900.0
    # Whether torch tries out which vector instructions compile, as it does with an empty cache.
    # That is most of the time of a small model, and the same with and without the doctor.
    has_probes: bool = True


@dataclass(frozen=True)
class Cost:
    """Cost of a command."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    gpu_bytes: int = 0


@dataclass(frozen=True)
class ModelResult:
    """One line of the file of results."""

    name: str
    # The fault that was planted below it; empty for a healthy model.
    planted: str
    verdict: str
    stage: str
    summary: str
    confidence: str
    not_checked: tuple[str, ...]
    # Operations of the graphs that Dynamo captured: how many, and their names at any stage.
    nodes: int
    operations: tuple[str, ...]
    plain_exit: int | None
    plain: Cost
    doctor: Cost
    # Of a planted fault: named rightly, proven, and the nodes that are left.
    named: bool = False
    verified: bool = False
    nodes_left: int | None = None

    @property
    def key(self) -> tuple[str, bool]:
        return self.name, bool(self.planted)

    @property
    def cpu_ratio(self) -> float:
        return self.doctor.cpu_seconds / max(self.plain.cpu_seconds, 0.01)

    @property
    def memory_ratio(self) -> float:
        return self.doctor.peak_bytes / max(self.plain.peak_bytes, 1)

    def as_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


def result_from(data: dict[str, Any]) -> ModelResult:
    costs = {name: Cost(**data[name]) for name in ("plain", "doctor")}
    lists = {name: tuple(data[name]) for name in ("not_checked", "operations")}
    return ModelResult(**{**data, **costs, **lists})


def run_plain(
    model: Model, folder: Path, conditions: Conditions, plant: str = ""
) -> tuple[Outcome, Cost]:
    command = [sys.executable, str(model.path)]
    return run_measured(command, folder / "plain", conditions, plant)


def run_doctor(
    model: Model,
    folder: Path,
    conditions: Conditions,
    plant: str = "",
    options: Sequence[str] = (),
) -> tuple[Outcome, Cost, dict[str, Any]]:
    """The verdict is empty if there was none."""
    place = folder / "examined"
    where = ("--json", "verdict.json", "--output", str(place / "recording"))
    command = [*DOCTOR, *where, *options, str(model.path)]
    outcome, cost = run_measured(command, place, conditions, plant)
    return outcome, cost, read_verdict(place)


def read_verdict(place: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((place / "verdict.json").read_text())
    except (OSError, ValueError):
        return {}
    return found


def run_measured(
    command: Sequence[str], place: Path, conditions: Conditions, plant: str = ""
) -> tuple[Outcome, Cost]:
    """Run a command in a new folder, with the plant if there is one."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    if plant:
        (place / "plant").mkdir()
        (place / "plant" / "sitecustomize.py").write_text(plant)
    written = place / "cost.json"
    measured = [sys.executable, measure.__file__, str(written), *command]
    environment = _environment(place, bool(plant))
    if not conditions.has_probes:
        environment["TORCHINDUCTOR_VEC_ISA_OK"] = "1"
    outcome = run_limited(measured, place, environment, conditions.limit)
    try:
        data = json.loads(written.read_text())
    except (OSError, ValueError):
        return outcome, Cost(seconds=round(outcome.seconds, 2))
    data.pop("exit_code")
    return outcome, Cost(**data)


def _environment(place: Path, has_plant: bool) -> dict[str, str]:
    """The caller's without torch's switches, with an empty cache; nothing is downloaded."""
    found = {k: v for k, v in os.environ.items() if not k.startswith(("INDUCTOSCOPE", "TORCH"))}
    known = [str(Path(p).absolute()) for p in found.get("PYTHONPATH", "").split(os.pathsep) if p]
    own = [str(place / "plant")] if has_plant else []
    found.update(
        PYTHONPATH=os.pathsep.join([*own, *known]),
        TORCHINDUCTOR_CACHE_DIR=str(place / "cache"),
        HF_HUB_OFFLINE="1",
        HF_HOME=str(place / "hub"),
    )
    return found


def examine_healthy(model: Model, folder: Path, conditions: Conditions) -> ModelResult:
    """Both runs, one after the other; what they left on disk goes."""
    place = (folder / model.name).absolute()
    try:
        plain, plain_cost = run_plain(model, place, conditions)
        if plain.exit_code != 0:
            return _could_not_run(model, plain, plain_cost)
        outcome, cost, verdict = run_doctor(model, place, conditions)
        nodes, operations = read_operations(place / "examined" / "recording")
        return ModelResult(
            name=model.name,
            planted="",
            verdict=str(verdict.get("verdict", "no verdict")),
            stage=str(verdict.get("stage", "")),
            summary=str(verdict.get("summary", outcome.output.strip()[-300:])),
            confidence=str(verdict.get("confidence", "")),
            not_checked=tuple(verdict.get("not_checked", ())),
            nodes=nodes,
            operations=operations,
            plain_exit=plain.exit_code,
            plain=plain_cost,
            doctor=cost,
        )
    finally:
        keep_texts(place)


def _could_not_run(model: Model, plain: Outcome, cost: Cost) -> ModelResult:
    """Without the doctor the script fails too: a library is missing, or the time ran out."""
    return ModelResult(
        name=model.name,
        planted="",
        verdict=COULD_NOT_RUN,
        stage="",
        summary=plain.output.strip()[-300:] or f"no end after {plain.seconds:.0f} s",
        confidence="",
        not_checked=(),
        nodes=0,
        operations=(),
        plain_exit=plain.exit_code,
        plain=cost,
        doctor=Cost(),
    )


def keep_texts(place: Path) -> None:
    """Outputs and verdicts stay where the folder is kept; caches and recordings go."""
    for run in place.glob("*/"):
        for name in ("cache", "hub", "plant", "recording/cache", "recording/payloads"):
            shutil.rmtree(run / name, ignore_errors=True)


def read_operations(recording: Path) -> tuple[int, tuple[str, ...]]:
    """The number of operations that Dynamo captured, and all names of operations at any stage."""
    if not recording.exists():
        return 0, ()
    read, count, names = load(recording), 0, set()
    for compile_ in read.compiles:
        for graph in compile_.graphs:
            found = read_graph(read, graph.payload)
            if found is not None:
                names |= {node.operation for node in found.calls}
                count += len(found.calls) if graph.stage == stages.DYNAMO else 0
    return count, tuple(sorted(names))
