"""Who leaks: an operator, a kernel, a library call or the container, from what trials gave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inductoscope.inside.packages.trials import REMEMBERED_CALLS
from inductoscope.packages import leaks
from inductoscope.packages.execution import RunOutcome, RunRequest
from inductoscope.packages.leaks import (
    Growth,
    LeakedStack,
    LeakTrials,
    findings_of_leaks,
    look_for_leaks,
    part_of,
    read_stacks,
)
from inductoscope.packages.package import read_package

PACKAGE = "/tmp/aotinductor_P7W2Bv/data/aotinductor/model/cxq7.wrapper.so"
TORCH, PRELOADED = "/torch/lib/libtorch_cpu.so", "/tmp/folder/leaks.so"
KERNELS = ["cpp_fused_sin_0", "aoti_torch_cpu_addmm_out"]
# Outermost last, as in a real process.
BELOW = [
    ["_ZN5torch12aot_inductor16AOTInductorModel8run_implEPP", PACKAGE],
    ["AOTInductorModelContainerRun", PACKAGE],
    ["_ZN5torch8inductor24AOTIModelContainerRunner8run_implERSt6vector", TORCH],
    ["PyObject_Vectorcall", "/usr/lib/libpython3.11.so.1.0"],
]
MALLOC = [["", PRELOADED], ["malloc", PRELOADED]]


@pytest.mark.parametrize(
    ("frames", "part"),
    [
        ([["", "/shop/operators.so"], ["aoti_torch_proxy_executor_call_function", TORCH], *BELOW],
         ("operator", "", "operators.so")),
        ([["cpp_fused_sin_0", PACKAGE], *BELOW], ("kernel", "cpp_fused_sin_0", "cxq7.wrapper.so")),
        ([["", TORCH], ["aoti_torch_cpu_addmm_out", TORCH], *BELOW],
         ("library", "aoti_torch_cpu_addmm_out", "libtorch_cpu.so")),
        ([["_Znwm", "/lib/libstdc++.so.6"], ["aoti_torch_empty_strided", TORCH], *BELOW],
         ("container", "aoti_torch_empty_strided", "libtorch_cpu.so")),
        ([["_Znwm", "/lib/libstdc++.so.6"], *BELOW], ("container", "", "cxq7.wrapper.so")),
        (BELOW[2:], ("runner", "", "libtorch_cpu.so")),
        (BELOW[3:], ("unknown", "", "")),
    ],
    ids=["operator", "kernel", "library call", "tensor", "wrapper", "runner", "elsewhere"],
)  # fmt: skip
def test_a_stack_says_which_part_of_the_model_asked(
    frames: list[list[str]], part: tuple[str, str, str]
) -> None:
    assert part_of([*MALLOC, *frames], "cxq7.wrapper.so", KERNELS) == part


def test_only_what_every_call_leaves_is_a_leak() -> None:
    rows = [{"stack": 0, "bytes": 1000}] * REMEMBERED_CALLS + [{"stack": 1, "bytes": 9000}] * 3
    rows += [{"frames_of": n, "frames": [*MALLOC, *BELOW]} for n in range(2)]
    text = "\n".join(json.dumps(row) for row in rows)
    (found,) = read_stacks(text, "cxq7.wrapper.so", KERNELS)
    assert (found.count, found.bytes) == (REMEMBERED_CALLS, 1000 * REMEMBERED_CALLS)


def grown(per_call: int, quantity: str = "allocated", name: str = "bytes allocated") -> Growth:
    return Growth(quantity, name, per_call * 400, 400)


def stack(part: str, name: str, each: int) -> LeakedStack:
    return LeakedStack(part, name, "", REMEMBERED_CALLS, each * REMEMBERED_CALLS, "")


def said(trials: LeakTrials) -> tuple[str, str]:
    (found,) = findings_of_leaks([grown(1000)], trials)
    return found.name, found.confidence


def test_an_operator_that_leaks_alone_and_without_which_nothing_does() -> None:
    alone = {"shop::step": (grown(990),), "shop::other": ()}
    # The operator keeps a tensor of the wrapper's: the stack alone would accuse the container.
    made = (stack("container", "aoti_torch_empty_strided", 1000),)
    assert said(LeakTrials("", made, alone, without=())) == ("leaks_operator", "proven")
    # It changes what it is given, so that the model cannot be called without it.
    assert said(LeakTrials("", made, alone, without=None)) == ("leaks_operator", "likely")


def test_a_part_of_the_package_leaks_if_it_does_without_operators() -> None:
    stacks = (stack("kernel", "cpp_fused_sin_0", 1000),)
    assert said(LeakTrials("", stacks)) == ("leaks_kernel", "proven")
    alone = {"shop::step": ()}
    assert said(LeakTrials("", stacks, alone, (grown(1000),))) == ("leaks_kernel", "proven")
    assert said(LeakTrials("", stacks, alone, ())) == ("leaks_unknown", "unknown")


@pytest.mark.parametrize(
    "trials",
    [
        LeakTrials("no C++ compiler is installed"),
        LeakTrials("", (stack("kernel", "cpp_fused_sin_0", 10),)),
        LeakTrials("", (stack("kernel", "a", 500), stack("kernel", "b", 500))),
        LeakTrials("", (), {"shop::one": (grown(900),), "shop::two": (grown(900),)}, ()),
    ],
    ids=["not tried", "too little", "two kernels", "two operators"],
)
def test_nobody_is_accused_without_proof(trials: LeakTrials) -> None:
    assert said(trials) == ("leaks_unknown", "unknown")


def test_an_operator_that_leaks_less_is_not_called_innocent() -> None:
    alone = {"shop::step": (grown(750),), "shop::other": (grown(250),), "shop::third": ()}
    (found,) = findings_of_leaks([grown(1000)], LeakTrials("", (), alone, without=()))
    # The trial calls it as often as one call of the model does.
    assert "alone, it adds 750 bytes allocated for every call of the model" in found.text
    assert "shop::other alone adds 250 bytes allocated; shop::third alone does not grow" in (
        found.established
    )


@pytest.mark.parametrize("written", [None, '{"stack": 0, "byt', '{"stack": 0, "bytes": 8}\n' * 50])
def test_stacks_that_cannot_be_read_do_not_hide_the_other_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str | None
) -> None:
    """Nothing was written, the process died while writing, or frames are missing."""

    def run(*given: object) -> RunOutcome:
        if written is not None:
            (tmp_path / "leaks" / "leaks.jsonl").write_text(written)
        return RunOutcome("runs", "run", "", "", 0, 1.0, (), (), (), "")

    monkeypatch.setattr(leaks, "run_package", run)
    monkeypatch.setattr(leaks, "_build", lambda target: "")
    package = read_package(Path(__file__).parents[1] / "data" / "packages" / "small.pt2")
    request = RunRequest(Path("inputs.pt"))
    trials = look_for_leaks(package, package.models[0], request, tmp_path / "leaks", print)
    (found,) = findings_of_leaks([grown(1000)], trials)
    assert "the stacks of what it asked for could not be read" in found.text
    assert found.established == "tried: the model without custom operators, each of them alone"
