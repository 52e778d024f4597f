"""Real compiles on the installed torch: what each stage leaves in the recording."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from inductoscope.analysis.fusion import ledger
from inductoscope.analysis.rules import diagnose
from inductoscope.model.entities import Compile, InductorGraph, Recording
from inductoscope.model.fx import read_graph
from inductoscope.model.kernels import count_kernels
from inductoscope.model.schedule import read_schedule
from inductoscope.views.page.contents import Contents
from inductoscope.views.report.show import ShowSelection, choose_view
from inductoscope.views.report.stage_views import STAGE_VIEWS
from support.examples import inductoscope
from support.programs import Outcome, Workplace

# Everything that this module compiles is compiled in one program, once, and looked at by many
# tests: a new process and a cold cache cost more than all of the compiles.
PROGRAM = """
import json
import torch
from torch import nn

torch.manual_seed(0)
results = {}


def keep(name, *tensors):
    results[name] = [t.detach().double().flatten().tolist() for t in tensors]


def seed_example(x):
    return x.relu().add(1).sum(-1)


def falls_back(x):
    return torch.linalg.det(x + 1)


def reads_twice(x):
    rows = torch.softmax(x, dim=-1)
    return rows.sum(0), rows.t().contiguous()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.linear = nn.Linear(16, 16)

    def forward(self, x):
        return torch.nn.functional.gelu(self.linear(self.norm(x))) + x


x = torch.randn(10, 100)
keep("seed_example", torch.compile(seed_example)(x))
keep("falls_back", torch.compile(falls_back)(torch.randn(4, 4)))
keep("reads_twice", *torch.compile(reads_twice)(torch.randn(12, 20)))

block = Block()
data = torch.randn(8, 16, requires_grad=True)
out = torch.compile(block)(data)
out.pow(2).sum().backward()
keep("block", out, data.grad, *(p.grad for p in block.parameters()))

dynamic = torch.compile(lambda t: (t * 2).sum(0), dynamic=True)
keep("dynamic", dynamic(torch.randn(5, 3)), dynamic(torch.randn(7, 3)))



@torch.library.custom_op("scope_test::bump", mutates_args=("x",))
def bump(x: torch.Tensor) -> None:
    x.add_(1)


@bump.register_fake
def _(x):
    pass


def mutates(x):
    y = x * 2
    torch.ops.scope_test.bump(y)
    return y.relu()


def layers(x, w):
    for _ in range(3):
        x = torch.sort(x @ w)[0].relu() + 1
    return x


def branches(x):
    return torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos() - 1, (x,))


keep("mutates", torch.compile(mutates)(torch.ones(4)))
keep("layers", torch.compile(layers)(torch.randn(4, 4), torch.randn(4, 4)))
keep("branches", torch.compile(branches)(torch.ones(4)))
keep("random state", torch.randn(3))
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    folder = tmp_path_factory.mktemp("capture")
    place = Workplace(folder, folder / "cache")
    place.write("program.py", PROGRAM)
    return place


@pytest.fixture(scope="module")
def outcome(workplace: Workplace) -> Outcome:
    found = workplace.run("program.py", options=("--fresh", "--json", "summary.json"))
    assert found.exit_code == 0, found.stderr
    return found


@pytest.fixture(scope="module")
def recording(outcome: Outcome) -> Recording:
    return outcome.recording


def compile_of(recording: Recording, function: str) -> Compile:
    return next(c for c in recording.compiles if c.function == function)


def graph_of(recording: Recording, function: str, phase: str = "inference") -> InductorGraph:
    return next(g for g in compile_of(recording, function).inductor if g.phase == phase)


# --- the program is not disturbed -----------------------------------------------------------------


def test_results_are_bit_identical_to_a_plain_run(workplace: Workplace, outcome: Outcome) -> None:
    plain = workplace.run_plain("program.py")
    assert plain.exit_code == 0, plain.stderr
    assert json.loads(outcome.stdout) == json.loads(plain.stdout)
    assert outcome.program_stderr == plain.stderr


def test_a_healthy_program_comes_out_clean(outcome: Outcome, recording: Recording) -> None:
    assert [f.title for f in diagnose(recording) if f.is_problem] == []
    assert "no problem found" in outcome.stderr
    assert [p.hook_errors for p in recording.processes if p.hook_errors] == []
    assert [p.views_off for p in recording.processes if p.views_off] == []


def test_fresh_leaves_the_users_cache_alone(workplace: Workplace, outcome: Outcome) -> None:
    """The recorded run compiled everything, and the user's cache folder was never made."""
    assert list((outcome.recording_path / "cache" / "inductor").iterdir())
    assert not (outcome.recording_path / "cache" / "precompiled_headers").exists()


# --- stage by stage -------------------------------------------------------------------------------


def test_dynamo_keeps_graphs_with_the_users_lines_and_guards(recording: Recording) -> None:
    compile_ = compile_of(recording, "seed_example")
    graph = read_graph(recording, next(g.payload for g in compile_.graphs if g.stage == "dynamo"))
    assert graph is not None
    assert [node.operation for node in graph.calls] == ["relu", "add", "sum"]
    place = graph.calls[0].place
    assert place is not None
    assert place.code == "return x.relu().add(1).sum(-1)"
    guards = recording.data(compile_.guards)
    assert any("L['x']" in guard["source"] for guard in guards)


def test_aot_keeps_joint_forward_and_lazily_compiled_backward(recording: Recording) -> None:
    compile_ = compile_of(recording, "forward")
    stages = {graph.stage for graph in compile_.graphs}
    assert {"aot-joint", "aot-forward", "aot-backward"} <= stages
    assert {graph.phase for graph in compile_.inductor} == {"forward", "backward"}
    assert compile_.decompositions["aten.native_layer_norm.default"] == 1


def test_passes_that_changed_a_graph_have_a_before_and_an_after(recording: Recording) -> None:
    changes = [change for compile_ in recording.compiles for change in compile_.passes]
    assert changes
    for change in changes:
        before, after = read_graph(recording, change.before), read_graph(recording, change.after)
        assert before is not None
        assert after is not None
        assert before != after, change.name


def test_lowering_tells_pointwise_reduction_and_fallback_apart(recording: Recording) -> None:
    seed = {item.node: item for item in graph_of(recording, "seed_example").lowered}
    assert seed["relu"].ir["class"] == "Pointwise"
    assert seed["relu"].ir["ranges"] == ["10", "100"]
    assert "ops.relu(tmp0)" in seed["relu"].ir["inner"]
    assert seed["sum_1"].ir["loops"] == "Reduction"
    assert seed["sum_1"].ir["reduction_ranges"] == ["100"]
    fallbacks = [i.target for i in graph_of(recording, "falls_back").lowered if i.fallback]
    assert fallbacks
    assert all("linalg" in target for target in fallbacks)


def test_scheduler_keeps_nodes_buffers_and_the_final_order(recording: Recording) -> None:
    graph = graph_of(recording, "reads_twice")
    before = read_schedule(recording, graph.scheduled_before)
    after = read_schedule(recording, graph.scheduled_after)
    assert len(after) < len(before)
    leaves = [leaf.name for node in after for leaf in node.leaves]
    assert sorted(leaves) == sorted(node.name for node in before)
    assert all(buffer.users for node in before for buffer in node.buffers)
    assert all(leaf.body for node in before for leaf in node.leaves if leaf.ir == "ComputedBuffer")


def test_fusion_keeps_every_pair_with_score_or_reason(recording: Recording) -> None:
    graph = graph_of(recording, "reads_twice")
    assert graph.rounds[0].before > graph.rounds[-1].after
    assert all(fusion.bytes_saved is not None for fusion in graph.fusions)
    considered = {(pair.first, pair.second) for pair in graph.pairs if pair.possible}
    assert {(fusion.first, fusion.second) for fusion in graph.fusions} <= considered


def test_an_operation_that_only_mutates_has_a_place_in_the_schedule(recording: Recording) -> None:
    graph = graph_of(recording, "mutates")
    nodes = read_schedule(recording, graph.scheduled_before)
    mutated = [b.mutates for node in nodes for b in node.buffers if b.mutates]
    assert mutated


def test_graphs_inside_a_graph_are_kept_apart(recording: Recording) -> None:
    """Both branches of a cond have their own nodes, schedule and kernels."""
    graphs = {g.key.split(" ", 1)[1]: g for g in compile_of(recording, "branches").inductor}
    assert set(graphs) == {"inference", "inference true_graph_0", "inference false_graph_0"}
    lowered = {name: [item.node for item in g.lowered] for name, g in graphs.items()}
    assert lowered["inference true_graph_0"][:1] == ["sin"]
    assert lowered["inference false_graph_0"][:1] == ["cos"]
    view, _ = choose_view(recording, ShowSelection(operation="sin"))
    (found,) = view["operations"]
    assert found["kernel"][0]["lines"]


def test_kernels_name_what_is_inside_them_in_order(recording: Recording) -> None:
    graph = graph_of(recording, "seed_example")
    (kernel,) = graph.kernels
    assert kernel.language == "C++"
    assert kernel.origins == ("relu", "add", "sum_1")
    assert kernel.reads == ("arg0_1",)
    assert kernel.writes == ("buf0",)
    source = recording.payload(kernel.payload)
    assert source.count("void") >= 1
    # The wrapper that torch loads holds the very text that was recorded for the kernel.
    body = source[source.index("{") :].strip()
    assert body in recording.payload(graph.wrapper)
    assert recording.data(graph.buffers)["buf0"]["origin"] == "sum_1"


def test_backward_kernels_are_recorded_too(recording: Recording) -> None:
    graph = graph_of(recording, "forward", "backward")
    languages = {kernel.language for kernel in graph.kernels}
    assert languages == {"C++", "extern"}
    assert graph.finished


def test_memory_reuse_is_what_the_wrapper_does(recording: Recording) -> None:
    graph = graph_of(recording, "forward", "backward")
    wrapper = recording.payload(graph.wrapper)
    stated = [reuse for reuse in graph.reuses if reuse.how == "memory"]
    assert len(stated) == wrapper.count("# reuse")
    for reuse in stated:
        assert f"{reuse.new} = " in wrapper


def test_native_compiles_have_command_seconds_exit_code_and_source(recording: Recording) -> None:
    libraries = [n for n in recording.natives if n.output.endswith(".main.so")]
    assert libraries
    for native in libraries:
        assert native.exit_code == 0
        assert native.seconds is not None
        assert native.seconds > 0
        assert native.source in native.command
        assert Path(native.source).is_file(), "the binary itself is not kept"


def test_caches_are_told(recording: Recording) -> None:
    lookups = compile_of(recording, "seed_example").caches
    assert {(lookup.cache, lookup.outcome) for lookup in lookups} == {
        ("AOTAutograd", "miss"),
        ("FX graph", "miss"),
    }


def test_stage_seconds_add_up_to_the_compile(recording: Recording) -> None:
    for compile_ in recording.compiles:
        total = sum(compile_.stage_seconds.values())
        assert total == pytest.approx(compile_.seconds, abs=1e-4)  # One clock: to the rounding.


def test_kernels_and_calls_are_those_of_torchs_output_code(recording: Recording) -> None:
    for compile_ in recording.compiles:
        wrappers = [recording.payload(graph.wrapper) for graph in compile_.inductor]
        code = "\n".join(filter(None, wrappers))
        defined = re.findall(r"^(\w+) = async_compile\.", code, re.MULTILINE)
        calls = re.findall(rf"^ +(?:{'|'.join(defined) or '-'})\(", code, re.MULTILINE)
        library = re.findall(
            r"(?:^ +|= )(?:extern_kernels|torch\.ops)\.[\w.]+\(", code, re.MULTILINE
        )
        counts = count_kernels(compile_.inductor)
        found = (sum(counts.defined.values()), counts.calls, counts.library_calls)
        assert found == (len(defined), len(calls), len(library)), compile_.function
    layers = count_kernels(compile_of(recording, "layers").inductor)
    assert (layers.defined, layers.calls, layers.library_calls) == ({"C++": 1}, 3, 6)


def test_summary_ledger_and_page_count_the_same(
    recording: Recording, outcome: Outcome, workplace: Workplace
) -> None:
    totals = json.loads((workplace.folder / "summary.json").read_text())["totals"]
    rows = Counter(row.outcome for row in ledger(recording))
    assert (totals["pairs_fused"], totals["pairs_refused"]) == (rows["fused"], rows["refused"])
    page = Contents(recording).index
    assert (page.ledger.fused, page.ledger.refused) == (rows["fused"], rows["refused"])
    assert sum(graph.kernels for graph in page.graphs) == sum(totals["kernels"].values())


def test_every_stage_can_be_shown(recording: Recording) -> None:
    # Its matrix products had one choice each, which is no search.
    empty = {"breaks", "recompiles", "errors", "autotune"}
    for stage in STAGE_VIEWS:
        view, _ = choose_view(recording, ShowSelection(stage=stage))
        assert bool(view["sections"]) == (stage not in empty), stage


def test_show_follows_an_operation_through_every_level(recording: Recording) -> None:
    for operation in ("relu", "sum"):
        selection = ShowSelection(operation=operation, compile="0/0")
        view, _ = choose_view(recording, selection)
        (found,) = view["operations"]
        levels = ("python", "dynamo", "aten", "ir", "scheduler", "fused_group", "loop_body")
        assert all(found[level] for level in levels), operation
        assert found["kernel"][0]["lines"], operation
        assert found["kernel"][0]["native"], operation


# --- a graph as a script --------------------------------------------------------------------------


GRAPHS = ("0/0 dynamo", "0/0 inference post-grad", "3/0 aot-forward", "4/0 dynamo")


@pytest.fixture(scope="module")
def scripts_of_graphs(workplace: Workplace, outcome: Outcome) -> dict[str, Outcome]:
    """Output of the scripts of the graphs."""
    scripts = [workplace.folder / f"graph_{number}.py" for number in range(len(GRAPHS))]
    for graph, script in zip(GRAPHS, scripts, strict=True):
        answer = inductoscope("show", outcome.recording_path, "--runnable", graph, "--to", script)
        assert answer.exit_code == 0, answer.words
    ended = workplace.run_plain_in_forks(scripts, TORCHDYNAMO_DISABLE="1")
    return dict(zip(GRAPHS, ended, strict=True))


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_recorded_graph_runs_as_a_script(
    scripts_of_graphs: dict[str, Outcome], graph: str
) -> None:
    done = scripts_of_graphs[graph]
    assert done.exit_code == 0, done.stderr
    assert "largest difference 0" in done.stdout
