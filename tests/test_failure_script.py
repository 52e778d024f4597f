"""Reproducers: a graph as the text of a function, inputs as recipes, and the script around them."""

from __future__ import annotations

import base64
import math
import operator
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx import Graph, GraphModule, Interpreter

from inductoscope.check.values import copy_values
from inductoscope.errors import ToolFailure
from inductoscope.isolate.candidate import Candidate
from inductoscope.isolate.failure import ERROR, HANG, NAN, SIGNAL, WRONG, Failure
from inductoscope.isolate.shrink.inputs import make_inputs, recipes_for
from inductoscope.repro.failure_script import script_text
from inductoscope.repro.python_text import function_text, literal
from inductoscope.repro.verify import FreshProcesses

Function = Callable[..., Any]


def captured(function: Function, *inputs: Any) -> GraphModule:
    """The graph that Dynamo takes of a function."""
    modules: list[GraphModule] = []

    def keep(module: GraphModule, examples: Any) -> Function:
        modules.append(module)
        return module.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(function, backend=keep, fullgraph=True)(*copy_values(inputs))
    (module,) = modules
    return module


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def run_text(module: GraphModule) -> Function:
    """The function that the text of a graph defines."""
    text, parameters = function_text(module)
    space: dict[str, Any] = {"torch": torch}
    exec(compile(text, "<fn>", "exec"), space)
    function: Function = space["fn"]
    assert function.__code__.co_varnames[: len(parameters)] == tuple(parameters)
    return function


def body(module: GraphModule) -> list[str]:
    return [line.strip() for line in function_text(module)[0].splitlines()[1:]]


def assert_text_computes_the_same(module: GraphModule, *inputs: Any) -> None:
    """Outputs, and what is left in the inputs."""
    mine, theirs = copy_values(inputs), copy_values(inputs)
    got = run_text(module)(*mine)
    # Node by node: the code that FX itself generates for a graph is such a text too.
    expected = Interpreter(module).run(*theirs)
    if isinstance(expected, tuple) and len(expected) == 1:
        (expected,) = expected
    torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)


# --- a graph as a function ------------------------------------------------------------------------


def operators(x: torch.Tensor) -> torch.Tensor:
    y = (2 - x) * (x + 1) / 3 // 0.5
    y = -y % 4 @ x
    return y**2


def comparisons(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    small, large = x < 0, x >= 1
    return ~small & large | (x == 0) ^ (x != 2), (x > 0) & (x <= 3)


def methods(x: torch.Tensor) -> torch.Tensor:
    return x.sum(dim=-1, keepdim=True).expand(-1, 5).to(torch.float64).mul(2).type_as(x)


def slices(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x[0], x[1:], x[..., ::2], x[:, None, -1], x[[0, 2]], x[x > 0], x[1:2, 0:1], x[(0,)]


def writes(x: torch.Tensor) -> torch.Tensor:
    x[0] = 1.0
    x[1:, ::2] = x[:1, ::2] * 2
    x[x > 3] = 0
    x += 1
    y = x * 2
    y.add_(x)
    y -= 1
    return y


def keywords(x: torch.Tensor) -> torch.Tensor:
    padded = torch.nn.functional.pad(x, (1, 2), mode="constant", value=-1.5)
    scaled = torch.nn.functional.layer_norm(padded, [7], eps=1e-3)
    return torch.add(scaled, padded, alpha=2)


def constants(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    filled = x.masked_fill(x > 0, -torch.inf).masked_fill(x < -1, torch.nan)
    made = torch.full((2,), torch.inf, dtype=torch.bfloat16, device=torch.device("cpu"))
    return filled, made, torch.tensor([1, 2], dtype=torch.int8), torch.arange(3, dtype=torch.half)


def several_results(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    largest, places = x.max(dim=1)
    first, *_, last = torch.split(x, [1, 2, 1], dim=1)
    return largest + first[:, 0], places, last


def names_of_python(lambda_: torch.Tensor, fn: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    torch = lambda_ + fn
    return torch * inputs


@pytest.mark.parametrize(
    "function",
    [operators, comparisons, methods, slices, writes, keywords, constants, several_results],
    ids=lambda function: function.__name__,
)
def test_the_text_computes_what_the_graph_computes(function: Function) -> None:
    x = numbers(4, 4)
    assert_text_computes_the_same(captured(function, x), x)


def test_names_that_mean_something_else_are_changed() -> None:
    inputs = [numbers(3), numbers(3) + 1, numbers(3) + 2]
    module = captured(names_of_python, *inputs)
    assert_text_computes_the_same(module, *inputs)
    _, parameters = function_text(module)
    assert not {"lambda", "fn", "inputs"} & set(parameters)


def test_the_text_reads_as_a_person_would_have_written_it() -> None:
    def function(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        h = torch.nn.functional.relu(x @ weight)
        h[:, 0] = float("inf")
        return h.sum(dim=0)

    text, parameters = function_text(captured(function, numbers(2, 3), numbers(3, 4)))
    assert parameters == ["x", "weight"]
    assert text.splitlines() == [
        "def fn(x, weight):",
        "    matmul = x @ weight",
        "    h = torch.nn.functional.relu(matmul)",
        "    h[:, 0] = float('inf')",
        "    sum_1 = h.sum(dim=0)",
        "    return sum_1",
    ]


def test_weights_of_a_module_have_short_names() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    _, parameters = function_text(captured(Model(), numbers(2, 3)))
    assert sorted(parameters) == ["layer_bias", "layer_weight", "x"]


def residual(x: torch.Tensor) -> torch.Tensor:
    before = x
    x = x.relu()
    return before - x


def test_a_variable_that_is_bound_again_is_two_variables() -> None:
    x = numbers(4)
    assert_text_computes_the_same(captured(residual, x), x)


def test_a_negative_number_can_be_raised_to_a_power() -> None:
    x = torch.arange(4)
    assert_text_computes_the_same(captured(lambda x: (-2) ** x, x), x)


def test_a_complex_infinity_is_python() -> None:
    value = complex(math.inf, 0)
    assert eval(literal(value), {"torch": torch}) == value


@pytest.mark.parametrize(
    "value",
    [
        True, None, 3, -2.5, 1e-30, math.inf, -math.inf, 2 + 3j, "it's \"text\"", torch.bfloat16,
        torch.strided, torch.device("cpu"), torch.device("cuda", 1), torch.channels_last, ...,
        torch.nn.attention.SDPBackend.MATH,
    ],
    ids=repr,
)  # fmt: skip
def test_a_constant_is_python_that_gives_it(value: Any) -> None:
    assert eval(literal(value), {"torch": torch}) == value


def test_not_a_number_is_python_too() -> None:
    assert math.isnan(eval(literal(math.nan)))


def graph_of(target: Any, *arguments: Any) -> GraphModule:
    graph = Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(target, (x, *arguments)),))
    return GraphModule({}, graph)


def test_an_operation_of_aten_is_called_by_its_full_name() -> None:
    module = graph_of(torch.ops.aten.add.Tensor, 2)
    assert body(module)[0].endswith("= torch.ops.aten.add.Tensor(x, 2)")
    assert_text_computes_the_same(module, numbers(3))


def test_in_place_operators_write_to_what_they_are_given() -> None:
    module = graph_of(operator.imul, 3)
    assert body(module) == ["imul = x", "imul *= 3", "return imul"]
    assert_text_computes_the_same(module, numbers(3))


def a_function_of_the_users(x: torch.Tensor) -> torch.Tensor:
    return x


def test_what_has_no_text_is_refused() -> None:
    with pytest.raises(ToolFailure, match="which is not part of torch"):
        function_text(graph_of(a_function_of_the_users))
    with pytest.raises(ToolFailure, match=r"<object .*>, which cannot be written down"):
        literal(object())


# --- recipes --------------------------------------------------------------------------------------


VALUES = {
    "float32": numbers(3, 4),
    "many": numbers(70, 5),
    "bfloat16": numbers(3, 4).bfloat16(),
    "float16": numbers(100).half(),
    "float8": numbers(9).to(torch.float8_e4m3fn),
    "int64": torch.tensor([[1, -5], [2**40, 0]]),
    "uint8": torch.arange(100, dtype=torch.uint8) * 7,
    "bool": numbers(5, 5) > 0,
    "many bools": numbers(30, 5) > 0,
    "complex": torch.complex(numbers(4), numbers(4) + 1),
    "0-dim": torch.tensor(2.7182817),
    "0-dim whole number": torch.tensor(-3),
    "0-dim bool": torch.tensor(True),
    "empty": torch.empty(0),
    "empty in the middle": torch.empty(2, 0, 3),
    "infinite": torch.tensor([math.inf, -math.inf, 0.1]),
    "transposed": numbers(3, 4).t(),
    "every second": numbers(6, 4)[::2, ::2],
    "channels last": numbers(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "with a gradient": numbers(3).requires_grad_(),
    "transposed with a gradient": numbers(3, 4).t().detach().requires_grad_(),
    "a parameter": torch.nn.Parameter(numbers(3)),
}
by_name = pytest.mark.parametrize("name", VALUES)


@by_name
def test_every_recipe_makes_a_tensor_of_the_same_form(name: str) -> None:
    value = VALUES[name]
    recipes = list(recipes_for(value))
    assert len(recipes) > 1
    for recipe in recipes:
        (made,) = make_inputs([recipe], [None])
        assert (made.shape, made.dtype) == (value.shape, value.dtype), recipe
        assert made.stride() == value.stride(), recipe
        assert (made.requires_grad, made.is_leaf) == (value.requires_grad, True), recipe


@by_name
def test_the_last_recipe_makes_the_very_values(name: str) -> None:
    value = VALUES[name]
    *_, last = recipes_for(value)
    made = eval(last, {"torch": torch, "zlib": zlib, "base64": base64})
    assert torch.equal(made, value)


def test_the_simplest_recipes_come_first() -> None:
    recipes = list(recipes_for(numbers(2, 3)))
    assert recipes[:3] == ["torch.ones(2, 3)", "torch.randn(2, 3)", "torch.zeros(2, 3)"]
    assert recipes[-2].startswith("torch.tensor([[")
    assert "zlib.decompress" in recipes[-1]


def test_whole_numbers_stay_where_they_were_so_that_they_still_are_indices() -> None:
    recipes = list(recipes_for(torch.tensor([5, 0, 2])))
    assert "torch.randint(0, 6, (3,), dtype=torch.int64)" in recipes


def test_recipes_are_made_one_after_the_other_from_one_seed() -> None:
    before = torch.get_rng_state()
    first = make_inputs(["torch.randn(3)", "torch.randn(3)"], [None, None])
    torch.manual_seed(0)
    assert torch.equal(first[0], torch.randn(3))
    assert torch.equal(first[1], torch.randn(3))
    torch.set_rng_state(before)


@pytest.mark.parametrize("value", [3, 2.5, True, None, "text", (1, 2)])
def test_what_is_no_tensor_is_its_own_recipe(value: Any) -> None:
    assert [eval(recipe) for recipe in recipes_for(value)] == [value]


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(torch.eye(3).to_sparse(), id="sparse"),
        pytest.param(numbers(100, 1000), id="too much"),
    ],
)
def test_the_last_recipe_is_empty_where_the_values_cannot_be_written_down(
    value: torch.Tensor,
) -> None:
    *_, last = recipes_for(value)
    assert last == ""


def test_nan_can_be_written_down() -> None:
    *_, last = recipes_for(torch.tensor([1.0, math.nan]))
    assert "nan" in last or "zlib" in last


def test_an_expanded_tensor_can_be_written_down() -> None:
    value = numbers(3).expand(2, 3)
    *_, last = recipes_for(value)
    assert torch.equal(make_inputs([last], [torch.empty(0)])[0], value)


def test_unsigned_numbers_can_be_written_down() -> None:
    value = torch.tensor([1, 2], dtype=torch.uint16)
    *_, last = recipes_for(value)
    assert torch.equal(make_inputs([last], [None])[0], value)


# --- the script -----------------------------------------------------------------------------------


FAILURES = {
    "wrong": Failure(WRONG, "text", aspect="value", more={"allowed": 1e-4, "largest": 1.0}),
    "stride": Failure(WRONG, "text", aspect="stride"),
    "sharing": Failure(WRONG, "text", aspect="sharing"),
    "written input": Failure(WRONG, "text", aspect="value", more={"where": ["input 0 after"]}),
    "nan": Failure(NAN, "text", aspect="nan"),
    "error": Failure(ERROR, "text"),
    "signal": Failure(SIGNAL, "text"),
    "hang": Failure(HANG, "text"),
}
by_failure = pytest.mark.parametrize("kind", FAILURES)


def doubled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * 2 + y


def candidate(**more: Any) -> Candidate:
    inputs = (numbers(3), numbers(3))
    recipes = ("torch.randn(3)", "torch.ones(3)")
    return Candidate(captured(doubled, *inputs), inputs, recipes=recipes, **more)


def run_script(text: str, compile_: Function) -> int:
    """Run a script in this process, with something in the place of torch.compile."""
    original = torch.compile
    torch.compile = compile_
    try:
        exec(compile(text, "repro.py", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        return int(end.code or 0)
    except Exception:
        return 1
    finally:
        torch.compile = original
    return 0


@by_failure
@pytest.mark.parametrize("backward", [False, True])
def test_every_kind_of_failure_becomes_a_script(kind: str, backward: bool) -> None:
    found = candidate(backward=backward, dynamic=True, options={"max_autotune": True})
    text = script_text(
        found, FAILURES[kind], 'A title with """quotes""", \\backslashes and ünicode'
    )
    compile(text, "repro.py", "exec")
    assert "torch.compile(fn, dynamic=True, options={'max_autotune': True})" in text
    assert f"torch {torch.__version__}" in text
    assert "inductoscope" not in text


@pytest.mark.parametrize("kind", [k for k in FAILURES if k not in ("signal", "hang")])
def test_a_script_ends_well_where_compiled_does_what_eager_does(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = script_text(candidate(), FAILURES[kind], "title")
    assert run_script(text, lambda function, **options: function) == 0
    assert "eager" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("wrong", lambda x, y: x * 2 + y + 0.5),
        ("stride", lambda x, y: torch.cat([x * 2 + y] * 2).view(3, 2).t()[0]),
        ("sharing", lambda x, y: x.mul_(2).add_(y)),
        ("written input", lambda x, y: x.mul_(2) + y),
        ("nan", lambda x, y: (x * 2 + y) * torch.nan),
        ("error", lambda x, y: 1 / 0),
    ],
)
def test_a_script_fails_where_compiled_does_not(kind: str, wrong: Function) -> None:
    text = script_text(candidate(), FAILURES[kind], "title")
    assert run_script(text, lambda function, **options: wrong) == 1


def test_a_wrong_gradient_fails_the_script() -> None:
    inputs = (numbers(3).requires_grad_(),)
    module = captured(lambda x: x.sin() * 2, *inputs)
    recipes = ("torch.randn(3).requires_grad_()",)
    found = Candidate(module, inputs, backward=True, recipes=recipes)
    text = script_text(found, FAILURES["wrong"], "title")

    def wrong(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() + x - x.detach()) * 2

    assert run_script(text, lambda function, **options: function) == 0
    assert run_script(text, lambda function, **options: wrong) == 1


def test_what_rounding_explains_does_not_fail_the_script() -> None:
    text = script_text(candidate(), FAILURES["wrong"], "title")
    assert "rtol=0, atol=0.01)" in text, "between what is allowed and what was seen"
    assert run_script(text, lambda function, **options: lambda x, y: function(x, y) + 1e-4) == 0


def test_sharing_is_looked_for_among_tensors_only() -> None:
    graph = Graph()
    size, x = graph.placeholder("s0"), graph.placeholder("x")
    graph.output((graph.call_method("view", (x, size, -1)),))
    module = GraphModule({}, graph)
    found = Candidate(module, (2, numbers(6)), recipes=("2", "torch.randn(6)"))
    text = script_text(found, FAILURES["sharing"], "title")
    assert run_script(text, lambda function, **options: function) == 0


def test_settings_of_the_program_are_in_the_script() -> None:
    text = script_text(candidate(config={"cpp.simdlen": 1}), FAILURES["error"], "title")
    assert "\ntorch._inductor.config.cpp.simdlen = 1\n" in text


def test_numbers_from_a_generator_are_seeded() -> None:
    assert "torch.manual_seed(0)" in script_text(candidate(), FAILURES["error"], "title")


def test_packed_numbers_bring_what_unpacks_them() -> None:
    *_, packed = recipes_for(numbers(3))
    inputs = (numbers(3), numbers(3))
    found = Candidate(captured(doubled, *inputs), inputs, recipes=(packed, "torch.ones(3)"))
    text = script_text(found, FAILURES["error"], "title")
    assert run_script(text, lambda function, **options: function) == 0


# --- a script that is killed ----------------------------------------------------------------------


# In the place of a compiler that crashes, and of one that does not. Nothing is compiled.
SITECUSTOMIZE = """
import os, signal, sys
if sys.argv[1:] == ["inside"] or os.path.basename(sys.argv[0]) == "repro.py":
    import torch
    def compile_(function, **options):
        if os.environ["CRASHES"] == "yes":
            os.kill(os.getpid(), signal.SIGSEGV)
        return function
    torch.compile = compile_
"""


@pytest.mark.parametrize(("crashes", "exit_code"), [("yes", 1), ("no", 0)])
def test_a_crash_is_watched_from_a_process_of_its_own(
    crashes: str, exit_code: int, tmp_path: Path
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITECUSTOMIZE)
    script = tmp_path / "repro.py"
    script.write_text(script_text(candidate(), FAILURES["signal"], "A crash"))
    done = subprocess.run(
        [sys.executable, str(script)],
        env={"PYTHONPATH": str(tmp_path / "site"), "CRASHES": crashes, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == exit_code, done.stderr
    ended = f"compiled ended with {-11 if crashes == 'yes' else 0}"
    assert done.stdout.splitlines() == ["eager ended with 0", ended]


# --- the proof ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        ("print('the bug'); raise SystemExit(1)", 2),
        ("print('another bug'); raise SystemExit(1)", 0),
        ("print('the bug')", 0),
        ("print('the bug', flush=True); import os; os.abort()", 0),
        ("print('the bug', flush=True); import time; time.sleep(100)", 0),
    ],
    ids=["fails", "fails otherwise", "does not fail", "dies", "never ends"],
)
def test_a_script_is_a_reproducer_if_it_fails_the_right_way(
    text: str, failed: int, tmp_path: Path
) -> None:
    script = tmp_path / "repro.py"
    script.write_text(text)
    processes = FreshProcesses({}, tmp_path, times=2)
    found = processes.verify(script, "the bug", seconds=20 if "sleep" in text else 60)
    assert (found.failed, found.of, found.is_verified) == (failed, 2, failed == 2)


def test_a_script_that_fails_now_and_then_is_not_verified(tmp_path: Path) -> None:
    script = tmp_path / "repro.py"
    script.write_text(
        "import os, sys\n"
        "try:\n    os.mkdir('first')\nexcept FileExistsError:\n    sys.exit('the bug')\n"
    )
    found = FreshProcesses({}, tmp_path, times=3).verify(script, "the bug")
    assert (found.failed, found.of, found.is_verified) == (2, 3, False)
    assert found.output == "the bug\n"
