"""Which changes are worth a trial, and how what came of them is shown."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from inductoscope.inside.profiling.alternating_calls import AlternatingClock
from inductoscope.model.fold import load
from inductoscope.profiling.flip_trials import AgainstEager, FlipTrial, TrialResults
from inductoscope.profiling.flips import Flip, flips_for
from inductoscope.profiling.statistics import Sample, compare
from inductoscope.profiling.timings import GRAPH
from inductoscope.views.report.advice import advice_view, print_advice
from inductoscope.views.report.terminal import Printer
from support.examples import NAMES, stored, write_recording

KERNELS = Path(__file__).parent / "torch_facts/samples/cpp_loops/torch-2.13"
ABOUT: dict[str, Any] = {"compile": "0/0", "graph": "0/0 inference"}
GRAPH_TEXT, KERNEL = (f"{n:032x}" for n in range(2))


def recorded(
    folder: Path,
    kernel: str,
    *nodes: tuple[str, str],
    settings: dict[str, str] | None = None,
    defaults: dict[str, str] | None = None,
) -> tuple[Flip, ...]:
    """The changes that a recording of one kernel suggests, whose nodes are operation and origin."""
    graph = [
        {"name": f"n{number}", "op": "call_function", "target": f"aten.{name}.default",
         "aten": f"aten.{origin}.default"}
        for number, (name, origin) in enumerate(nodes)
    ]  # fmt: skip
    path = write_recording(
        folder,
        {"kind": "compile-start", "compile": "0/0", "function": "f", "file": "/model.py"},
        {"kind": "settings", "compile": "0/0", "config": settings or {},
         "defaults": defaults or {}},
        {"kind": "inductor-start", "phase": "inference", **ABOUT},
        {"kind": "graph", "stage": "post-grad", "payload": GRAPH_TEXT, **ABOUT},
        {"kind": "kernel", "name": "cpp_fused_0", "language": "C++", "payload": KERNEL,
         "origins": [node["name"] for node in graph], **ABOUT},
        payloads={GRAPH_TEXT: {"nodes": graph}, KERNEL: (KERNELS / kernel).read_text()},
    )  # fmt: skip
    return flips_for(load(path))


def test_a_setting_of_the_program_is_overruled(tmp_path: Path) -> None:
    setting = {"torch._inductor.config.cpp.simdlen": "1"}
    (flip,) = recorded(tmp_path / "r", "no_simd.cpp", ("sin", "sin"), settings=setting)
    assert flip.change == "torch._inductor.config.cpp.simdlen = None"
    # The program sets it after torch is imported, so the change comes just before the compile.
    assert "torch._inductor.config.patch({'cpp.simdlen': None})" in flip.variant.code


def test_a_setting_that_no_rule_knows_is_tried_at_torchs_own_value(tmp_path: Path) -> None:
    settings = {"torch._inductor.config.cpp.threads": "1"}
    defaults = {"torch._inductor.config.cpp.threads": "-1"}
    found = recorded(
        tmp_path / "r", "i1e.cpp", ("sin", "sin"), settings=settings, defaults=defaults
    )
    (flip,) = found
    assert flip.change == "torch._inductor.config.cpp.threads = -1"
    assert flip.why == "the program sets cpp.threads = 1; torch's own value is -1"
    assert flip.overrules


@pytest.mark.parametrize(
    "name", ["fallback_random", "compile_threads", "max_autotune", "aot_inductor.package"]
)
def test_a_setting_that_asks_for_something_stays(tmp_path: Path, name: str) -> None:
    full_name = f"torch._inductor.config.{name}"
    given: dict[str, Any] = {"settings": {full_name: "True"}, "defaults": {full_name: "False"}}
    assert recorded(tmp_path / "r", "i1e.cpp", ("sin", "sin"), **given) == ()


@pytest.mark.parametrize(
    ("kernel", "nodes", "change"),
    [
        ("group_norm.cpp", ("var_mean", "native_group_norm"), "leave native_group_norm to eager"),
        ("index_add.cpp", ("index_put_", "index_add"), "leave index_add to eager"),
        ("i1e.cpp", ("special_i1e", "special_i1e"), "leave special_i1e to eager"),
    ],
)
def test_an_operation_is_left_to_eager(
    tmp_path: Path, kernel: str, nodes: tuple[str, str], change: str
) -> None:
    flips = recorded(tmp_path / "r", kernel, nodes, ("relu", "relu"))
    assert [flip.change for flip in flips] == [change]
    assert flips[0].leaves_to_eager


@pytest.mark.parametrize("name", ["relu_add_sum", "training_step"])
def test_nothing_is_tried_on_healthy_programs(name: str) -> None:
    assert name in NAMES
    assert flips_for(load(stored(name))) == ()


# --- calls in turns -------------------------------------------------------------------------------


def test_graphs_are_left_alone() -> None:
    def graph() -> None:
        pass

    assert AlternatingClock().timed(graph, "graph", GRAPH) is graph


# --- what is shown --------------------------------------------------------------------------------


def sample(middle: float) -> Sample:
    return Sample(tuple(middle * (1 + part / 100) for part in range(-4, 5)))


def test_what_helps_is_shown_with_what_was_predicted() -> None:
    base = AgainstEager(sample(3.0), sample(1.0), seconds=0.5, calls=20)
    helps = Flip("leave x to eager", "why", predicted=1.0, prediction="lost", code="paste = me")
    useless = Flip("y = 1", "why not")
    trials = (
        FlipTrial(helps, base.compiled, sample(1.0), 1.1, compare(sample(3.0), sample(1.0))),
        FlipTrial(useless, base.compiled, sample(3.0), 0.0, compare(sample(3.0), sample(3.0))),
    )
    view = advice_view(TrialResults(trials, base, runs=4), ["python", "x.py"], "/recording")
    assert json.loads(json.dumps(view, allow_nan=False)) == view
    assert [row["change"] for row in view["advice"]] == ["leave x to eager"]
    assert [row["change"] for row in view["without_effect"]] == ["y = 1"]
    page = io.StringIO()
    print_advice(Printer(page), view)
    text = " ".join(page.getvalue().split())
    assert "compiled calls take 3.00 times as long as in eager" in text
    assert "saves 1.10 s per run (predicted: 1.00 s, lost); 0.33 of the time is left" in text
    assert "no help: y = 1" in text
    assert max(map(len, page.getvalue().splitlines())) <= 80


def test_a_program_without_enough_calls_gets_no_advice() -> None:
    view = advice_view(TrialResults((), None, "No compiled function is called."), ["x"], "/r")
    page = io.StringIO()
    print_advice(Printer(page), view)
    assert "No compiled function is called." in page.getvalue()
    assert "found" not in page.getvalue()  # Nothing was looked for.
