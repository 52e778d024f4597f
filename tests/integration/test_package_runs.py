"""`inductoscope aoti MODEL.pt2 --inputs FILE`: real packages, run in a child, and their faults.

One package is built for all tests. Its model `stepping` calls a custom operator whose fault the
environment names; `counting` changes a buffer in every call. copy.pt2 is the latter once more, by a
linker that put a copy of libstdc++ into it.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from inductoscope.inside.packages.trials import bits_of
from inductoscope.torch_facts.package_wrappers import DTYPES
from support.json_schema import violations
from support.programs import TOOL, Workplace

BUILD = Path(__file__).parents[1] / "support" / "packages" / "build.py"

WRITE_INPUTS = """
import torch
x, index = torch.load("inputs.pt")
torch.save((x.repeat(11, 1), index.repeat(11)), "66_rows.pt")
torch.save((x, torch.nn.Linear(2, 2)), "module.pt")
torch.save((x.t().contiguous().t(), index), "transposed.pt")
"""


@dataclass(frozen=True)
class Said:
    """Output of the command, as text and as JSON."""

    exit_code: int
    text: str
    errors: str
    data: dict[str, Any]

    @property
    def findings(self) -> dict[str, str]:
        return {finding["name"]: finding["text"] for finding in self.data["findings"]}


@dataclass(frozen=True)
class Shop:
    """The package and what belongs to it."""

    place: Workplace

    def aoti(
        self,
        model: str,
        *words: str,
        package: str = "shop.pt2",
        inputs: str = "inputs.pt",
        **environment: str,
    ) -> Said:
        target = self.place.folder / "said.json"
        target.unlink(missing_ok=True)
        command = [*TOOL, "aoti", package, "--model", model, "--inputs", inputs, "--quiet"]
        done = self.place.call([*command, "--json", "said.json", *words], **environment)
        data = json.loads(target.read_text()) if target.exists() else {}
        assert not data or violations("aoti", data) == []
        # Lines are wrapped at 80 columns.
        return Said(done.returncode, " ".join(done.stdout.split()), done.stderr, data)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    folder = tmp_path_factory.mktemp("shop")
    place = Workplace(folder, folder / "cache")
    built = place.call([sys.executable, str(BUILD), str(folder), "g++"])
    assert (folder / "shop.pt2").exists(), built.stderr[-2000:]
    place.call([sys.executable, "-c", WRITE_INPUTS])
    return Shop(place)


OPS = ("--ops", "operators.so")
SERVE = ("--serve", "--calls", "200")


# --- one run --------------------------------------------------------------------------------------


def test_which_of_several_models_is_meant_has_to_be_said(shop: Shop) -> None:
    done = shop.place.call([*TOOL, "aoti", "shop.pt2", "--inputs", "inputs.pt"])
    assert done.returncode == 2
    assert "holds 2 models. Name one with --model: counting, stepping." in done.stderr


@pytest.mark.parametrize(
    ("inputs", "sentences"),
    [
        (
            "66_rows.pt",
            [
                "input 0 (arg2_1): dimension 0 is 66; the package accepts 2 to 64",
                "input 1 (arg3_1): dimension 0 is 66; the package accepts 2 to 64",
            ],
        ),
        (
            "transposed.pt",
            [
                "input 0 (arg2_1): stride 0 is 1; the package accepts 16",
                "input 0 (arg2_1): stride 1 is 6; the package accepts 1",
            ],
        ),
    ],
)
def test_inputs_that_break_a_guard_are_told_before_the_package_is_loaded(
    shop: Shop, inputs: str, sentences: list[str]
) -> None:
    # The fault would show if the package were run.
    said = shop.aoti("stepping", *OPS, inputs=inputs, SHOP_FAULT="crash")
    assert said.exit_code == 1
    assert said.data["verdict"] == "broken guards"
    assert [item["text"] for item in said.data["findings"]] == sentences
    assert said.data["executed"] is False
    assert "The package was not loaded: nothing in it was executed." in said.text


def test_a_file_of_inputs_that_holds_code_is_refused(shop: Shop) -> None:
    said = shop.aoti("stepping", inputs="module.pt")
    assert said.exit_code == 2
    assert "is not loadable with weights_only=True" in said.errors
    assert "torch.save((x, y), PATH)" in said.errors


def test_a_custom_operator_that_is_not_defined(shop: Shop) -> None:
    said = shop.aoti("stepping")
    assert said.exit_code == 1
    assert said.findings["missing_operator"].startswith(
        "The custom operator shop::step is not defined."
    )


@pytest.mark.parametrize(
    ("fault", "verdict", "name", "sentence"),
    [
        (
            "crash",
            "dies",
            "death",
            "died of SIGSEGV while running the model, in operators.so, below a custom operator",
        ),
        ("throw", "fails", "error", "while running the model: RuntimeError: the shop is closed"),
        (
            "shape",
            "fails",
            "operator_result",
            "what torch.ops.shop.step.default returned: dimension 0 is 12; its fake (meta) "
            "function promised 6",
        ),
        ("hang", "does not end", "no_end", "it was stopped while running the model"),
    ],
)
def test_how_a_run_can_end(shop: Shop, fault: str, verdict: str, name: str, sentence: str) -> None:
    said = shop.aoti("stepping", *OPS, "--timeout", "4", SHOP_FAULT=fault)
    assert said.exit_code == 1
    assert said.data["verdict"] == verdict
    assert sentence in said.findings[name]
    assert "The package's native code was executed, in a child process" in said.text


def test_a_copy_of_the_cpp_library_is_shown_to_be_why_it_fails(shop: Shop) -> None:
    """It dies or raises, depending on the machine; with torch's library loaded first it runs."""
    said = shop.aoti("counting", package="copy.pt2")
    assert said.exit_code == 1
    assert said.data["run"]["outcome"] in ("fails", "dies")
    assert said.data["run"]["stage"] == "load"
    assert said.data["second_run"]["outcome"] == "runs"
    assert (
        "with libstdc++.so.6 loaded first, the same run ends well" in said.findings["cpp_library"]
    )
    assert "LD_PRELOAD=libstdc++.so.6" in said.findings["remedy"]
    assert "with libstdc++.so.6 loaded first it runs." in said.text


# --- many calls, several threads, no Python -------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bool", "bfloat16", "float8_e4m3fn", "uint32", "complex128"])
def test_inputs_of_any_type_are_read_in_cpp(dtype: str, tmp_path: Path) -> None:
    """C++ reads no file of torch.save with the types that are younger than its format."""
    import torch

    given = torch.arange(6).reshape(2, 3).t().to(getattr(torch, dtype))
    torch.save([bits_of(given)], tmp_path / "inputs.pt")
    ((bits, code),) = torch._C._pickle_load_obj((tmp_path / "inputs.pt").read_bytes())
    assert (DTYPES[code], bits.shape, bits.stride()) == (dtype, given.shape, given.stride())
    assert torch.equal(bits, bits_of(given)[0])


def test_a_healthy_model_is_not_accused(shop: Shop) -> None:
    said = shop.aoti("stepping", *OPS, *SERVE)
    assert said.exit_code == 0, said.text
    assert said.data["verdict"] == "runs"
    assert said.data["findings"] == []
    serving = said.data["serving"]
    assert serving["not_in_cpp"] == ""
    assert [way["outcome"] for way in serving["ways"]] == ["agrees"] * 3
    assert serving["state"] == "none"


def test_a_buffer_that_every_call_changes_is_shared_by_the_runners(shop: Shop) -> None:
    said = shop.aoti("counting", *SERVE)
    serving = said.data["serving"]
    assert serving["state"] == "container"
    assert {way["name"]: way["outcome"] for way in serving["ways"]} == {
        "queue": "agrees",
        "runners": "interferes",
        "containers": "agrees",
    }
    assert "changes count in place" in said.findings["shared_by_runners"]


def test_a_custom_operator_that_keeps_state_leaks_memory_and_files(shop: Shop) -> None:
    said = shop.aoti("stepping", *OPS, *SERVE, SHOP_FAULT="race,leak,files")
    serving = said.data["serving"]
    assert serving["state"] == "process"
    outcomes = {way["name"]: way["outcome"] for way in serving["ways"]}
    assert outcomes == {"queue": "agrees", "runners": "interferes", "containers": "interferes"}
    assert "a custom operator (shop::step)" in said.findings["shared_by_process"]
    grown = {growth["quantity"]: growth["per_call"] for growth in serving["growth"]}
    assert 1000 <= grown["allocated"] <= 1100
    assert grown["files"] == 1
    # Both are put down to the operator: alone it leaks as much, and without it nothing does.
    leaks = [f["text"] for f in said.data["findings"] if f["name"] == "leaks_operator"]
    assert len(leaks) == 2
    assert all(text.startswith("The custom operator shop::step leaks: alone") for text in leaks)
    assert "it adds 1 open file for every call of the model. The container" in leaks[1]
