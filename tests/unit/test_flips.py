"""Changes that are worth a trial, what each should save, and how what came of them is shown."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.inside.profiling.alternating_calls import AlternatingClock
from inductoscope.model.fold import load
from inductoscope.profiling.evidence import RecordedEvidence, costs_of
from inductoscope.profiling.flip_trials import AgainstEager, FlipTrial, TrialResults
from inductoscope.profiling.flips import Flip, flips_for, predicted, wrapper_in_cpp
from inductoscope.profiling.kernel_profile import GraphProfile, KernelProfile, Profile
from inductoscope.profiling.kernel_work import KernelWork
from inductoscope.profiling.machine import Bandwidths, Floor, MachineLimits
from inductoscope.profiling.statistics import Sample, compare
from inductoscope.profiling.timings import (
    CLOCK,
    FUNCTION,
    GRAPH,
    PROFILER,
    CallTimes,
    GraphTimes,
    Site,
    TimedCall,
)
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


def test_a_setting_that_no_rule_knows_is_tried_at_torchs_own_value(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    settings = {"torch._inductor.config.cpp.threads": "1"}
    defaults = {"torch._inductor.config.cpp.threads": "-1"}
    found = recorded(
        tmp_path / "r", "i1e.cpp", ("sin", "sin"), settings=settings, defaults=defaults
    )
    (flip,) = found
    assert flip.change == "torch._inductor.config.cpp.threads = -1"
    assert flip.why == snapshot
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


def test_what_helps_is_shown_with_what_was_predicted(snapshot: SnapshotAssertion) -> None:
    base = AgainstEager(sample(3.0), sample(0.075), seconds=0.5, calls=20)
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
    assert text == snapshot
    assert max(map(len, page.getvalue().splitlines())) <= 80


def test_a_program_without_enough_calls_gets_no_advice() -> None:
    view = advice_view(TrialResults((), None, "No compiled function is called."), ["x"], "/r")
    page = io.StringIO()
    print_advice(Printer(page), view)
    assert "No compiled function is called." in page.getvalue()
    assert "found" not in page.getvalue()  # Nothing was looked for.


PLACE = "/model.py:1"
MACHINE = MachineLimits("cpu", "a", 2, "2.13", (Bandwidths(1 << 30, 1e10, 1e10, 1e10),))


def kernel(seconds: float, floor: float, of: GraphProfile | None = None, **more: Any) -> Any:
    """A kernel that was called 100 times."""
    known = {"language": "C++", "places": ("/model.py:6",), "operations": ("sin",), **more}
    floor_ = Floor(floor, "memory")
    sample = Sample((seconds,) * 5)
    return KernelProfile(of or graph(), "k", 1, 100, sample, floor=floor_, **known)  # type: ignore[arg-type]


def graph(
    calls: int = 100, seconds: float = 1e-3, between: float = 2e-5, **times: Any
) -> GraphProfile:
    """A graph whose calls take a millisecond, with 20 µs between its kernels."""
    whole, busy = round(seconds * 1e9), round((seconds - between) * 1e9)
    kept = (TimedCall(whole, ((0, 0, busy),)),) * 5
    measured = GraphTimes("w.py", sites=(Site("k"),), count=calls, kept=kept, **times)
    return GraphProfile(measured, "0/0 inference", "f", PLACE, "inference", compile="0/0")


def evidence(
    folder: Path, *events: dict[str, Any], kernels: Any = (), graphs: Any = ()
) -> RecordedEvidence:
    """One compiled function that was called 100 times, a millisecond each."""
    path = write_recording(
        folder,
        {"kind": "compile-start", "compile": "0/0", "function": "f", "file": "/model.py",
         "line": 1},
        *events,
    )  # fmt: skip
    calls = CallTimes("f", FUNCTION, PLACE, 100, 100_000_000, (1_000_000,) * 100)
    return RecordedEvidence(
        load(path), Profile((calls,), tuple(graphs), tuple(kernels), (MACHINE,))
    )


@pytest.mark.parametrize(
    ("rule", "why", "left"),
    [
        # Of a call of 1 ms. 500 µs instead of the 100 µs that the machine needs.
        ("scalar_loop", "", 0.6),
        ("layout_copies", "", 0.5),  # The whole kernel goes.
        ("kept_apart", "1 pair of loops kept apart: 2,000,000 bytes are moved again", 0.8),
        ("tiny_kernels", "", 0.98),
    ],
)
def test_what_is_predicted(tmp_path: Path, rule: str, why: str, left: float) -> None:
    known = evidence(tmp_path / "r", kernels=[kernel(5e-4, 1e-4)], graphs=[graph()])
    flip = predicted(Flip("a change", why, rule, "/model.py:6"), known)
    assert flip.left == pytest.approx(left)
    assert flip.prediction


def test_a_break_is_predicted_from_what_calls_take_outside_of_their_graphs(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """Four graphs of 100 µs in a call of 1 ms: a quarter of the other 600 µs is left."""
    graphs = [replace(graph(seconds=1e-4), graph=f"0/{n} inference") for n in range(4)]
    flip = predicted(Flip("a change", "", "graph_breaks"), evidence(tmp_path / "r", graphs=graphs))
    assert flip.left == pytest.approx(0.4 + 0.6 / 4)
    assert flip.prediction == snapshot


def test_where_nothing_can_be_predicted_that_is_said(tmp_path: Path) -> None:
    flip = predicted(Flip("a change", "", "graph_breaks"), evidence(tmp_path / "r"))
    assert (flip.predicted, flip.prediction) == (None, "nothing that was measured says how much")


def test_guards_are_predicted_and_shown_as_a_cost(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    guards = {"kind": "guards", "compile": "0/0", "count": 748, "payload": "",
              "microseconds": 200.0, "costly": [["L['self']", 180.0]]}  # fmt: skip
    known = evidence(tmp_path / "r", guards)
    (flip,) = flips_for(known.recording, known.profile)
    comment, change = flip.to_paste.splitlines()
    assert change == flip.change == "torch.compiler.set_stance(skip_guard_eval_unsafe=True)"
    assert comment == snapshot
    assert not flip.code
    assert flip.warning in comment
    assert flip.predicted == pytest.approx(0.02)
    (cost,) = costs_of(known)
    assert cost.what == snapshot
    assert (cost.seconds, cost.share) == (pytest.approx(0.02), pytest.approx(0.2))


def test_cheap_guards_are_no_cost(tmp_path: Path) -> None:
    guards = {"kind": "guards", "compile": "0/0", "count": 9, "payload": "", "microseconds": 2.0}
    assert costs_of(evidence(tmp_path / "r", guards)) == ()


def changes(known: RecordedEvidence) -> list[str]:
    """Changes worth a trial."""
    return [flip.change for flip in flips_for(known.recording, known.profile)]


def test_a_graph_for_any_size_that_is_always_called_with_one(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    known = evidence(tmp_path / "r", graphs=[graph(sizes={"s0": 64})])
    (flip,) = flips_for(known.recording, known.profile)
    assert flip.to_paste == flip.change == "torch.compile(dynamic=False)"
    assert flip.why == snapshot


@pytest.mark.parametrize(
    "graphs",
    [
        [graph()],  # Compiled for one size.
        [graph(sizes={"s0": 64}), graph(sizes={"s0": 65})],  # Called with two.
        [graph(sizes={"s0": 64}, other_sizes=3)],  # And with more than are kept apart.
    ],
)
def test_sizes_that_vary_are_left_alone(tmp_path: Path, graphs: list[GraphProfile]) -> None:
    assert changes(evidence(tmp_path / "r", graphs=graphs)) == []


def one_by_one(threads: str, *seconds: float) -> list[dict[str, Any]]:
    """A graph with so many kernels, which the C++ compiler took so long for."""
    about = {"compile": "0/0", "graph": "0/0 inference"}
    config = {"torch._inductor.config.compile_threads": threads}
    return [
        {"kind": "settings", "compile": "0/0", "config": config},
        {"kind": "inductor-start", "phase": "inference", **about},
        *(
            event
            for number, took in enumerate(seconds)
            for event in (
                {"kind": "kernel", "name": f"cpp_fused_{number}", "language": "C++", **about},
                {"kind": "cpp-library", "payload": f"{number:032x}", **about},
                {"kind": "native", "tool": "c++", "payload": f"{number:032x}", "seconds": took,
                 "exit_code": 0},
            )
        ),
    ]  # fmt: skip


def test_kernels_that_are_compiled_one_after_the_other(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    snapshot: SnapshotAssertion,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    known = evidence(tmp_path / "r", *one_by_one("1", 3.0, 3.0, 3.0, 3.0))
    (flip,) = flips_for(known.recording, known.profile)
    assert flip.change == "torch._inductor.config.compile_threads = 2"
    assert flip.why == snapshot
    assert flip.predicted == pytest.approx(6.0)
    assert flip.shortens_compiles


@pytest.mark.parametrize(
    ("threads", "seconds"),
    [("8", (3.0, 3.0)), ("1", (9.0,)), ("1", (1.0, 1.0))],
    ids=["several threads", "only one kernel", "not for long"],
)
def test_compile_threads_are_left_alone_where_more_would_not_help(
    tmp_path: Path, threads: str, seconds: tuple[float, ...]
) -> None:
    assert changes(evidence(tmp_path / "r", *one_by_one(threads, *seconds))) == []


PRODUCT: dict[str, Any] = {"language": "extern", "operations": ("mm",)}


def product(seconds: float, floor: float) -> KernelProfile:
    """A product of the library."""
    return kernel(seconds, floor, work=KernelWork(matrix={"float32": 10**9}), **PRODUCT)


def test_products_that_lose_time_in_the_library(tmp_path: Path) -> None:
    known = evidence(tmp_path / "r", kernels=[product(1e-3, 4e-4)], graphs=[graph()])
    assert changes(known) == [
        "torch._inductor.config.freezing = True",
        "torch._inductor.config.max_autotune = True; "
        "torch._inductor.config.max_autotune_gemm_backends = 'CPP,ATEN'; "
        "torch._inductor.config.freezing = True",
    ]
    assert flips_for(known.recording, known.profile)[0].left == pytest.approx(0.4)


def test_products_at_the_limit_of_the_machine_are_left_alone(tmp_path: Path) -> None:
    assert changes(evidence(tmp_path / "r", kernels=[product(1e-3, 9.5e-4)])) == []


def test_products_that_were_tuned_are_left_alone(tmp_path: Path) -> None:
    settings = {"kind": "settings", "compile": "0/0",
                "arguments": {"mode": "'max-autotune-no-cudagraphs'"}}  # fmt: skip
    assert changes(evidence(tmp_path / "r", settings, kernels=[product(1e-3, 4e-4)])) == []


# --- graph breaks ---------------------------------------------------------------------------------

BREAK = {"kind": "graph-break", "compile": "0/0", "reason": "print", "source": "/model.py:3",
         "code": "print(x)"}  # fmt: skip
REST = {"kind": "compile-start", "compile": "1/0", "function": "torch_dynamo_resume_in_f_at_3",
        "resumed": "f at line 3", "file": "/model.py", "line": 3}  # fmt: skip
OTHER = {"kind": "compile-start", "compile": "2/0", "function": "g", "file": "/model.py", "line": 9}


def part(compile_id: str) -> GraphProfile:
    """A graph that takes 0.1 ms."""
    return replace(graph(seconds=1e-4), compile=compile_id)


def test_a_graph_break_is_counted_per_call(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    parts = [part("0/0"), part("1/0"), part("2/0")]  # The last one is of another function.
    (cost,) = costs_of(evidence(tmp_path / "r", BREAK, REST, OTHER, graphs=parts))
    assert cost.what == snapshot
    assert cost.seconds == pytest.approx(0.08)  # 100 calls of 1 ms, in which graphs take 0.2 ms.


def test_a_whole_graph_costs_nothing_more(tmp_path: Path) -> None:
    assert costs_of(evidence(tmp_path / "r", graphs=[part("0/0")])) == ()


def with_gaps(between: float, **times: Any) -> GraphProfile:
    """A graph of a millisecond per call, of which so much lies between its kernels."""
    return graph(between=between, **times)


def tiny(of: GraphProfile, *microseconds: int) -> list[KernelProfile]:
    """Small kernels of a graph."""
    return [kernel(n * 1e-6, 1e-6, of) for n in microseconds]


def test_kernels_too_small_for_their_launch_cost_what_lies_between_them(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    whole = with_gaps(6e-4)
    known = evidence(tmp_path / "r", kernels=tiny(whole, 2, 5, 6), graphs=[whole])
    (cost,) = costs_of(known)
    assert cost.seconds == pytest.approx(0.06)
    assert cost.what == snapshot
    alone = evidence(tmp_path / "one", kernels=tiny(whole, 2), graphs=[whole])
    assert next(iter(costs_of(alone))).what == snapshot
    (flip,) = wrapper_in_cpp(known)
    assert flip.settings == {"cpp_wrapper": True}
    assert flip.source == PLACE


@pytest.mark.parametrize(
    ("device", "how", "what"),
    [
        ("cpu", CLOCK, "allocations and Python take"),
        ("cpu", PROFILER, "allocations and C++ code take"),  # Only a C++ wrapper is traced there.
        ("cuda", PROFILER, "gaps on the device take"),
    ],
)
def test_what_lies_between_kernels_is_named_for_what_it_is(
    tmp_path: Path, device: str, how: str, what: str
) -> None:
    whole = with_gaps(6e-4, device=device, how=how)
    (cost,) = costs_of(evidence(tmp_path / "r", kernels=tiny(whole, 2), graphs=[whole]))
    assert f"f besides its kernel: {what} 60% of a call of its graph" in cost.what


@pytest.mark.parametrize(
    "other", [with_gaps(1e-4), with_gaps(6e-4, device="cuda"), with_gaps(6e-4, how=PROFILER)]
)
def test_no_other_wrapper_is_tried_where_it_cannot_help(
    tmp_path: Path, other: GraphProfile
) -> None:
    known = evidence(tmp_path / "r", kernels=[kernel(5e-4, 1e-4)], graphs=[other])
    assert not list(wrapper_in_cpp(known))
