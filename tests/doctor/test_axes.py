"""Axes: what the compiler does and can be made to leave undone, and what that changes."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
import torch
import torch._dynamo.config
import torch._inductor.config
from torch._inductor import compiler_bisector, cpp_builder, pattern_matcher, scheduler
from torch._inductor.codegen import cpp
from torch.fx import symbolic_trace

from inductoscope.doctor.failure import Location
from inductoscope.inside.search.axes import AXES, Axis, Fuel
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.oracle import patched, replaced
from support.programs import Workplace

# As the design lists them.
STAGES = {
    "user", "dynamo", "aot", "decomposition", "pre-grad-pass", "joint-pass", "post-grad-pass",
    "lowering", "scheduler", "loop-body", "codegen", "cpp-compile", "triton-compile", "autotune",
    "wrapper", "runtime", "none",
}  # fmt: skip

every_axis = pytest.mark.parametrize("axis", AXES, ids=lambda axis: axis.name)


# --- the table ------------------------------------------------------------------------------------


def test_every_axis_has_a_name_of_its_own() -> None:
    assert len({axis.name for axis in AXES}) == len(AXES)
    assert len({axis.title for axis in AXES}) == len(AXES)


@every_axis
def test_an_axis_blames_a_stage_that_there_is(axis: Axis) -> None:
    assert axis.stage in STAGES
    assert axis.loss > 0


@pytest.mark.parametrize("rewrites_graph", [True, False])
def test_no_two_axes_of_a_group_are_equally_telling(rewrites_graph: bool) -> None:
    ranks = [axis.rank for axis in AXES if axis.rewrites_graph is rewrites_graph]
    assert len(set(ranks)) == len(ranks)


@every_axis
def test_the_settings_of_an_axis_exist_in_this_torch(axis: Axis) -> None:
    for name in axis.settings:
        owner, _, last = f"torch._inductor.config.{name}".rpartition(".")
        assert hasattr(eval(owner), last), name


@every_axis
def test_a_snippet_is_python(axis: Axis) -> None:
    if axis.snippet is not None:
        compile(axis.snippet('it\'s a "name"'), "<snippet>", "exec")


# --- when it is relevant --------------------------------------------------------------------------


def relevant(**known: Any) -> set[str]:
    place = Location(stage=known.pop("stage", ""), kernel=known.pop("kernel", ""))
    given: dict[str, Any] = {"inputs": (torch.ones(2),), **known}
    candidate = Candidate(symbolic_trace(lambda x: x.sin()), **given)
    return {axis.name for axis in AXES if axis.is_relevant(candidate, place)}


NEEDS_MORE = {
    "dynamic shapes",
    "freezing",
    "precision casts",
    "autotuning",
    "cudagraphs",
    "tuning while compiling",
}


def test_where_nothing_is_known_all_axes_that_can_matter_are_relevant() -> None:
    assert relevant() == {axis.name for axis in AXES} - NEEDS_MORE


@pytest.mark.parametrize(
    ("known", "name"),
    [
        ({"dynamic": True}, "dynamic shapes"),
        ({"config": {"freezing": True}}, "freezing"),
        ({"inputs": (torch.ones(2, dtype=torch.bfloat16),)}, "precision casts"),
        ({"options": {"max_autotune_gemm": True}}, "autotuning"),
        ({"device": "cuda:0"}, "cudagraphs"),
        ({"device": "cuda:0", "options": {"cpp_wrapper": True}}, "tuning while compiling"),
    ],
)
def test_an_axis_is_relevant_where_the_candidate_gives_it_something_to_do(
    known: dict[str, Any], name: str
) -> None:
    assert name in relevant(**known)


def test_what_is_about_cpp_is_not_relevant_on_a_gpu() -> None:
    gone = relevant() - relevant(device="cuda:0")
    assert gone == {"vectorisation", "loop tail", "fast math", "C++ optimisation"}


@pytest.mark.parametrize(
    ("known", "names"),
    [
        ({"stage": "pre-grad-pass"}, {"pre-grad passes", "patterns"}),
        ({"stage": "joint-pass"}, {"joint passes", "patterns"}),
        ({"stage": "post-grad-pass"}, {"post-grad passes", "patterns"}),
        ({"stage": "decomposition"}, {"decompositions"}),
        ({"stage": "aot"}, set()),
    ],
)
def test_where_a_pass_is_known_to_be_wrong_only_what_rewrites_that_graph_is_relevant(
    known: dict[str, Any], names: set[str]
) -> None:
    assert relevant(**known) == names


@pytest.mark.parametrize("known", [{"stage": "codegen"}, {"kernel": "cpp_fused_0"}])
def test_where_a_kernel_is_wrong_only_what_makes_kernels_is_relevant(known: dict[str, Any]) -> None:
    stages = {axis.stage for axis in AXES if axis.name in relevant(**known)}
    assert stages == {"lowering", "scheduler", "loop-body", "codegen"}


# --- in and out -----------------------------------------------------------------------------------


OWNERS = (
    cpp_builder,
    cpp.TilingSelect,
    scheduler.Scheduler,
    compiler_bisector.CompilerBisector,
    pattern_matcher,
    *(item for item in vars(pattern_matcher).values() if isinstance(item, type)),
)
CONFIGS = (torch._inductor.config, torch._dynamo.config)


def state() -> dict[Any, Any]:
    """Everything in torch that an axis may change, settings included."""
    found: dict[Any, Any] = {}
    for number, owner in enumerate(OWNERS):
        found.update({(number, name): id(value) for name, value in vars(owner).items()})
    for config in CONFIGS:
        found.update({(config.__name__, k): v for k, v in config.get_config_copy().items()})
    return found


def never(name: str) -> bool:
    return False


def always(name: str) -> bool:
    return True


@every_axis
@pytest.mark.parametrize("permit", [never, always])
def test_an_axis_leaves_torch_as_it_found_it(axis: Axis, permit: Any) -> None:
    before = state()
    with axis.switch(permit):
        pass
    assert state() == before


@every_axis
def test_an_axis_leaves_torch_as_it_found_it_after_an_error(axis: Axis) -> None:
    before = state()
    with pytest.raises(ZeroDivisionError), axis.switch(never):
        raise ZeroDivisionError
    assert state() == before


@every_axis
def test_an_axis_that_is_refused_changes_something_unless_it_is_off_anyway(axis: Axis) -> None:
    is_off = bool(axis.settings) and all(
        eval(f"torch._inductor.config.{name}") == value for name, value in axis.settings.items()
    )
    before = state()
    with axis.switch(never):
        assert is_off or state() != before


def test_all_axes_can_be_refused_together() -> None:
    before = state()
    with contextlib.ExitStack() as stack:
        for axis in AXES:
            stack.enter_context(axis.switch(never))
        assert torch._inductor.config.inplace_buffers is False
    assert state() == before


def test_a_setting_is_changed_only_where_the_axis_is_refused() -> None:
    axis = Axis("a name", "none", "title", loss=1, rank=1, settings={"cpp.simdlen": 1})
    asked: list[str] = []

    def note(name: str) -> bool:
        asked.append(name)
        return len(asked) == 1

    with axis.switch(note):
        assert torch._inductor.config.cpp.simdlen is None
    with axis.switch(note):
        assert torch._inductor.config.cpp.simdlen == 1
    assert asked == ["a name", "a name"]


@pytest.mark.parametrize(
    "name",
    ["no_such_group.setting", "no_such_setting", "cpp.no_such_setting"],
)
def test_a_setting_that_this_torch_does_not_have_is_left_out(name: str) -> None:
    """One torch has a setting, another does not; the axis works in both."""
    with patched({name: 1, "cpp.simdlen": 1}):
        assert torch._inductor.config.cpp.simdlen == 1
    assert torch._inductor.config.cpp.simdlen is None


def test_a_function_is_replaced_for_a_while() -> None:
    class Owner:
        @staticmethod
        def name() -> str:
            return "original"

    with replaced(Owner, "name", lambda original: f"not {original()}"):
        assert Owner.name() == "not original"
    assert Owner.name() == "original"
    assert isinstance(vars(Owner)["name"], staticmethod)


# --- fuel -----------------------------------------------------------------------------------------


def test_fuel_permits_the_first_applications_and_notes_all() -> None:
    fuel = Fuel(2)
    assert [fuel(name) for name in "abcd"] == [True, True, False, False]
    assert fuel.names == ["a", "b", "c", "d"]


def test_fuel_for_all_and_for_none() -> None:
    assert all(map(Fuel(1000), map(str, range(100))))
    assert not any(map(Fuel(0), map(str, range(100))))


# --- what it changes ------------------------------------------------------------------------------


# Graphs are compiled as far as the code that Inductor generates; no native compiler is run.
PROGRAM = """
import contextlib, json, sys
import torch
from torch._inductor import metrics
from inductoscope.inside.search.axes import AXES, Fuel
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.oracle import compiling, no_further_than
from inductoscope.inside.search.failure_signature import innermost


def two_outputs(x):
    return x.sin() + 1, x.t() * 2


def smooth(x):
    return torch.nn.functional.silu(x)


axes = {axis.name: axis for axis in AXES}
nothing = Candidate(torch.fx.GraphModule({}, torch.fx.Graph()), ())
found = {}


def attempt(name, function, amount):
    fuel = Fuel(amount)
    metrics.reset()
    ended = ""
    with compiling(nothing), axes[name].switch(fuel), no_further_than("codegen"):
        try:
            torch.compile(function)(torch.ones(32, 32))
        except Exception as error:
            ended = f"{type(innermost(error)).__name__}: {innermost(error)}"
    found[f"{name} {function.__name__} {amount}"] = {
        "kernels": metrics.generated_kernel_count, "names": fuel.names, "ended": ended
    }


for name in ("fusion", "lowerings", "vectorisation"):
    for amount in (0, 1000):
        attempt(name, two_outputs, amount)
attempt("lowerings", two_outputs, 1)
attempt("decompositions", smooth, 1000)
attempt("decompositions", smooth, 0)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("axes")
    place = Workplace(folder, folder / "cache")
    place.write("program.py", PROGRAM)
    outcome = place.run_plain("program.py")
    assert outcome.exit_code == 0, outcome.stderr
    return json.loads(outcome.stdout.splitlines()[-1])


Seen = dict[str, dict[str, Any]]


def test_without_fusion_there_are_two_kernels_instead_of_one(seen: Seen) -> None:
    assert seen[f"fusion two_outputs {1000}"]["kernels"] == 1
    assert seen["fusion two_outputs 0"]["kernels"] == 2
    assert set(seen["fusion two_outputs 0"]["names"]) == {"op0 with op1"}


def test_without_lowerings_every_operation_is_eagers_own(seen: Seen) -> None:
    assert seen[f"lowerings two_outputs {1000}"]["kernels"] == 1
    assert seen["lowerings two_outputs 0"]["kernels"] == 0
    assert seen["lowerings two_outputs 0"]["names"] == ["sin", "add", "permute", "mul"]


def test_with_fuel_for_one_lowering_one_operation_is_lowered(seen: Seen) -> None:
    assert seen["lowerings two_outputs 1"]["kernels"] == 1
    assert seen["lowerings two_outputs 1"]["names"] == ["sin", "add", "permute", "mul"]


def test_a_kernel_that_is_not_vectorised_is_still_one(seen: Seen) -> None:
    assert seen["vectorisation two_outputs 0"]["kernels"] == 1
    assert set(seen["vectorisation two_outputs 0"]["names"]) == {"a C++ kernel"}


def test_decompositions_are_named_by_their_operation(seen: Seen) -> None:
    names = seen[f"decompositions smooth {1000}"]["names"]
    assert any("aten.silu" in name for name in names)
    assert seen[f"decompositions smooth {1000}"]["kernels"] == 1


def test_without_decompositions_an_operation_is_eagers_own(seen: Seen) -> None:
    assert seen["decompositions smooth 0"]["ended"].startswith("_Past")
