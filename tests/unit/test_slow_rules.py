"""Causes of slow compiled code, read from a recording: kernels as torch 2.13 generated them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.analysis.rules import RULES, SLOWNESS, diagnose
from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.fold import load
from inductoscope.torch_facts.cpp_loops import loop_nests, read_loops
from support.examples import NAMES, stored, write_recording

KERNELS = Path(__file__).parent / "torch_facts/samples/cpp_loops/torch-2.13"
ABOUT: dict[str, Any] = {"compile": "0/0", "graph": "0/0 inference"}
STACK = 'File "/model.py", line {line}, in f\n{code}'
GRAPH, KERNEL, NODES, BODY = (f"{n:032x}" for n in range(4))


def source(name: str) -> str:
    """A kernel of a program with the same name."""
    return (KERNELS / f"{name}.cpp").read_text()


def operation(name: str, line: int, code: str, target: str = "", **value: Any) -> dict[str, Any]:
    """An operation of the graph, with the user's line."""
    return {
        "name": name,
        "op": "call_function",
        "target": f"aten.{target or name}.default",
        "value": value,
        "stack": STACK.format(line=line, code=code),
    }


def graph_of(operations: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The graph as it is recorded: stacks are kept apart from the nodes."""
    nodes = [{**each, "stack": number} for number, each in enumerate(operations)]
    return {"nodes": nodes, "stacks": [each["stack"] for each in operations]}


def found_in(
    folder: Path,
    kernel: str,
    *operations: dict[str, Any],
    settings: dict[str, str] | None = None,
    command: str = "g++ -D CPU_CAPABILITY_NEON k.cpp",
) -> list[Finding]:
    """Findings in a recording of one graph with one C++ kernel."""
    names = [each["name"] for each in operations]
    path = write_recording(
        folder,
        {"kind": "compile-start", "compile": "0/0", "function": "f", "file": "/model.py"},
        {"kind": "settings", "compile": "0/0", "config": settings or {}},
        {"kind": "inductor-start", "phase": "inference", **ABOUT},
        {"kind": "graph", "stage": "post-grad", "payload": GRAPH, **ABOUT},
        {"kind": "kernel", "name": "cpp_fused_0", "language": "C++", "payload": KERNEL,
         "origins": names, **ABOUT},
        {"kind": "native", "tool": "c++", "command": command, "seconds": 1.0, "exit_code": 0},
        payloads={GRAPH: graph_of(operations), KERNEL: kernel},
    )  # fmt: skip
    return [finding for finding in diagnose(load(path)) if finding.rule in SLOWNESS]


def test_every_kind_of_slowness_is_a_rule() -> None:
    assert set(SLOWNESS) <= {rule.__name__ for rule in RULES}


@pytest.mark.parametrize("name", NAMES)
def test_recorded_programs_are_not_accused(name: str) -> None:
    known = {"graph_breaks", "recompiles"}  # Two of them were recorded for these.
    assert {f.rule for f in diagnose(load(stored(name))) if f.rule in SLOWNESS} <= known


# --- loops of a kernel ----------------------------------------------------------------------------


def test_loops_are_read_with_what_is_around_them() -> None:
    (outer, rest) = read_loops(source("index_add"))
    assert (outer.variable, outer.elements, outer.step, outer.inner) == ("x0", 3500, 4, ())
    assert [(loop.variable, loop.elements) for loop in rest.inner] == [("x1", 500)]
    assert [nest.elements for nest in loop_nests(source("index_add"))] == [3500, 2_000_000]
    assert all(nest.is_vectorized for nest in loop_nests(source("index_add")))


def test_sizes_that_are_only_known_when_it_runs_count_as_nothing() -> None:
    text = "for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(ks0); x0+=1L)\n{\n}"
    (loop,) = read_loops(text)
    assert (loop.end, loop.elements) == (None, 1)


@pytest.mark.parametrize("text", ["", "for(", "}\n}\n{", "for(int64_t x0=0L; x0<5L; x0+=1L)\n{"])
def test_damaged_text_is_read_as_far_as_it_goes(text: str) -> None:
    assert len(read_loops(text)) <= 1


# --- each rule on its kernel ----------------------------------------------------------------------


def test_a_setting_that_forbids_vectors(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    line = operation("gelu", 6, "return gelu(x)")
    setting = {"torch._inductor.config.cpp.simdlen": "1"}
    (finding,) = found_in(tmp_path / "r", source("no_simd"), line, settings=setting)
    assert finding.title == snapshot
    assert (finding.rule, finding.confidence) == ("scalar_loop", "proven")
    assert (finding.source, finding.code) == ("/model.py:6", "return gelu(x)")
    assert not finding.is_problem


def test_a_type_that_has_no_vector_form(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    (finding,) = found_in(tmp_path / "r", source("int16"), operation("clamp", 4, "mix"))
    assert finding.title == snapshot
    assert finding.confidence == "likely"


def test_a_machine_without_vectors(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    (finding,) = found_in(tmp_path / "r", source("no_simd"), command="g++ -O3 k.cpp")
    assert finding.title == snapshot


def test_a_function_that_is_computed_one_element_at_a_time(tmp_path: Path) -> None:
    other = operation("exp", 5, "torch.exp(x)")
    line = operation("special_i1e", 4, "torch.special.i1e(x)")
    (finding,) = found_in(tmp_path / "r", source("i1e"), line, other)
    assert finding.rule == "element_by_element"
    assert finding.title.startswith("i1e is computed one element at a time, 2,000,000 of them")
    assert finding.source == "/model.py:4"


def test_threads_that_start_again_for_every_row(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (finding,) = found_in(tmp_path / "r", source("group_norm"), operation("relu", 5, "norm(x)"))
    assert finding.title == snapshot


def test_atomic_additions(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    line = operation("index_put", 4, "index_add(0, where, x)", "index_put")
    (finding,) = found_in(tmp_path / "r", source("index_add"), line)
    assert finding.title == snapshot


def test_a_function_that_is_computed_again_in_every_loop(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    lines = [operation(f"sin_{n}", 7, "x = torch.sin(x)", "sin") for n in range(6)]
    (finding,) = found_in(tmp_path / "r", source("sin_chain"), *lines)
    assert finding.rule == "recomputed"
    assert finding.title == snapshot


@pytest.mark.parametrize("name", ["gelu", "bilinear", "transposed"])
def test_nothing_is_said_about_ordinary_kernels(tmp_path: Path, name: str) -> None:
    """Vectorized, with a gather, with two memory orders: Inductor did what can be done."""
    lines = [operation(each, 3, "y = f(x)") for each in ("gelu", "sigmoid", "exp", "add")]
    assert found_in(tmp_path / "r", source(name), *lines) == []


def test_nothing_is_said_about_small_loops(tmp_path: Path) -> None:
    small = source("no_simd").replace("2000000L", "2000L")
    assert found_in(tmp_path / "r", small, operation("gelu", 6, "gelu(x)")) == []


# --- what other recordings show -------------------------------------------------------------------


def graph_events(*more: dict[str, Any]) -> list[dict[str, Any]]:
    """A recording of one graph."""
    return [
        {"kind": "compile-start", "compile": "0/0", "function": "f", "file": "/model.py"},
        {"kind": "inductor-start", "phase": "inference", **ABOUT},
        {"kind": "graph", "stage": "post-grad", "payload": GRAPH, **ABOUT},
        *more,
    ]


COPY = """var_ranges = {p0: 64, p1: 64, p2: 900}
index0 = 57600*p0 + 900*p1 + p2
index1 = 57600*p0 + p1 + 64*p2
def body(self, ops):
    get_index = self.get_index('index0')
    load = ops.load('arg1_1', get_index)
    get_index_1 = self.get_index('index1')
    store = ops.store('buf1', get_index_1, load, None)
    return store"""


@pytest.mark.parametrize(("origin", "count"), [("convolution", 1), ("clone", 0)])
def test_a_copy_that_only_changes_the_memory_order(tmp_path: Path, origin: str, count: int) -> None:
    buffer = {"name": "buf1", "dtype": "torch.float32", "size": ["64", "64", "900"],
              "stride": ["57600", "1", "64"]}  # fmt: skip
    leaf = {"name": "op1", "class": "SchedulerNode", "loops": "Pointwise", "origins": [origin],
            "reads": ["arg1_1"], "body": BODY, "buffers": [buffer]}  # fmt: skip
    weight = {"name": "arg1_1", "op": "placeholder", "target": "arg1_1", "stack": ""}
    path = write_recording(
        tmp_path / "r",
        *graph_events({"kind": "scheduler", "when": "after", "payload": NODES, **ABOUT}),
        payloads={
            GRAPH: graph_of([weight, operation(origin, 5, "conv(x)")]),
            NODES: [leaf],
            BODY: COPY,
        },
    )
    found = [f for f in diagnose(load(path)) if f.rule == "layout_copies"]
    assert len(found) == count  # A clone is what the program asked for.
    for finding in found:
        assert "(64, 64, 900) is copied into another memory order on every call" in finding.title
        assert "14,745,600 bytes" in finding.evidence[0]
        assert "freezing = True" in finding.advice


@pytest.mark.parametrize(("doublings", "count"), [(11, 1), (8, 0)])
def test_a_loop_body_that_doubles_with_every_step(
    tmp_path: Path, doublings: int, count: int
) -> None:
    names = [f"add_{n}" for n in range(doublings)]
    lines = ["load = ops.load('arg0_1', get_index)"]
    lines += [f"add_{n} = ops.add(load, load)" for n in range(2**doublings)]
    leaf = {"name": "op1", "class": "SchedulerNode", "loops": "Pointwise", "origins": names,
            "reads": ["arg0_1"], "body": BODY, "buffers": []}  # fmt: skip
    path = write_recording(
        tmp_path / "r",
        *graph_events({"kind": "scheduler", "when": "after", "payload": NODES, **ABOUT}),
        payloads={
            GRAPH: graph_of([operation(name, 5, "a, b = a + b, a * b", "add") for name in names]),
            NODES: [leaf],
            BODY: "\n".join(lines),
        },
    )
    found = [f for f in diagnose(load(path)) if f.rule == "repeated_expressions"]
    assert len(found) == count
    for finding in found:
        assert finding.title.startswith("A loop body has 2,048 operations for 11 of the graph")
        assert finding.source == "/model.py:5"


@pytest.mark.parametrize(("spills", "count"), [((64, 128), 1), ((0, 128), 0)])
def test_registers_that_spill_in_every_configuration(
    tmp_path: Path, spills: tuple[int, ...], count: int
) -> None:
    kernel = {"kind": "kernel", "name": "triton_0", "language": "Triton", "payload": KERNEL}
    natives = [
        {"kind": "native", "tool": "triton", "kernel": "triton_0", "config": f"num_warps: {n}",
         "seconds": 1.0, "spills": n_spills}
        for n, n_spills in enumerate(spills)
    ]  # fmt: skip
    path = write_recording(
        tmp_path / "r",
        *graph_events({**kernel, **ABOUT}, *natives),
        payloads={GRAPH: graph_of([]), KERNEL: "def triton_0(): pass"},
    )
    found = [f.title for f in diagnose(load(path)) if f.rule == "register_spills"]
    assert found == ["triton_0 spills 64 registers to memory"] * count


@pytest.mark.parametrize(("dtype", "count"), [("torch.float32", 1), ("torch.bfloat16", 0)])
def test_products_in_float32_without_tensor_cores(tmp_path: Path, dtype: str, count: int) -> None:
    choices = [
        {"name": "mm"},
        {"name": "triton_mm_0", "description": "ALLOW_TF32=False, BLOCK_K=16"},
    ]
    path = write_recording(
        tmp_path / "r",
        *graph_events({"kind": "autotune", "operation": "mm", "choices": choices, **ABOUT}),
        payloads={GRAPH: graph_of([operation("mm", 5, "a @ b", dtype=dtype, device="cuda:0")])},
    )
    found = [f for f in diagnose(load(path)) if f.rule == "tensor_cores_unused"]
    assert len(found) == count


def test_choices_recorded_on_a_gpu_without_tensor_cores(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """Code generated for an H200 in bfloat16, as if it had been float32."""
    folder = tmp_path / "r"
    shutil.copytree(stored("h200_autotune"), folder)
    assert not [f for f in diagnose(load(folder)) if f.rule == "tensor_cores_unused"]
    for path in (path for path in (folder / "payloads").rglob("*") if path.is_file()):
        path.write_bytes(path.read_bytes().replace(b"torch.bfloat16", b"torch.float32"))
    (found,) = [f for f in diagnose(load(folder)) if f.rule == "tensor_cores_unused"]
    assert found.title == snapshot
    assert found.evidence == ("mm: every choice was compiled with ALLOW_TF32=False",)
    assert found.source == "/scripts/h200_autotune/script.py:7"


@pytest.mark.parametrize(
    ("read", "written", "count"),
    [(2048, 2048, 1), (2048, 20480000, 0), (1 << 30, 4, 0), (None, 4, 0)],
    ids=["small", "large result", "a reduction to one value", "not recorded"],
)
def test_kernels_that_are_smaller_than_their_launch(
    tmp_path: Path, read: int | None, written: int, count: int
) -> None:
    kernels, nodes = [], []
    for number in range(10):
        name = f"triton_{number}"
        kernels.append({"kind": "kernel", "name": name, "language": "Triton", **ABOUT})
        moved = {} if read is None else {"arg0": read, f"buf{number}": written}
        nodes.append({"name": f"op{number}", "device": "cuda:0", "bytes": moved})
    path = write_recording(
        tmp_path / "r",
        *graph_events(*kernels, {"kind": "scheduler", "when": "after", "payload": NODES, **ABOUT}),
        payloads={GRAPH: graph_of([]), NODES: nodes},
    )
    assert len([f for f in diagnose(load(path)) if f.rule == "tiny_kernels"]) == count
