"""Guesses at why a configuration does not compile, in the order of how well they fit."""

from __future__ import annotations

import pytest

from inductoscope.hangs.choices.causes import RULES, Cause, likely_causes
from inductoscope.hangs.choices.contrast import contrast
from inductoscope.hangs.choices.suspects import Suspect

PLAIN = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "num_warps": 4, "num_stages": 3}


def causes(stuck: dict, finished: dict = PLAIN, **about: object) -> list[Cause]:
    return likely_causes(
        [Suspect(stuck, **about)],
        [Suspect(finished, **about)],
        contrast([stuck], [finished]),
    )


CUDA = {"target": "cuda", "architecture": "90", "pointers": ("*bf16", "*bf16")}
HIP = {"target": "hip", "architecture": "gfx942"}
XPU = {"target": "xpu"}

EXAMPLES = [
    ("register-pressure", {"BLOCK_M": 256, "BLOCK_N": 256}, CUDA),
    ("large-block", {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 128}, CUDA),
    ("uneven-blocks", {"BLOCK_M": 16, "BLOCK_N": 256}, CUDA),
    ("odd-block", {"BLOCK_K": 48}, CUDA),
    ("many-warps", {"num_warps": 8}, CUDA),
    ("nvidia-shared-memory", {"BLOCK_N": 128, "BLOCK_K": 256}, CUDA),
    ("deep-pipeline", {"num_stages": 6}, CUDA),
    ("nvidia-tma", {"TMA_EXPERIMENTAL_API": True}, CUDA),
    ("nvidia-warp-specialisation", {"WARP_SPECIALIZE": True}, CUDA),
    ("nvidia-cooperative-grid", {"launch_cooperative_grid": True}, CUDA),
    ("amd-waves", {"waves_per_eu": 4, "num_warps": 1, "BLOCK_K": 128}, HIP),
    ("amd-matrix-instruction", {"matrix_instr_nonkdim": 32, "BLOCK_N": 16}, HIP),
    ("amd-matrix-registers", {"waves_per_eu": 4, "BLOCK_M": 256, "BLOCK_N": 128}, HIP),
    ("intel-native-code", {"generate_native_code": True}, XPU),
    ("intel-blocks", {"BLOCK_M": 16, "BLOCK_N": 16, "num_warps": 32}, XPU),
]


@pytest.mark.parametrize(("name", "change", "device"), EXAMPLES, ids=[e[0] for e in EXAMPLES])
def test_each_rule_has_a_configuration_that_it_fits(name: str, change: dict, device: dict) -> None:
    found = {cause.rule.name: cause for cause in causes({**PLAIN, **change}, **device)}
    assert name in found
    assert found[name].evidence


def test_every_rule_has_an_example() -> None:
    assert {rule.name for rule in RULES} - {"long-body"} == {example[0] for example in EXAMPLES}


def test_a_very_long_kernel_is_told_by_its_source() -> None:
    long = Suspect(PLAIN, source="x = 1\n" * 1000)
    (cause,) = likely_causes([long], [Suspect({**PLAIN, "BLOCK_K": 16})])
    assert cause.rule.name == "long-body"


def test_an_ordinary_configuration_has_no_likely_cause() -> None:
    assert causes(PLAIN, {**PLAIN, "BLOCK_K": 16}, **CUDA) == []


def test_what_finished_ones_have_too_is_no_cause() -> None:
    deep = {**PLAIN, "num_stages": 6}
    assert causes({**deep, "BLOCK_K": 64}, deep, **CUDA) == []


def test_the_cause_that_looks_at_what_separates_comes_first() -> None:
    stuck = {**PLAIN, "num_warps": 8, "num_stages": 6}
    finished = {**PLAIN, "num_stages": 6}
    assert causes(stuck, finished, **CUDA)[0].rule.name == "many-warps"


REGISTERS = [
    # 128 accumulators for each of 32 threads in 4 warps, or 64 for each of 64.
    ({"target": "cuda", "architecture": "90"}, "128 accumulators per thread, of 255 registers"),
    ({"target": "hip", "architecture": "gfx1100"}, "128 accumulators per thread, of 256 registers"),
    ({"target": "hip", "architecture": "gfx942"}, ""),
    # A log names no device, but AMD's kernels have options of their own.
    ({}, ""),
]


@pytest.mark.parametrize(("device", "evidence"), REGISTERS)
def test_registers_are_those_of_the_device_if_it_is_known(device: dict, evidence: str) -> None:
    stuck = {**PLAIN, "BLOCK_M": 128, "BLOCK_N": 128, "waves_per_eu": 0}
    found = {cause.rule.name: cause.evidence for cause in causes(stuck, **device)}
    assert found.get("register-pressure", "") == evidence


def test_rules_of_one_vendor_do_not_speak_of_another() -> None:
    stuck = {**PLAIN, "BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 128}
    names = {cause.rule.name for cause in causes(stuck, **HIP)}
    assert not any(name.startswith(("nvidia", "intel")) for name in names)
