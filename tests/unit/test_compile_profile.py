"""profile --compile: where the compile time of a recorded run went."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from inductoscope.model.entities import Ending
from inductoscope.model.fold import load
from inductoscope.profiling.compile_growth import CompileCost, MeasuredGrowth
from inductoscope.profiling.compile_times import CompileProfile, recorded_costs
from inductoscope.recording.events import (
    CacheKeyMade,
    CacheLookup,
    CompileEnd,
    CompileStart,
    Event,
    FusionRound,
    LoweredNode,
    NativeEnd,
    NativeStart,
    PassesTimed,
    ProcessStart,
    StageEnd,
    StageStart,
)
from inductoscope.recording.location import create_recording
from inductoscope.recording.writer import StreamWriter
from inductoscope.torch_facts import stages
from inductoscope.views.report.compile_profile import (
    compile_profile_view,
    noise,
    print_compile_profile,
)
from inductoscope.views.report.terminal import Printer
from support.json_schema import violations

GRAPH = "0/0 inference"
KINDS = (
    "compiles", "stages", "passes", "nodes", "lines", "rounds", "natives", "caches", "notes",
)  # fmt: skip
RUN = {"recording": "out", "exit_code": 0, "compile_seconds": 12.0, "seconds": 20.0}
EMPTY = CompileProfile(Ending(0, None, 3.0), {**RUN, **{kind: [] for kind in KINDS}})


def recorded(
    place: Path, *events: Event, fields: tuple[str, ...] = (), ended: bool = True
) -> dict[str, Any]:
    """Output of a run that wrote these events, and a key of these fields."""
    folder = create_recording(["python", "x.py"], output=place)
    stream = StreamWriter(folder, first_event=lambda: ProcessStart(pid=1, names_threads=True))
    for event in events:
        stream.emit(event)
    if fields:
        stream.emit(
            CacheKeyMade(compile="0/0", key="f2", payload=stream.payload(json.dumps(fields)))
        )
    if ended:
        stream.close()
    return recorded_costs(load(folder))


COMPILE = (
    CompileStart(compile="0/0", function="f", file="model.py", line=3),
    StageStart(stage=stages.DYNAMO, compile="0/0"),
    StageStart(stage=stages.POST_GRAD_PASS, compile="0/0", graph=GRAPH),
    PassesTimed(
        stage=stages.POST_GRAD_PASS,
        compile="0/0",
        passes=(
            {"name": "stable_sort", "seconds": 3.0, "own": 1.0, "runs": 1},
            {"name": "inside it", "seconds": 2.0, "own": 2.0, "runs": 4},
        ),
    ),
    StageEnd(stage=stages.POST_GRAD_PASS, compile="0/0", graph=GRAPH, seconds=3.1),
    LoweredNode(graph=GRAPH, node="sin", target="aten.sin.default", seconds=0.2),
    LoweredNode(graph=GRAPH, node="erf", target="aten.erf.default", seconds=4.0),
    FusionRound(graph=GRAPH, round=1, before=9, after=2, seconds=0.5),
    NativeStart(tool="c++", source="/cache/abc.main.cpp"),
    NativeEnd(tool="c++", source="/cache/abc.main.cpp", seconds=2.5, exit_code=0),
    StageEnd(stage=stages.DYNAMO, compile="0/0", seconds=0.4),
    CacheLookup(cache="FX graph", outcome="miss", compile="0/0", key="f2"),
    CompileEnd(compile="0/0", seconds=12.0, outcome="compiled"),
)


def test_everything_that_takes_time_is_listed_slowest_first(tmp_path: Path) -> None:
    costs = recorded(tmp_path / "out", *COMPILE)
    assert [(each["name"], each["own_seconds"], each["runs"]) for each in costs["passes"]] == [
        ("inside it", 2.0, 4),
        ("stable_sort", 1.0, 1),
    ]
    assert [each["node"] for each in costs["nodes"]] == ["erf", "sin"]
    assert [(each["before"], each["after"]) for each in costs["rounds"]] == [(9, 2)]
    assert [(each["tool"], each["seconds"]) for each in costs["natives"]] == [("c++", 2.5)]
    own = {each["stage"]: each["own_seconds"] for each in costs["stages"]}
    assert own == {stages.DYNAMO: 0.4, stages.POST_GRAD_PASS: 3.1}
    assert list(own) == [stages.DYNAMO, stages.POST_GRAD_PASS], "in the order of the compiler"


def test_a_graph_that_was_not_in_the_cache_says_what_differs(tmp_path: Path) -> None:
    first = CacheKeyMade(compile="9/9", key="f1", payload="")
    costs = recorded(tmp_path / "empty", *COMPILE, fields=("[a] gm: sin",))
    assert [use["why"] for use in costs["caches"]] == ["the cache was empty"]
    costs = recorded(tmp_path / "other", first, *COMPILE, fields=("[a] gm: sin",))
    assert "differs from the nearest, compile 9/9, in gm" in costs["caches"][0]["why"]


def test_a_compile_that_ended_half_way_says_what_is_missing(tmp_path: Path) -> None:
    costs = recorded(tmp_path / "out", *COMPILE[:3], ended=False)
    assert any("never left" in note for note in costs["notes"])


def growth(exponent: float) -> MeasuredGrowth:
    sizes = (10, 20, 40, 80)
    return MeasuredGrowth(
        "0/0",
        "copies one after the other",
        tuple(CompileCost(n, {stages.SCHEDULER: 0.001 * n**exponent}) for n in sizes),
    )


def profile_of(costs: dict[str, Any]) -> CompileProfile:
    run = {**RUN, **costs}
    return CompileProfile(Ending(0, None, 20.0), run, run, growth(2.1))


def printed(profile: CompileProfile) -> str:
    file = io.StringIO()
    print_compile_profile(Printer(file), compile_profile_view(profile))
    return file.getvalue()


def test_the_json_is_as_its_schema_says(tmp_path: Path) -> None:
    costs = recorded(tmp_path / "out", *COMPILE, fields=("[a] gm: sin",))
    for profile in (profile_of(costs), EMPTY):
        view = {"schema": 1, **compile_profile_view(profile)}
        assert violations("profile", json.loads(json.dumps(view))) == []


def test_the_terminal_names_the_stage_that_explodes_in_80_columns(tmp_path: Path) -> None:
    text = printed(profile_of(recorded(tmp_path / "out", *COMPILE)))
    assert "scheduler          grows with n^2.1" in text
    assert "erf aten.erf.default" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_busy_machine_is_said_to_be_busy() -> None:
    assert "busy" not in noise(load=1.0, cores=2)
    assert "(load 9 on 2 cores)" in noise(load=9.0, cores=2)


def test_a_program_that_compiles_nothing_is_told_so() -> None:
    assert printed(EMPTY) == "Nothing was compiled.\n"
