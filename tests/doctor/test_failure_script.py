"""Reproducers: the script around a graph and its inputs, and how it ends where the bug is there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx import Graph, GraphModule, symbolic_trace

from inductoscope.doctor.failure import ERROR, HANG, LOST_CHECK, NAN, SIGNAL, WRONG, Failure
from inductoscope.inside.repro.failure_script import HANG_SECONDS, script_text
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.input_recipes import recipes_for
from support.graphs import numbers

Function = Callable[..., Any]


# --- the script -----------------------------------------------------------------------------------


FAILURES = {
    "wrong": Failure(WRONG, "text", aspect="value", allowed=1e-4, largest=1.0),
    "stride": Failure(WRONG, "text", aspect="stride"),
    "sharing": Failure(WRONG, "text", aspect="sharing"),
    "written input": Failure(WRONG, "text", aspect="value", where=("input 0 after",)),
    "nan": Failure(NAN, "text", aspect="nan"),
    "error": Failure(ERROR, "text"),
    "lost check": Failure(LOST_CHECK, "text", eager_error="RuntimeError: text"),
    "signal": Failure(SIGNAL, "text"),
    "hang": Failure(HANG, "text"),
}
by_failure = pytest.mark.parametrize("kind", FAILURES)


def doubled(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor]:
    """As Dynamo's graphs do, it gives a tuple; the script's function gives what is in it."""
    return (x * 2 + y,)


def candidate(**more: Any) -> Candidate:
    inputs = (numbers(3), numbers(3))
    recipes = ("torch.randn(3)", "torch.ones(3)")
    return Candidate(symbolic_trace(doubled), inputs, recipes=recipes, **more)


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
    module = symbolic_trace(lambda x: (x.sin() * 2,))
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
    found = Candidate(symbolic_trace(doubled), inputs, recipes=(packed, "torch.ones(3)"))
    text = script_text(found, FAILURES["error"], "title")
    assert run_script(text, lambda function, **options: function) == 0


# --- a process that is killed, or never ends ------------------------------------------------------


# In the place of a compiler that crashes or hangs on `fn`, and of one that does not. As with the
# real one, it is the first call that compiles.
SITECUSTOMIZE = """
import os, signal, sys, time
if os.path.basename(sys.argv[0]) == "repro.py":
    import torch
    def compile_(function, **options):
        def compiled(*inputs):
            if function.__name__ == "fn" and os.environ["COMPILER"] == "crashes":
                os.kill(os.getpid(), signal.SIGSEGV)
            while function.__name__ == "fn" and os.environ["COMPILER"] == "hangs":
                time.sleep(1)
            return function(*inputs)
        return compiled
    torch.compile = compile_
"""


def run_as_program(text: str, folder: Path, compiler: str) -> tuple[int, list[list[str]]]:
    """Run a script with something in torch.compile's place.

    Returns its exit code, and how each function ended, as the lines that it prints say.
    """
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(SITECUSTOMIZE)
    script = folder / "repro.py"
    script.write_text(text)
    site = str(folder / "site")
    done = subprocess.run(
        [sys.executable, str(script)],
        env={"PYTHONPATH": site, "COMPILER": compiler, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, [line.split(" ended with ") for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("compiler", "exit_code", "ended"), [("crashes", 1, "-11"), ("works", 0, "0")]
)
def test_a_crash_is_watched_from_a_process_of_its_own(
    compiler: str, exit_code: int, ended: str, tmp_path: Path
) -> None:
    text = script_text(candidate(), FAILURES["signal"], "A crash")
    found = run_as_program(text, tmp_path, compiler)
    assert found == (exit_code, [["eager", "0"], ["compiled", ended]])


# The least that a script waits, and what is enough where nothing has to be compiled.
WAITS, WAITS_HERE = f"limit = max({HANG_SECONDS}, ", "limit = max(2, "


def test_how_long_is_too_long_is_told_by_another_compile() -> None:
    lines = script_text(candidate(), FAILURES["hang"], "A hang").splitlines()
    started = lines.index("    started = time.monotonic()")
    assert lines[started + 1] == '    print("eager ended with", ending(fn))'
    # One that hangs on every graph must not hang on this one, too.
    assert lines[started + 3].endswith('torch.ones(3) + 1, backend="aot_eager"))')
    assert lines[started + 4] == f"    {WAITS}10 * (time.monotonic() - started))"
    assert lines[started + 5] == "    compiled = ending(torch.compile(fn), limit)"


@pytest.mark.parametrize(
    ("compiler", "exit_code", "ended"), [("hangs", 1, "None"), ("works", 0, "0")]
)
def test_a_compile_that_never_ends_is_given_up(
    compiler: str, exit_code: int, ended: str, tmp_path: Path
) -> None:
    text = script_text(candidate(), FAILURES["hang"], "A hang").replace(WAITS, WAITS_HERE)
    found = run_as_program(text, tmp_path, compiler)
    assert found == (exit_code, [["eager", "0"], ["compiled", ended]])


def test_what_may_be_right_by_chance_runs_in_memory_full_of_nan() -> None:
    """On a GPU, what a kernel never wrote holds what was there before: often the right values."""
    on_gpu = candidate(device="gpu")  # For "cuda" the script would name the GPU.
    seen_in_filled_memory = Failure(NAN, "text", aspect="nan", memory_was_filled=True)
    text = script_text(on_gpu, seen_in_filled_memory, "title")
    compile(text, "repro.py", "exec")
    assert text.index("    run(function)\n    fill_free_memory()\n    compiled = run(function)")
    assert "fill_free_memory" not in script_text(on_gpu, FAILURES["wrong"], "title")


def of_this_thread() -> str:
    leaf = numbers(3).requires_grad_()
    recipes = ("(torch.randn(3)).requires_grad_()", "torch.ones(3)")
    found = Candidate(symbolic_trace(doubled), (leaf, numbers(3)), recipes=recipes)
    return script_text(found, FAILURES["wrong"], "title")


def test_the_script_calls_in_the_contexts_of_the_program() -> None:
    """Without gradients and with autocast Inductor makes other kernels."""
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        text = of_this_thread()
    assert (
        "    with torch.no_grad(), torch.autocast('cpu', torch.bfloat16):\n"
        "        outputs = function(*arguments)\n"
    ) in text
    assert "with torch" not in of_this_thread()


def test_the_script_sets_what_the_program_has_set_in_torch() -> None:
    torch.set_float32_matmul_precision("high")
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        text = of_this_thread()
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.use_deterministic_algorithms(False)
    assert "\ntorch.use_deterministic_algorithms(True, warn_only=True)\n" in text
    assert "\ntorch.set_float32_matmul_precision('high')\n" in text
    assert "torch.set_" not in of_this_thread()
