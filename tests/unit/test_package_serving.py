"""Conclusions from repeated calls: growth, where calls interfere, where a process died."""

from __future__ import annotations

import io
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.packages.execution import RunOutcome, RunRequest
from inductoscope.packages.fitting import LocalMachine
from inductoscope.packages.package import read_package
from inductoscope.packages.serving import (
    Growth,
    LeakTrials,
    ServedWay,
    Serving,
    build_program,
    calls_to_keep,
    findings_of_leaks,
    findings_of_serving,
    growths,
)
from inductoscope.processes.children import ChildLimits
from inductoscope.torch_facts.messages import crash_place
from inductoscope.views.report import package
from inductoscope.views.report.terminal import Printer

PACKAGE = Path(__file__).parents[1] / "data" / "packages" / "small.pt2"


def samples(**values: list[int]) -> list[dict[str, int]]:
    """Samples after every tenth call; what is not given stays level."""
    level = {"allocated": 10_000_000, "resident": 500_000_000, "files": 20, "threads": 4}
    count = len(next(iter(values.values())))
    return [
        {**level, **{name: level[name] + one[n] for name, one in values.items()}, "calls": 10 * n}
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("quantity", "values", "per_call"),
    [
        ("allocated", [n * 10_000 for n in range(21)], 1000),
        ("files", [n * 10 for n in range(21)], 1),
        ("threads", [n * 10 for n in range(21)], 1),
        ("resident", [n * 10 * (1 << 20) for n in range(21)], 1 << 20),
    ],
)
def test_what_grows_with_every_call(quantity: str, values: list[int], per_call: float) -> None:
    (found,) = growths(samples(**{quantity: values}))
    assert (found.quantity, found.per_call) == (quantity, per_call)


@pytest.mark.parametrize(
    "values",
    [
        [0] * 21,
        [min(n, 4) * 1_000_000 for n in range(21)],  # A cache fills, and levels off.
        [50_000_000 * (n > 12) for n in range(21)],  # The allocator takes a large piece once.
        [(n % 2) * 1_000_000 for n in range(21)],  # Taken and given back.
        [n * 16 for n in range(21)],  # A handful of bytes that are someone else's.
    ],
    ids=["level", "fills", "one step", "up and down", "too little"],
)
def test_a_healthy_program_is_not_said_to_grow(values: list[int]) -> None:
    assert growths(samples(allocated=values)) == ()


def serving(**outcomes: str) -> Serving:
    ways = tuple(
        ServedWay(name, name, outcome, 400, 7 if outcome == "interferes" else 0, "")
        for name, outcome in outcomes.items()
    )
    return Serving(4, 400, "", True, "container", ways, (), (), 0, None)


def test_a_race_is_put_down_to_what_separate_containers_do_not_share(
    snapshot: SnapshotAssertion,
) -> None:
    model = read_package(PACKAGE).models[0]
    ways = {"queue": "agrees", "runners": "interferes", "containers": "agrees"}
    race, cause = findings_of_serving(serving(**ways), model)
    assert race.text == snapshot
    assert cause.text == snapshot


def test_a_race_that_separate_containers_have_too_is_not_the_containers(
    snapshot: SnapshotAssertion,
) -> None:
    model = read_package(PACKAGE).models[0]
    ways = {"queue": "agrees", "runners": "interferes", "containers": "interferes"}
    _, cause = findings_of_serving(serving(**ways), model)
    assert cause.text == snapshot


def test_where_nothing_else_was_tried_nothing_is_blamed() -> None:
    model = read_package(PACKAGE).models[0]
    ways = {"queue": "agrees", "runners": "interferes", "containers": "does not end"}
    assert [found.name for found in findings_of_serving(serving(**ways), model)] == [
        "threads_interfere",
        "threads_fail",
    ]


def printed(serving: Serving) -> str:
    page = io.StringIO()
    package._print_serving(Printer(page), asdict(serving))
    return page.getvalue()


def test_what_was_not_measured_is_not_said_to_be_level() -> None:
    unknown = printed(serving())
    assert unknown.count("not measured") == 2
    assert "level" not in unknown
    measured = replace(serving(), growth_measured=True, left_by_loading=0, still_mapped=0)
    assert printed(measured).count("level") == 2


def test_large_outputs_are_kept_for_fewer_calls() -> None:
    request = RunRequest(Path("inputs.pt"), serve={"threads": 4, "calls": 400})

    def run(*sizes: int) -> RunOutcome:
        output = {"sizes": list(sizes), "dtype": "float32"}
        return RunOutcome("runs", "run", "", "", 0, 1.0, (), (output,), (), "")

    assert calls_to_keep(request, run(6, 16)) == 400
    assert calls_to_keep(request, run(1024, 1024, 4)) == 32
    assert calls_to_keep(request, run(1 << 20, 1 << 20)) == 8


def test_without_a_compiler_there_is_no_program(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    snapshot: SnapshotAssertion,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    here = LocalMachine("linux", "aarch64", frozenset(), "2.36", tmp_path, "2.13.0", ())
    built = build_program(here, tmp_path, ChildLimits())
    assert built.path is None
    assert built.problem == snapshot


# Printed by torch 2.13 when a custom operator raised SIGSEGV; frames below are left out.
STACK = """\
SIGSEGV(11), PID: 23957, Thread 23957:
 frame #0: c10::FatalSignalHandler::stacktraceSignalHandler(bool) + 0x88 (0xffff in /lib/libc10.so)
frame #1: c10::FatalSignalHandler::fatalSignalHandler(int) + 0x2b8 (0xffff in /lib/libc10.so)
frame #2: __kernel_rt_sigreturn + 0 (0xffffb71f1978 in linux-vdso.so.1)
frame #3: <unknown function> + 0x83c18 (0xffffb6ad3c18 in /lib/aarch64-linux-gnu/libc.so.6)
frame #4: gsignal + 0x1c (0xffffb6a8a8ac in /lib/aarch64-linux-gnu/libc.so.6)
frame #5: <unknown function> + 0x4f40 (0xffffa20f4f40 in /home/me/operators.so)
frame #10: aoti_torch_proxy_executor_call_function + 0x1c (0xffff in /lib/libtorch_cpu.so)
frame #11: torch::aot_inductor::AOTInductorModel::run_impl(void*) + 0x52c (0xffff in /tmp/x.so)
"""


def test_where_a_process_died_is_read_from_its_stack(snapshot: SnapshotAssertion) -> None:
    place = crash_place(STACK, [])
    assert place is not None
    assert place.text == snapshot
    kernel = STACK.replace("frame #4: gsignal", "frame #4: cpp_fused_add_0")
    place = crash_place(kernel, ["cpp_fused_add_0"])
    assert place is not None
    assert place.text == snapshot
    assert crash_place("Segmentation fault", []) is None


# --- who leaks ------------------------------------------------------------------------------------


def grown(per_call: int) -> Growth:
    return Growth("allocated", "bytes allocated", per_call * 400, 400, per_call)


@pytest.mark.parametrize(
    ("trials", "name", "confidence"),
    [
        (LeakTrials("", {"one": (grown(990),), "two": ()}, ()), "leaks_operator", "proven"),
        # It changes what it is given, so that the model cannot be called without it.
        (LeakTrials("", {"one": (grown(990),), "two": ()}), "leaks_operator", "likely"),
        (LeakTrials(), "leaks_container", "proven"),
        (LeakTrials("", {"one": ()}, (grown(1000),)), "leaks_container", "proven"),
        (LeakTrials("", {"one": ()}, ()), "leaks_unknown", "unknown"),
        (LeakTrials("a child process dies"), "leaks_unknown", "unknown"),
        (
            LeakTrials("", {"one": (grown(900),), "two": (grown(900),)}, ()),
            "leaks_unknown",
            "unknown",
        ),
    ],
    ids=["operator", "not without", "no operators", "too", "neither", "not tried", "two"],
)
def test_a_part_that_leaks_as_much_alone_is_named(
    trials: LeakTrials, name: str, confidence: str
) -> None:
    (found,) = findings_of_leaks([grown(1000)], trials)
    assert (found.name, found.confidence) == (name, confidence)


def test_an_operator_that_leaks_less_is_not_called_innocent(snapshot: SnapshotAssertion) -> None:
    alone = {"shop::step": (grown(750),), "shop::other": (grown(250),), "shop::third": ()}
    (found,) = findings_of_leaks([grown(1000)], LeakTrials("", alone, without_operators=()))
    # The trial calls it as often as one call of the model does.
    assert found.text == snapshot
    assert found.established == snapshot
