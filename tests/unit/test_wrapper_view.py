"""The wrapper of a package says what it accepts; `show --stage wrapper` begins with that."""

from __future__ import annotations

from pathlib import Path

from inductoscope.views.report.inductor_stages import facts_of_package

WRAPPERS = Path(__file__).parents[1] / "data" / "cpp_wrappers"


def test_inputs_and_constants_of_a_package() -> None:
    (text,) = (
        path.read_text()
        for path in WRAPPERS.glob("*")
        if "AOTInductorModel::run_impl(" in path.read_text()
    )
    facts = facts_of_package(text)
    assert facts["input 0"].startswith("float32, [")
    assert "strides [" in facts["input 0"]
    assert " (float32 [" in facts["constants"]


def test_a_wrapper_of_torch_compile_demands_nothing_by_itself() -> None:
    assert facts_of_package("def call(self, args):\n    return (args[0],)\n") == {}
