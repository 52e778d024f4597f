"""Fits of growth, the programs that grow, and what is said of real models that cannot run."""

from __future__ import annotations

import ast
import random

import pytest
from battery.plants import RECIPES
from bench.growth import PLAIN, WHOLE, Point, fit, read_steps, summarize, write_graphs, write_nodes
from bench.real_models import FAULTS, SCRIPT, Healthy, Planted, enlarge
from bench.real_models import summarize as summarize_models

SIZES = (50, 100, 200, 400, 1000)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.5, 2.0])
def test_a_power_of_the_size_is_found(exponent: float) -> None:
    fitted = fit((size, 0.01 * size**exponent) for size in SIZES)
    assert fitted is not None
    assert fitted.exponent == pytest.approx(exponent, abs=1e-9)
    assert fitted.error == pytest.approx(0.0, abs=1e-6)


def test_the_exponent_is_within_its_error_of_the_truth() -> None:
    chance = random.Random(0)
    fitted = fit((size, 0.01 * size**2 * chance.uniform(0.8, 1.25)) for size in SIZES)
    assert fitted is not None
    assert fitted.error is not None
    assert abs(fitted.exponent - 2.0) < 3 * fitted.error < 0.6


def test_sizes_that_took_no_time_have_no_exponent() -> None:
    assert fit([(50, 0.0), (100, -0.1), (200, 1.0)]) is None
    two = fit([(50, 1.0), (100, 2.0)])
    assert two is not None
    assert two.runs == pytest.approx((1.0,))


def points(whole: float, step: float) -> list[Point]:
    return [
        Point(
            size,
            {
                PLAIN: 5 + 0.01 * size,
                WHOLE: 20 + 0.02 * size**whole,
                "parent: read": 0.01 * size**step,
                "parent: write": 0.01,
            },
        )
        for size in SIZES
    ]


LEAST = Point(1, {PLAIN: 5.0, WHOLE: 20.0})


def test_what_starting_costs_is_taken_off_and_steps_too_short_are_left_out() -> None:
    found = {m.name: m for m in summarize("graphs", LEAST, points(1.0, 2.0))}
    assert [*found] == [f"graphs: {PLAIN}", f"graphs: {WHOLE}", "graphs: parent: read"]
    assert found[f"graphs: {WHOLE}"].middle == pytest.approx(1.0)
    assert found[f"graphs: {WHOLE}"].conclude().word == "met"
    assert found["graphs: parent: read"].conclude().word == "missed"
    assert found[f"graphs: {PLAIN}"].conclude().word == "no goal"


def test_a_plain_compile_that_grows_faster_is_the_goal() -> None:
    quadratic = [Point(size, {PLAIN: 5 + size**2.0, WHOLE: 20 + size**1.7}) for size in SIZES]
    found = {m.name: m for m in summarize("nodes", LEAST, quadratic)}
    assert found[f"nodes: {WHOLE}"].goal == pytest.approx(2.0)
    assert found[f"nodes: {WHOLE}"].conclude().word == "met"


def test_nothing_is_concluded_where_a_size_failed() -> None:
    broken = [*points(1.0, 1.0)[:4], Point(1000, failure="the doctor: no end within the limit")]
    _, whole, *steps = summarize("graphs", LEAST, broken)
    reason = "1,000 graphs: the doctor: no end within the limit"
    assert str(whole.conclude()) == f"not concluded: {reason}"
    assert "exponent of the others 1.00" in whole.note
    assert {step.conclude().word for step in steps} == {"not concluded"}
    (nothing,) = summarize("graphs", LEAST, broken[-1:])
    assert str(nothing.conclude()) == f"not concluded: {reason}"


def test_nothing_is_concluded_without_what_starting_costs() -> None:
    unknown = Point(1, failure="the plain run: exit code 1")
    _, whole, *_ = summarize("graphs", unknown, points(1.0, 1.0))
    assert str(whole.conclude()) == "not concluded: 1 graphs: the plain run: exit code 1"


def test_steps_of_the_same_process_add_up() -> None:
    entry = {"process": "program", "step": "compare", "seconds": 2.0, "cpu_seconds": 1.5}
    assert read_steps({"time": [entry, entry]}) == {"program: compare": 3.0}
    assert read_steps({}) == {}


def test_a_program_has_as_many_graphs_as_it_should() -> None:
    for size in (1, 5, 12):
        tree = ast.parse(write_graphs(size))
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        assert write_graphs(size).count("graph_break") + len(functions) == size


def test_a_program_of_nodes_has_a_layer_for_every_five() -> None:
    assert "range(60)" in write_nodes(300)
    ast.parse(write_nodes(300))


# --- real models ----------------------------------------------------------------------------------


def test_the_model_is_that_of_the_battery_but_larger() -> None:
    larger = enlarge(SCRIPT.read_text())
    assert "n_layer=4" in larger
    ast.parse(larger)
    with pytest.raises(ValueError, match="does not have 'n_layer=2"):
        enlarge(larger)


def test_a_model_that_cannot_run_is_no_verdict_on_the_doctor() -> None:
    missing = Healthy(plain=[None], why_no_plain="could not run: No module named 'transformers'")
    conclusions = {str(m.conclude()) for m in summarize_models(missing, [])}
    reason = "could not run: No module named 'transformers'"
    assert conclusions == {f"not concluded: the plain run: {reason}", f"not concluded: {reason}"}


def test_a_fault_that_is_never_named_misses_its_goal() -> None:
    (recipe,) = (recipe for recipe in RECIPES if recipe.name == FAULTS[0])
    healthy = Healthy([50.0, 51.0], [90.0, 91.0])
    planted = [Planted(recipe, [40.0], [None], [300.0], "something else")]
    found = {m.name: m for m in summarize_models(healthy, planted)}
    assert found["a clean verdict"].conclude().word == "met"
    assert found[f"{FAULTS[0]}, named"].conclude().word == "met"
    assert str(found[f"{FAULTS[0]}, proven"].conclude()) == "missed: ours failed: something else"
    assert "300 s" in found[f"{FAULTS[0]}, proven"].note
