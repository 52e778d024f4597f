"""Lets the doctor loose on real models: make models, or python -m battery.models.run.

Every model runs plainly and under the doctor; healthy ones have to be clean. Then a fault is
planted below ten of them. Results go to a file of JSON lines as they come; --resume goes on after
an interruption.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import importlib.metadata
import json
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from battery.models.catalogue import SCRIPTS, read_models
from battery.models.planting import choose_models, examine_planted
from battery.models.table import is_right, render_markdown, render_text
from battery.models.trial import (
    COULD_NOT_RUN,
    Conditions,
    ModelResult,
    examine_healthy,
    result_from,
)
from battery.paths import without_folders
from battery.trial import side_by_side
from battery.workplace import workplace

Job = Callable[[], ModelResult | None]


def parse_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m battery.models.run", description=__doc__)
    parser.add_argument("--scripts", type=Path, default=SCRIPTS, help="folder of models")
    parser.add_argument("--only", default="", metavar="NAME,NAME", help="names that contain one")
    parser.add_argument("--list", action="store_true", help="only print the models")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for each run")
    parser.add_argument(
        "--no-probes",
        action="store_true",
        help="skip torch's trial of vector instructions in every run, with and without the doctor",
    )
    parser.add_argument("--planted", type=int, default=10, help="how many get a fault")
    parser.add_argument("--seed", type=int, default=0, help="chooses models, stages and faults")
    parser.add_argument("--resume", action="store_true", help="skip what has a result already")
    parser.add_argument("--report", action="store_true", help="run nothing: show what there is")
    parser.add_argument("--results", type=Path, default=Path("bench-results/models.jsonl"))
    parser.add_argument("--markdown", type=Path, help="also write the tables to this file")
    parser.add_argument("--json", type=Path, help="also write all results to this file, as JSON")
    parser.add_argument("--keep", type=Path, help="work in this folder, and leave what was printed")
    return parser.parse_args(arguments)


def read_results(path: Path) -> dict[tuple[str, bool], ModelResult]:
    """Results left by an earlier run; a last line cut short is no result."""
    found: dict[tuple[str, bool], ModelResult] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            result = result_from(json.loads(line))
        except (ValueError, TypeError, KeyError):
            continue
        found[result.key] = result
    return found


def run_all(options: argparse.Namespace, folder: Path) -> list[ModelResult]:
    """Healthy models first: their graphs say which faults fit."""
    models = {m.name: m for m in read_models(options.scripts, options.only.split(","))}
    known = read_results(options.results) if options.resume or options.report else {}
    if not options.report:
        # Perhaps what it lacked is there now.
        known = {key: r for key, r in known.items() if r.verdict != COULD_NOT_RUN}
    conditions = Conditions(options.limit, has_probes=not options.no_probes)
    if not options.report:
        options.results.parent.mkdir(parents=True, exist_ok=True)
        if not options.resume:
            options.results.unlink(missing_ok=True)
        healthy = {
            (name, False): functools.partial(examine_healthy, model, folder, conditions)
            for name, model in models.items()
        }
        _run_missing(healthy, known, options)
        clean = [known[key] for key in healthy if key in known]
        planted = {
            (r.name, True): functools.partial(
                examine_planted, models[r.name], r, folder, conditions, options.seed
            )
            for r in choose_models(clean, options.planted, options.seed)
        }
        _run_missing(planted, known, options)
    return [
        replace(result, summary=without_folders(result.summary))
        for (name, _), result in known.items()
        if name in models
    ]


def _run_missing(
    jobs: Mapping[tuple[str, bool], Job],
    known: dict[tuple[str, bool], ModelResult],
    options: argparse.Namespace,
) -> None:
    left = [job for key, job in jobs.items() if key not in known]
    with options.results.open("a") as stream:
        for number, result in enumerate(side_by_side(left, options.jobs), 1):
            if result is None:
                continue
            known[result.key] = result
            stream.write(result.as_json() + "\n")
            stream.flush()
            what = f"{result.name}{' + ' + result.planted if result.planted else ''}"
            state = "right" if is_right(result) else "WRONG"
            cost = f"{result.doctor.seconds:6.1f} s {result.cpu_ratio:4.1f} x CPU"
            print(f"[{number}/{len(left)}] {state:6}{cost}  {what}", flush=True)
            if not is_right(result):
                said = f"{result.verdict} · {result.stage} · {result.confidence}"
                print(f"  {said}: {result.summary[:300]}", flush=True)


def describe_run(results: Sequence[ModelResult], options: argparse.Namespace) -> str:
    versions = [f"torch {importlib.metadata.version('torch')}"]
    for name in ("transformers", "timm", "torchvision", "diffusers", "numpy"):
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"no {name}")
    minutes = sum(r.doctor.seconds + r.plain.seconds for r in results) / 60
    return (
        f"{datetime.date.today().isoformat()}, seed {options.seed}: {', '.join(versions)}; "
        f"Python {platform.python_version()}, {platform.machine()}; {minutes:.0f} minutes in all, "
        f"{options.jobs} at a time"
        + ("; torch's trial of vector instructions was skipped." if options.no_probes else ".")
    )


def write_tables(results: Sequence[ModelResult], options: argparse.Namespace) -> None:
    about = describe_run(results, options)
    if options.markdown:
        text = render_markdown(read_models(options.scripts), results, about)
        options.markdown.write_text(text)
    if options.json:
        data = {"schema": 1, "about": about, "right": sum(map(is_right, results))}
        data["results"] = [json.loads(result.as_json()) for result in results]
        options.json.write_text(json.dumps(data, indent=1) + "\n")


def main() -> int:
    options = parse_options()
    if options.list:
        for model in read_models(options.scripts, options.only.split(",")):
            print(f"{model.name:30}{model.library:14}{model.title}")
        return 0
    with workplace("models", options.keep) as folder:
        results = run_all(options, folder)
    print(render_text(results))
    write_tables(results, options)
    return 0 if all(map(is_right, results)) else 1


if __name__ == "__main__":
    sys.exit(main())
