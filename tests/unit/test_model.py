"""The model of each stored script: tests/data/recordings/NAME/script.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from inductoscope.model.entities import Compile, InductorGraph, Recording
from inductoscope.model.fold import load
from inductoscope.model.fx import bare_operation, describe_value, read_graph
from inductoscope.model.kernels import compile_of_kernel, libraries_from_cache
from inductoscope.model.schedule import read_schedule
from inductoscope.recording.events import Kernel
from support.examples import NAMES, stored, write_recording


@pytest.fixture(scope="module")
def chain() -> Recording:
    """x.relu().add(1).sum(-1)"""
    return load(stored("relu_add_sum"))


@pytest.fixture(scope="module")
def training() -> Recording:
    """Layer norm, linear, gelu, linear and softmax, forward and backward."""
    return load(stored("training_step"))


def only_compile(recording: Recording) -> Compile:
    (compile_,) = recording.compiles
    return compile_


def graph_of(recording: Recording, phase: str) -> InductorGraph:
    (graph,) = [graph for graph in recording.graphs if graph.phase == phase]
    return graph


@pytest.mark.parametrize("name", NAMES)
def test_every_stored_recording_is_whole(name: str) -> None:
    recording = load(stored(name))
    assert recording.damage == ()
    assert recording.unknown_events == {}
    assert [error for process in recording.processes for error in process.hook_errors] == []


# --- frames ---------------------------------------------------------------------------------------


def test_a_compile_knows_its_frame(chain: Recording) -> None:
    compile_ = only_compile(chain)
    assert (compile_.id, compile_.function, compile_.outcome) == ("0/0", "chain", "compiled")
    assert compile_.place == "/scripts/relu_add_sum/script.py:6"
    assert compile_.seconds > 0
    assert {"dynamo", "aot", "codegen", "cpp-compile"} <= compile_.stage_seconds.keys()


def test_the_program_and_its_launcher_are_two_processes(chain: Recording) -> None:
    launcher, program = sorted(chain.processes, key=lambda process: process.role)
    assert (launcher.role, program.role) == ("launcher", "program")
    assert program.argv[-1] == "script.py"
    assert program.torch["version"].startswith("2.")
    assert (program.ended, program.unfinished) == (True, ())
    assert chain.ending is not None
    assert (chain.ending.exit_code, chain.ending.signal) == (0, None)


def test_guards_are_counted_and_kept(chain: Recording) -> None:
    compile_ = only_compile(chain)
    guards = chain.data(compile_.guards)
    assert len(guards) == compile_.guard_count > 0
    assert "TENSOR_MATCH" in {guard["kind"] for guard in guards}


def test_the_rest_of_a_broken_frame_is_a_compile_of_its_own() -> None:
    recording = load(stored("graph_breaks"))
    assert [compile_.resumed for compile_ in recording.compiles] == [
        "",
        "branch at line 8",
        "branch at line 9",
    ]
    breaks = [item for compile_ in recording.compiles for item in compile_.breaks]
    assert [item.source.rpartition(":")[2] for item in breaks] == ["8", "9"]
    assert "print" in breaks[0].reason
    assert "data-dependent" in breaks[1].reason.lower()


def test_a_recompile_knows_the_guard_that_failed() -> None:
    first, *again = load(stored("recompiles")).compiles
    assert first.recompile is None
    for number, compile_ in enumerate(again):
        assert compile_.recompile is not None
        assert compile_.recompile.reasons[0].startswith(f"0/{number}: name == 'call {number}'")
    assert again[-1].recompile is not None
    assert again[-1].recompile.limit == "recompile_limit"
    (error,) = again[-1].errors
    assert error.swallowed


# --- graphs and passes ----------------------------------------------------------------------------


def test_a_graph_is_kept_after_every_stage(training: Recording) -> None:
    stages = [graph.stage for graph in only_compile(training).graphs]
    assert set(stages) == {
        "dynamo",
        "pre-grad",
        "aot-joint",
        "joint",
        "aot-forward",
        "aot-backward",
        "post-grad",
    }
    assert stages.count("post-grad") == 2


def test_a_pass_that_changed_the_graph_has_both_sides(training: Recording) -> None:
    change = next(c for c in only_compile(training).passes if c.name == "remove_noop_ops")
    before, after = (read_graph(training, digest) for digest in (change.before, change.after))
    assert before is not None
    assert after is not None
    assert {node.operation for node in before.calls} - {node.operation for node in after.calls} == {
        "alias"
    }


def test_decompositions_are_counted(training: Recording) -> None:
    counts = only_compile(training).decompositions
    assert counts["aten._softmax.default"] == 1
    assert counts["aten.native_layer_norm.default"] == 1


def test_a_node_knows_the_users_line(chain: Recording) -> None:
    graph = read_graph(chain, only_compile(chain).graphs[0].payload)
    assert graph is not None
    assert [node.operation for node in graph.calls] == ["relu", "add", "sum"]
    for node in graph.calls:
        assert str(node.place) == "/scripts/relu_add_sum/script.py:7"
        assert node.place is not None
        assert node.place.code == "return x.relu().add(1).sum(-1)"


# --- Inductor -------------------------------------------------------------------------------------


def test_forward_and_backward_are_two_graphs(training: Recording) -> None:
    assert [graph.phase for graph in training.graphs] == ["forward", "backward"]
    assert all(graph.finished and not graph.cached for graph in training.graphs)
    assert "erf" in {node.node for node in graph_of(training, "forward").lowered}
    assert {"mm", "mm_1"} <= {node.node for node in graph_of(training, "backward").lowered}


def test_lowered_nodes_carry_their_ir(chain: Recording) -> None:
    relu, add, total = graph_of(chain, "inference").lowered
    assert (relu.node, add.node, total.node) == ("relu", "add", "sum_1")
    assert relu.ir["class"] == "Pointwise"
    assert "ops.relu(tmp0)" in relu.ir["inner"]
    assert total.ir["loops"] == "Reduction"
    assert not total.fallback


def test_fusions_and_refusals_carry_their_reason(training: Recording) -> None:
    graph = graph_of(training, "forward")
    first = graph.fusions[0]
    assert (first.first, first.second, first.result) == ("op9", "op10", "op9_op10")
    assert (first.type, first.bytes_saved) == ("vertical reduction", 512)
    refused = [pair for pair in graph.pairs if not pair.possible]
    assert refused
    assert {reason for pair in refused for reason in pair.reasons} == {
        "intermediate nodes between node1 & node2"
    }
    no_data = [p for p in graph_of(training, "backward").pairs if p.reasons == ("no shared data",)]
    assert no_data


def test_rounds_count_down_to_the_kernels(training: Recording) -> None:
    graph = graph_of(training, "forward")
    assert graph.rounds[0].before == len(read_schedule(training, graph.scheduled_before)) == 12
    assert graph.rounds[-1].after == len(read_schedule(training, graph.scheduled_after)) == 5
    assert [old.after for old in graph.rounds[:-1]] == [new.before for new in graph.rounds[1:]]
    assert len(graph.fusions) == 12 - 5


def test_a_fused_node_holds_the_nodes_that_it_was_made_of(training: Recording) -> None:
    after = read_schedule(training, graph_of(training, "forward").scheduled_after)
    softmax = after[-1]
    assert softmax.kind == "OuterLoopFusedSchedulerNode"
    assert [leaf.name for leaf in softmax.leaves] == ["op8", "op9", "op10", "op11"]
    assert after[1].leaves == (after[1],)


def test_kernels_know_what_is_inside_them(training: Recording) -> None:
    kernels = {kernel.name: kernel for kernel in graph_of(training, "forward").kernels}
    softmax = kernels["cpp_fused__softmax_add_2"]
    assert (softmax.language, softmax.nodes) == ("C++", ("op8", "op9", "op10", "op11"))
    assert softmax.origins == ("add_3", "amax", "sub_1", "exp", "sum_1", "div")
    assert softmax.writes[-1] == "buf11"
    assert "void  kernel(" in training.payload(softmax.payload)
    assert kernels["extern_kernels.addmm"].language == "extern"


def test_a_native_compile_is_joined_to_its_kernel_by_the_text(training: Recording) -> None:
    found: list[str] = []
    for graph in training.graphs:
        for kernel in graph.kernels:
            natives = compile_of_kernel(training, kernel)
            assert len(natives) == (0 if kernel.language == "extern" else 1), kernel.name
            found += [native.output for native in natives]
    assert len(found) == len(set(found)) == 6


def test_a_kernel_without_text_has_no_native_compile(training: Recording) -> None:
    nothing = Kernel(name="none", language="C++")
    assert compile_of_kernel(training, nothing) == ()


def test_memory_that_is_taken_over_is_known(training: Recording) -> None:
    reuses = {(reuse.old, reuse.new, reuse.how) for reuse in graph_of(training, "backward").reuses}
    assert ("buf2", "buf5", "in place") in reuses
    buffers = training.data(graph_of(training, "forward").buffers)
    assert buffers["buf5"]["origin"] == "addmm"


def test_an_only_choice_is_no_search(training: Recording) -> None:
    """Without max-autotune torch asks for a choice too, of the library's function alone."""
    assert [graph.autotunes for graph in training.graphs] == [(), ()]


# --- caches, refusals and kills -------------------------------------------------------------------


def test_cache_misses_are_known(training: Recording) -> None:
    lookups = [(lookup.cache, lookup.outcome) for lookup in only_compile(training).caches]
    assert lookups == [("AOTAutograd", "miss"), ("FX graph", "miss"), ("FX graph", "miss")]


def test_a_cache_hit_has_a_wrapper_and_nothing_before_it() -> None:
    recording = load(stored("cache_hit"))
    compile_ = only_compile(recording)
    assert [(lookup.cache, lookup.outcome) for lookup in compile_.caches] == [
        ("AOTAutograd", "hit")
    ]
    (graph,) = compile_.inductor
    assert (graph.cached, graph.finished, graph.lowered, graph.kernels) == (True, True, (), ())
    assert "def call(" in recording.payload(graph.wrapper)
    assert libraries_from_cache(recording, compile_) == 1


def test_a_kernel_that_gcc_refused_has_its_exit_code_and_messages() -> None:
    recording = load(stored("refused_by_compiler"))
    (graph,) = recording.graphs
    (native,) = compile_of_kernel(recording, graph.kernels[0])
    assert (native.tool, native.exit_code) == ("c++", 1)
    assert "was not declared in this scope" in recording.payload(native.messages)
    (error,) = only_compile(recording).errors
    assert (error.stage, error.swallowed) == ("cpp-compile", False)
    assert not graph.finished


def test_a_killed_process_leaves_its_stages_open() -> None:
    recording = load(stored("killed_while_lowering"))
    victim = next(process for process in recording.processes if process.role == "program")
    assert not victim.ended
    assert [stage.stage for stage in victim.unfinished] == ["dynamo", "aot", "inductor", "lowering"]
    assert recording.ending is not None
    assert recording.ending.signal == 9
    assert only_compile(recording).outcome == "not finished"
    (graph,) = recording.graphs
    assert [node.node for node in graph.lowered] == ["relu", "add"]


# --- small things ---------------------------------------------------------------------------------


def test_a_compile_whose_start_was_not_recorded_is_made_up(tmp_path: Path) -> None:
    kernel = {"kind": "kernel", "graph": "3/1 backward", "name": "late"}
    compile_ = only_compile(load(write_recording(tmp_path / "r", kernel)))
    assert (compile_.id, compile_.outcome) == ("3/1", "not finished")
    (graph,) = compile_.inductor
    assert (graph.key, graph.phase, graph.kernels[0].name) == ("3/1 backward", "backward", "late")


def test_the_same_id_again_is_a_further_attempt(tmp_path: Path) -> None:
    start = {"kind": "compile-start", "compile": "0/0"}
    ends = [{"kind": "compile-end", "compile": "0/0", "outcome": word} for word in ("raised", "ok")]
    recording = load(write_recording(tmp_path / "r", start, ends[0], start, ends[1]))
    assert [compile_.outcome for compile_ in recording.compiles] == ["raised", "ok"]


def test_a_search_is_announced_then_timed_then_decided(tmp_path: Path) -> None:
    of_graph = {"graph": "0/0 forward", "operation": "mm"}
    choices = [{"name": "triton_mm_0", "description": "BLOCK_M=64"}, {"name": "mm"}, "odd"]
    recording = load(
        write_recording(
            tmp_path / "r",
            {"kind": "autotune", **of_graph, "choices": choices},
            {
                "kind": "autotune-timed",
                **of_graph,
                "milliseconds": {"mm": 0.5},
                "failed": ["triton_mm_0"],
                "winner": "mm",
            },
        )
    )
    (search,) = recording.graphs[0].autotunes
    triton, library = search.choices
    assert (triton.description, triton.milliseconds, triton.failed) == ("BLOCK_M=64", None, True)
    assert (library.milliseconds, library.failed, search.winner) == (0.5, False, "mm")


def test_a_choice_that_torch_took_without_timing_it_has_not_won(tmp_path: Path) -> None:
    """So it is with torch._inductor.config.deterministic, and with a search from a cache."""
    of_graph = {"graph": "0/0 forward", "operation": "mm"}
    choices = {"kind": "autotune", **of_graph, "choices": [{"name": "mm"}, {"name": "tuned"}]}
    chosen = {"kind": "autotune-chosen", **of_graph, "choice": "mm"}
    (search,) = load(write_recording(tmp_path / "r", choices, chosen)).graphs[0].autotunes
    assert (search.taken, search.winner) == ("mm", "")
    assert [choice.state for choice in search.choices] == ["not timed"] * 2


def test_of_a_search_that_is_timed_twice_the_last_times_and_their_winner_count(
    tmp_path: Path,
) -> None:
    of_graph = {"graph": "0/0 forward", "operation": "mm"}
    times = ({"mm": 0.5, "tuned": 0.9}, {"mm": 0.9, "tuned": 0.5})
    recording = load(
        write_recording(
            tmp_path / "r",
            {"kind": "autotune", **of_graph, "choices": [{"name": "mm"}, {"name": "tuned"}]},
            *(
                {"kind": "autotune-timed", **of_graph, "milliseconds": each, "winner": winner}
                for each, winner in zip(times, ("mm", "tuned"), strict=True)
            ),
            {"kind": "autotune-chosen", **of_graph, "choice": "mm"},
        )
    )
    (search,) = recording.graphs[0].autotunes
    assert ([choice.milliseconds for choice in search.choices], search.winner) == (
        [0.9, 0.5],
        "tuned",
    )


def test_a_native_compile_without_an_end_is_still_running(tmp_path: Path) -> None:
    recording = load(
        write_recording(
            tmp_path / "r",
            {"kind": "native-start", "tool": "c++", "source": "a.cpp"},
            {"kind": "native-start", "tool": "c++", "source": "b.cpp"},
            {"kind": "native", "tool": "c++", "source": "a.cpp", "seconds": 1.5, "exit_code": 0},
        )
    )
    assert [(n.source, n.seconds) for n in recording.natives] == [("a.cpp", 1.5), ("b.cpp", None)]


def test_a_triton_compile_has_its_passes_and_is_joined_to_its_kernel_by_name(
    tmp_path: Path,
) -> None:
    recording = load(
        write_recording(
            tmp_path / "r",
            {"kind": "kernel", "graph": "0/0 forward", "name": "triton_poi", "language": "Triton"},
            {"kind": "native-start", "tool": "triton", "kernel": "triton_poi", "config": "A"},
            {"kind": "native-start", "tool": "triton", "kernel": "triton_poi", "config": "B"},
            {
                "kind": "native",
                "tool": "triton",
                "kernel": "triton_poi",
                "config": "A",
                "seconds": 0.2,
                "registers": 32,
                "passes": [["make_ttir", 0.1], ["make_cubin", "odd"], "odd"],
            },
        )
    )
    done, running = compile_of_kernel(recording, recording.graphs[0].kernels[0])
    assert done.passes == (("make_ttir", 0.1),)
    assert (done.config, done.seconds, done.registers) == ("A", 0.2, 32)
    assert (running.config, running.seconds) == ("B", None)


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("aten.relu.default", "relu"),
        ("aten.sum.dim_IntList", "sum"),
        ("torch._C._nn.linear", "linear"),
        ("_operator.add", "add"),
        ("prims.fma.default", "fma"),
        ("relu", "relu"),
        ("", ""),
    ],
)
def test_the_bare_name_of_an_operation(target: str, name: str) -> None:
    assert bare_operation(target) == name


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"dtype": "torch.float32", "shape": [10, "s0"], "device": "cpu"}, "float32[10, s0]"),
        ({"dtype": "torch.int64", "shape": [], "device": "cuda:0"}, "int64[] cuda:0"),
        ({"text": "s0"}, "s0"),
        ([{"text": "1"}, {"text": "2"}], "1, 2"),
        (None, ""),
    ],
)
def test_a_value_is_described_as_torch_users_write_it(value: object, text: str) -> None:
    assert describe_value(value) == text
