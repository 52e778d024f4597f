"""A fault planted in every stage: the recording names the stage that raised, and what it was at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inductoscope.analysis.rules import diagnose
from inductoscope.model.entities import Compile, CompileError
from support.programs import Outcome, Workplace

# One program, one process: each fault is planted, met, and taken out again.
PROGRAM = """
import contextlib, json, traceback
from unittest import mock
import torch
import torch._inductor.config as config
from torch._inductor import decomposition, lowering
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.codecache import PyCodeCache
from torch._inductor.index_propagation import IndexPropagation, SymPyOps
from torch._inductor.loop_body import CaptureIndexing
from torch._inductor.scheduler import Scheduler

config.fx_graph_cache = False
torch._functorch.config.enable_autograd_cache = False
aten = torch.ops.aten
seen = {}


def fault(*args, **kwargs):
    raise ZeroDivisionError("planted")


def faulty_method(self, *args, **kwargs):
    raise ZeroDivisionError("planted")


def broken_pass(graph):
    raise ZeroDivisionError("planted")


class BrokenPass(torch._inductor.custom_graph_pass.CustomGraphPass):
    def __call__(self, graph):
        raise ZeroDivisionError("planted")

    def uuid(self):
        return None


@contextlib.contextmanager
def table_entry(table, key):
    original = table.get(key)
    table[key] = fault
    try:
        yield
    finally:
        table.pop(key) if original is None else table.__setitem__(key, original)


def attempt(name, plant, function, **options):
    torch._dynamo.reset()
    function.__name__ = function.__qualname__ = name
    code = function.__code__.replace(co_name=name)
    function.__code__ = code
    with plant:
        try:
            torch.compile(function, **options)(torch.ones(4, 4))
        except Exception as error:
            seen[name] = traceback.format_exc()


def prints(x):
    print("seen")
    return x + 1


attempt("dynamo", contextlib.nullcontext(), prints, fullgraph=True)
attempt("decomposition", table_entry(decomposition.decompositions, aten.silu.default),
        lambda x: torch.nn.functional.silu(x))
attempt("pre_grad", config.patch(pre_grad_custom_pass=broken_pass), lambda x: x + 1)
attempt("joint", config.patch(joint_custom_pre_pass=BrokenPass()), lambda x: x + 2)
attempt("post_grad", config.patch(post_grad_custom_pre_pass=BrokenPass()), lambda x: x + 3)
attempt("lowering", table_entry(lowering.lowerings, aten.tanh.default),
        lambda x: (x + 1).tanh() * 2)
attempt("scheduler", mock.patch.object(Scheduler, "fuse_nodes", fault), lambda x: x + 4)
attempt("codegen", mock.patch.object(CppScheduling, "codegen_node", fault), lambda x: x + 5)
attempt("wrapper", mock.patch.object(PyCodeCache, "load_by_key_path", fault), lambda x: x + 6)
# Called by one stage for the ends of another: the code that raises counts, not who is at work.
attempt("index_propagation", mock.patch.object(IndexPropagation, "index_expr", faulty_method),
        lambda x: x + torch.arange(4))
attempt("symbolic_index", mock.patch.object(SymPyOps, "mul", fault),
        lambda x: x + torch.arange(4) * 2)
attempt("loop_body", mock.patch.object(CaptureIndexing, "indirect_indexing", faulty_method),
        lambda x: x[(x.sum(1) > 0).long()])
attempt("grouping", mock.patch.object(CppScheduling, "group_fn", faulty_method),
        lambda x: x + 9)
attempt("planning", mock.patch.object(PythonWrapperCodegen, "memory_plan_reuse", faulty_method),
        lambda x: x + 8)
attempt("cpp_compile", config.patch({"cpp.inject_relu_bug_TESTING_ONLY": "compile_error"}),
        lambda x: x.relu())

# A backward graph is compiled when it is first needed, with no Dynamo around it.
torch._dynamo.reset()
leaf = torch.ones(4, requires_grad=True)
with table_entry(lowering.lowerings, aten.cos.default):
    total = torch.compile(lambda x: x.sin())(leaf).sum()
    try:
        total.backward()
    except Exception:
        seen["backward"] = traceback.format_exc()

torch._dynamo.config.suppress_errors = True
attempt("suppressed", mock.patch.object(Scheduler, "fuse_nodes", fault), lambda x: x + 7)
print(json.dumps(seen))
"""

# What was planted → (stage, what it was at). The names are those of PROGRAM's attempts.
EXPECTED = {
    "dynamo": ("dynamo", ""),
    "decomposition": ("decomposition", "aten.silu.default"),
    "pre_grad": ("pre-grad-pass", "pre_grad_custom_pass"),
    "joint": ("joint-pass", "joint_custom_pre_pass"),
    "post_grad": ("post-grad-pass", "post_grad_custom_pre_pass"),
    "lowering": ("lowering", "tanh"),
    "scheduler": ("scheduler", ""),
    "codegen": ("codegen", "op0"),
    "wrapper": ("wrapper", ""),
    "index_propagation": ("loop-body", ""),
    "symbolic_index": ("loop-body", ""),
    "loop_body": ("loop-body", ""),
    "grouping": ("scheduler", ""),
    "planning": ("wrapper", ""),
    "cpp_compile": ("cpp-compile", ""),
}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("errors")
    place = Workplace(folder, folder / "cache")
    place.write("program.py", PROGRAM)
    return place.run("program.py")


def compile_of(outcome: Outcome, name: str) -> Compile:
    return next(c for c in outcome.recording.compiles if c.function == name)


def error_of(outcome: Outcome, name: str) -> CompileError:
    (error,) = compile_of(outcome, name).errors
    return error


@pytest.mark.parametrize("name", EXPECTED)
def test_the_stage_that_raised_is_named(outcome: Outcome, name: str) -> None:
    error = error_of(outcome, name)
    assert (error.stage, error.detail) == EXPECTED[name]
    assert not error.swallowed


@pytest.mark.parametrize("name", EXPECTED)
def test_every_fault_is_a_finding_with_its_stage(outcome: Outcome, name: str) -> None:
    found = [
        f for f in diagnose(outcome.recording) if f.title.startswith(f"The compile of {name} ")
    ]
    assert [f.stage for f in found] == [EXPECTED[name][0]]
    assert found[0].confidence == "proven"


def test_the_message_is_that_of_the_fault_itself(outcome: Outcome) -> None:
    titles = [finding.title for finding in diagnose(outcome.recording)]
    assert any(
        "at tanh: LoweringException: ZeroDivisionError: planted" in title for title in titles
    ), titles
    assert any("cpp-compile" in title and "not declared" in title for title in titles), titles


def test_the_users_line_is_that_of_the_operation(outcome: Outcome) -> None:
    finding = next(f for f in diagnose(outcome.recording) if "at tanh" in f.title)
    line = 1 + PROGRAM[: PROGRAM.index("lambda x: (x + 1).tanh()")].count("\n")
    file, _, number = finding.source.rpartition(":")
    assert Path(file).name == "program.py"
    assert int(number) == line


def test_a_backward_graph_that_fails_later_is_found_too(outcome: Outcome) -> None:
    errors = [
        e for c in outcome.recording.compiles for e in c.errors if e.graph.endswith("backward")
    ]
    assert [(error.stage, error.detail) for error in errors] == [("lowering", "cos")]


def test_an_error_that_dynamo_swallows_is_a_break_and_no_error(outcome: Outcome) -> None:
    assert error_of(outcome, "suppressed").swallowed
    titles = [f.title for f in diagnose(outcome.recording) if f.rule == "compile_error"]
    assert not any("suppressed" in title for title in titles)


def test_tracebacks_show_no_frame_of_the_tool(outcome: Outcome) -> None:
    """From Python 3.11 on; before, the outermost frame cannot be taken out."""
    texts = json.loads(outcome.stdout.splitlines()[-1])
    assert set(texts) == {*EXPECTED, "backward"}
    for name, text in texts.items():
        assert "inductoscope" not in text, name


def test_what_gcc_said_is_kept(outcome: Outcome) -> None:
    refused = [native for native in outcome.recording.natives if native.exit_code]
    assert len(refused) == 1
    assert "error:" in outcome.recording.payload(refused[0].messages)
