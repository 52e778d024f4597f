"""The wrapper of a package says what it accepts; `show --stage wrapper` begins with that."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.analysis.bounds.accesses import PointBudget
from inductoscope.analysis.bounds.kernels import JudgedGraph
from inductoscope.model.entities import Recording
from inductoscope.model.fold import load
from inductoscope.model.wrapper_lines import output_buffers, wrapper_lines
from inductoscope.packages.package import count_guards, package_of_wrapper
from inductoscope.recording.events import Kernel
from inductoscope.torch_facts.package_wrappers import is_same_operator
from inductoscope.views.page.contents import Contents
from inductoscope.views.report.bounds import facts_of_nodes
from inductoscope.views.report.package import facts_of_package
from inductoscope.views.report.sections import fact_text
from inductoscope.views.report.stage_views import loop_body
from support.examples import stored
from support.linking import linked_panes

WRAPPERS = Path(__file__).parent / "torch_facts/samples/cpp_wrappers/torch-2.13"


def test_inputs_and_constants_of_a_package(snapshot: SnapshotAssertion) -> None:
    package = package_of_wrapper((WRAPPERS / "aot_inductor.txt").read_text())
    facts = facts_of_package(package)
    assert facts["input 0"] == snapshot
    total, *constants = facts["constants"]
    assert total == snapshot
    assert fact_text(facts["constants"][:2]) == snapshot
    assert constants[0] == snapshot
    assert "changed by cpp_fused_add_" in constants[-1]


def test_a_wrapper_of_torch_compile_demands_nothing_by_itself() -> None:
    assert package_of_wrapper((WRAPPERS / "cpp_wrapper.txt").read_text()) is None
    assert facts_of_package(None) == {}


def test_every_kernel_of_a_package_has_the_line_of_the_cpp_wrapper_that_calls_it() -> None:
    """C++ has other names for library calls, and results have other names than their kernel's."""
    recording = load(stored("exported_package"))
    (graph,) = recording.graphs
    text = recording.payload(graph.wrapper)
    found = wrapper_lines(text, graph.kernels)
    calls = {kernel.name: found.lines[at] for at, (kernel,) in found.kernels.items()}
    assert list(calls) == [kernel.name for kernel in graph.kernels]
    assert "aoti_torch_cpu_addmm_out(buf1" in calls["extern_kernels.addmm"]
    assert "&buf4_handle, &buf5_handle" in calls["torch.ops.aten.topk.default"]
    assert text.splitlines()[found.first_line - 1] == found.lines[0]
    assert (found.language, found.lines[-1]) == ("cpp", "} // AOTInductorModel::run_impl")


def extern(name: str, reads: str, writes: str) -> Kernel:
    return Kernel(name=name, language="extern", reads=(reads,), writes=(writes,))


def called(*lines: str, kernels: Sequence[Kernel]) -> list[str]:
    text = "\n".join(["void inductor_entry_impl(", *lines, "} // inductor_entry_impl"])
    return [k.writes[0] for found in wrapper_lines(text, kernels).kernels.values() for k in found]


def test_a_library_call_is_linked_to_a_kernel_of_its_operator_and_to_no_other() -> None:
    kernels = (
        extern("extern_kernels.mm", "buf0", "buf1"),
        extern("torch.ops.lib.foo_backward.default", "buf1", "buf2"),
        extern("torch.ops.lib.foo.default", "buf2", "buf3"),
        extern("extern_kernels.addmm", "buf1", "buf4"),
        extern("extern_kernels.addmm", "buf4", "buf5"),
    )
    # Both kernels of this operator have buf4 in common with the call, which only reads it.
    assert called("aoti_torch_cpu_addmm_out(buf5, buf4, w, 1);", kernels=kernels) == ["buf5"]
    assert called("aoti_torch_cpu_bmm_out(buf1, buf0, w);", kernels=kernels) == []
    assert called('aoti_torch_call_dispatcher("lib::foo", "", x);', kernels=kernels) == ["buf3"]
    by_place = "aoti_torch_proxy_executor_call_function(proxy_executor, 0, {buf2, buf3_handle});"
    assert called(by_place, kernels=kernels) == ["buf3"]


@pytest.mark.parametrize(
    ("recorded", "reported", "same"),
    [
        ("extern_kernels.addmm", "aoti_torch_cpu_addmm_out", True),
        ("extern_kernels.mm", "aoti_torch_cpu_addmm_out", False),
        ("extern_kernels.mm", "aoti_torch_cuda__int_mm_out", False),
        ("torch.ops.aten.sort.stable", "aoti_torch_cpu_sort_stable", True),
        ("aten.scatter_reduce_.two", "aoti_torch_cpu_scatter_reduce_two_out", True),
        ("aten.index_put_", "aoti_torch_cpu_index_put_out", True),
        (
            "torch.ops.mkldnn._convolution_pointwise_.binary",
            "aoti_torch_cpu_mkldnn__convolution_pointwise_binary_",
            True,
        ),
        ("torch.ops.lib.foo.default", "lib::foo", True),
        ("torch.ops.lib.foo_backward.default", "lib::foo", False),
        ("cpp_fused_add_0", "cpp_fused_add_0", True),
        ("cpp_fused_add_0", "cpp_fused_add_01", False),
        ("cpp_fused_add_0", "", False),
    ],
)
def test_an_operator_has_two_names(recorded: str, reported: str, same: bool) -> None:
    assert is_same_operator(recorded, reported) is same


def test_calls_that_match_nothing_do_not_take_long() -> None:
    kernels = [extern("extern_kernels.mm", "a", f"buf{n}") for n in range(20_000)]
    start = time.process_time()
    assert called(*["aoti_torch_cpu_mm_out(x, y, z);"] * 20_000, kernels=kernels) == []
    assert time.process_time() - start < 5


def test_outputs_are_known_by_their_place() -> None:
    """A size, None and a constant are outputs too; the same buffer may be returned twice."""
    view = "reinterpret_tensor(buf5, (4, s77), (1, 4), 0)"
    python = f"def call(args):\n    return (s77, buf3, None, {view}, buf3, )\n"
    assert output_buffers(wrapper_lines(python, ())) == {1: "buf3", 3: "buf5", 4: "buf3"}
    for compared in ("(1 if s77 < 2 else s77)", "4 * (s77 > 2)"):
        found = wrapper_lines(python.replace("(4, s77)", f"({compared}, 4)"), ())
        assert output_buffers(found) == {1: "buf3", 3: "buf5", 4: "buf3"}
    cpp = """void inductor_entry_impl(
    auto var_0 = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf5, 2, int_array_0));
    aoti_torch_clone(weight, &output_handles[0]);
    output_handles[2] = buf3.release();
    output_handles[3] = var_0.release();
    output_handles[4] = output_handles[2];
} // inductor_entry_impl
"""
    assert output_buffers(wrapper_lines(cpp, ())) == {2: "buf3", 3: "buf5", 4: "buf3"}


def test_an_operation_of_a_package_is_linked_from_its_python_line_to_the_cpp_call() -> None:
    panes = linked_panes(load(stored("exported_package")))
    text = {pane.id: pane.text.splitlines() for pane in panes.panes}
    relu = next(each for each in panes.operations if each.name == "relu")
    lines = {name: text[name][numbers[0] - 1].strip() for name, numbers in relu.lines.items()}
    assert lines["python"].startswith("best = torch.topk(torch.relu(")
    assert lines["loop-body"].startswith("load = ops.load('buf1'")
    assert lines["wrapper"].startswith("cpp_fused_relu_1((float*)(buf2.data_ptr())")
    assert next(pane for pane in panes.panes if pane.id == "wrapper").language == "cpp"


def test_the_page_has_what_a_package_accepts_and_holds() -> None:
    recording = load(stored("exported_package"))
    contents = Contents(recording)
    assert contents.index.compiles[0].guard_count == count_guards(recording, recording.compiles[0])
    package = contents.chunks[contents.index.compiles[0].package]()
    assert package.inputs[0].sizes == ("s77: 2 to 64", "16")
    assert [each.name for each in package.sizes] == ["s77"]
    assert [(each.name, each.bytes) for each in package.constants] == [
        ("linear.weight", 512),
        ("calls", 64),
    ]


class WithoutWrappers:
    """Texts of a recording whose wrappers got lost."""

    def __init__(self, recording: Recording) -> None:
        self._texts, self._lost = recording.payloads, {g.wrapper for g in recording.graphs}

    def payload(self, digest: str) -> str | None:
        return None if digest in self._lost else self._texts.payload(digest)

    def json_payload(self, digest: str) -> object:
        return self._texts.json_payload(digest)

    def decoded_payload(self, digest: str, decode: Any) -> Any:
        return self._texts.decoded_payload(digest, decode)

    def size(self, digest: str) -> int:
        return self._texts.size(digest)


def test_of_a_package_whose_wrapper_is_lost_the_page_claims_nothing() -> None:
    recording = load(stored("exported_package"))
    contents = Contents(replace(recording, payloads=WithoutWrappers(recording)))
    assert contents.index.compiles[0].package == ""
    assert not [name for name in contents.chunks if name.startswith("package")]


def test_loop_bodies_say_whether_their_accesses_stay_inside() -> None:
    recording = load(stored("exported_package"))
    facts = {each.title: each.facts for each in loop_body(recording)}
    relu = facts["aoti/0 inference op2"]
    assert relu == {"bounds": "2 proven", "broken": []}


def test_a_loop_body_says_that_there_was_no_time_to_judge_it(snapshot: SnapshotAssertion) -> None:
    recording = load(stored("exported_package"))
    (compile_,), (graph,) = recording.compiles, recording.graphs
    judged = JudgedGraph(recording, compile_, graph, PointBudget(1000, until=0.0))
    assert facts_of_nodes(judged)["op2"]["bounds"] == snapshot
