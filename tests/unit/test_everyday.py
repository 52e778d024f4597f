"""The table of everyday tests names tests that exist, and every command is among its parts."""

from __future__ import annotations

from everyday import EVERYDAY, is_everyday, missing


def test_every_entry_is_a_test() -> None:
    assert missing() == []


def test_a_test_without_torch_is_everyday_and_a_whole_examination_is_if_it_is_named() -> None:
    assert is_everyday("tests/unit/test_rules.py::test_x[a]")
    assert is_everyday("tests/doctor/test_doctor.py::test_a_wrong_lowering_is_named_cut_down[x]")
    assert not is_everyday("tests/doctor/test_doctor.py::test_a_compile_that_never_ends")
    assert len(EVERYDAY) > 25
