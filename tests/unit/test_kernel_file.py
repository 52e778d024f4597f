"""Generated kernel files, read without running them. Neither torch nor Triton is needed."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from inductoscope.errors import InductoscopeError, UnreadableRecording, UsageError
from inductoscope.torch_facts.triton_kernels import KernelFile, read_kernel_file, read_kernel_files
from support.examples import inductoscope
from support.kernel_files import stored

# In the order of the alphabet: file, and the heuristic over its kernel.
HEURISTICS = {
    "cooperative_sum": "cooperative_reduction",
    "cumulative_sum": "split_scan",
    "foreach_add": "foreach",
    "layer_norm": "reduction",
    "matmul": "template",
    "matmul_float32": "template",
    "softmax": "persistent_reduction",
    "transposed_add": "pointwise",
    "users_autotuned": "user_autotune",
}


def read(name: str) -> KernelFile:
    return read_kernel_file(stored(name))


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "kernel.py"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# --- what a file says -----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "heuristic"), HEURISTICS.items())
def test_every_heuristic_is_read_whole(name: str, heuristic: str) -> None:
    kernel = read(name)
    assert kernel.heuristic == heuristic
    assert kernel.problems == ()
    assert str(kernel.target) == "cuda:90"
    assert set(kernel.signature) == set(kernel.body.arguments)
    assert kernel.source.startswith("@triton.jit\ndef ")
    assert kernel.inductor_meta["kernel_name"] in (kernel.name, f"{kernel.name}_0")


def test_a_template_has_its_block_sizes_in_its_body() -> None:
    assert read("matmul").configuration == {
        "EVEN_K": True,
        "USE_FAST_ACCUM": False,
        "ACC_TYPE": "tl.float32",
        "BLOCK_M": 128,
        "BLOCK_N": 64,
        "BLOCK_K": 32,
        "GROUP_M": 8,
        "ALLOW_TF32": False,
        "INDEX_DTYPE": "tl.int32",
        "num_warps": 8,
        "num_stages": 4,
    }


def test_signature_attributes_and_device_are_data() -> None:
    kernel = read("matmul")
    assert kernel.signature == {"arg_B": "*bf16", "out_ptr0": "*bf16"}
    assert kernel.attributes[(0,)] == [["tt.divisibility", 16]]
    assert kernel.device["multi_processor_count"] == 132
    assert kernel.device["warp_size"] == 32


def test_a_reduction_has_size_hints_and_leaves_its_block_open() -> None:
    kernel = read("softmax")
    assert kernel.size_hints == {"x": 128, "r0_": 1024}
    assert kernel.body.constexpr_arguments == ("XBLOCK",)
    assert kernel.configuration["R0_BLOCK"] == 1024
    assert "RBLOCK" not in kernel.configuration  # RBLOCK = R0_BLOCK only repeats it.


def test_a_kernel_of_the_users_has_the_users_configurations() -> None:
    assert read("users_autotuned").configs == (
        {"BLOCK": 64, "num_warps": 2, "num_stages": 3},
        {"BLOCK": 128, "num_warps": 4, "num_stages": 2},
    )


def test_functions_that_the_kernel_calls_come_along() -> None:
    (helper,) = read("cumulative_sum").device_functions
    assert helper.source.splitlines()[:2] == [
        "@triton.jit",
        "def _triton_helper_fn_add0(arg0_0, arg1_0):",
    ]


def test_a_cooperative_grid_is_an_option() -> None:
    assert read("cooperative_sum").options["launch_cooperative_grid"] is True


def test_a_file_for_amd(tmp_path: Path) -> None:
    text = stored("matmul").read_text()
    text = text.replace("type='cuda'", "type='hip'").replace("cc=90", "cc='gfx942:sramecc+:xnack-'")
    text = text.replace("warp_size=32", "warp_size=64")
    text = text.replace("'constants': {}", "'constants': {}, 'waves_per_eu': 2, 'kpack': 2")
    kernel = read_kernel_file(written(tmp_path, text))
    assert str(kernel.target) == "hip:gfx942"
    assert kernel.target is not None
    assert kernel.target.warp_size == 64
    assert kernel.configuration["waves_per_eu"] == 2
    assert kernel.configuration["kpack"] == 2


def test_tma_and_warp_specialisation_are_noticed(tmp_path: Path) -> None:
    text = stored("matmul").read_text()
    text = text.replace(
        "    A = arg_B\n", "    A = tl.make_tensor_descriptor(arg_B, [M], [1], [8])\n"
    )
    text = text.replace("tl.cdiv(K, BLOCK_K)):", "tl.cdiv(K, BLOCK_K), warp_specialize=True):")
    options = read_kernel_file(written(tmp_path, text)).options
    assert options["tma"] is True


# --- several kernels in one file ------------------------------------------------------------------


def test_a_wrapper_holds_several_kernels() -> None:
    kernels = read_kernel_files(stored("wrapper"))
    assert [kernel.name for kernel in kernels] == ["add_scaled_0", "triton_poi_fused_add_0"]
    assert [d.name for d in kernels[0].device_functions] == ["helper"]


def test_one_of_several_is_chosen_by_its_name_or_its_functions() -> None:
    for name in ("add_scaled_0", "add_scaled"):
        assert read_kernel_file(stored("wrapper"), name).heuristic == "user_autotune"


def test_without_a_name_the_names_are_said() -> None:
    with pytest.raises(
        UsageError, match=r"choose one with --name.*add_scaled_0, triton_poi_fused_add_0"
    ):
        read_kernel_file(stored("wrapper"))
    with pytest.raises(UsageError, match="has no kernel nobody"):
        read_kernel_file(stored("wrapper"), "nobody")


def test_generated_code_is_found_in_a_log(tmp_path: Path) -> None:
    prefix = "V1115 00:10:11.832000 722 torch/_inductor/graph.py:2552] [0/0] [__output_code] "
    lines = [
        "Output code:",
        *stored("wrapper").read_text().split("\n"),
        "Output code written to: x",
    ]
    log = "Hello from the program\n" + "\n".join(prefix + line for line in lines)
    assert len(read_kernel_files(written(tmp_path, log))) == 2


# --- nothing in a file is run ---------------------------------------------------------------------

EVIL = "exec('__import__(\"pathlib\").Path({}).touch()')"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("import triton\n", "{evil}\nimport triton\n"),
        ("import triton\n", "import triton\nanswer = {evil}\n"),
        ("import triton\n", "import triton\nimport antigravity\n"),
        ("import triton\n", "import triton\nclass A:\n    {evil}\n"),
        ("num_stages=4", "num_stages={evil}"),
        ("@triton.jit\n", "@triton.jit\n@{evil}\n"),
        ("@triton.jit\n", "@triton.jit(noinline={evil})\n"),
        ("(arg_B, out_ptr0)", "(arg_B, out_ptr0={evil})"),
        ("(arg_B, out_ptr0)", "(arg_B, out_ptr0: {evil})"),
        ("'constants': {}", "'constants': {{'arg_B': {evil}}}"),
    ],
)
def test_code_in_odd_places_is_neither_run_nor_taken_over(
    old: str, new: str, tmp_path: Path
) -> None:
    from inductoscope.kernels.alone import module_text
    from inductoscope.kernels.plan import configs_in_file, make_plan, script_text
    from inductoscope.torch_facts.gpu_targets import parse_target

    mark = tmp_path / "was run"
    text = stored("matmul").read_text()
    assert old in text
    text = text.replace(old, new.format(evil=EVIL.format(json.dumps(str(mark)))), 1)
    try:
        kernel = read_kernel_file(written(tmp_path, text))
        plan = make_plan(kernel, parse_target("cuda:90"), configs_in_file(kernel)[0])
        script = script_text(plan) + module_text(kernel)
    except InductoscopeError:
        script = ""
    assert "__import__" not in script
    assert "antigravity" not in script
    assert not mark.exists()
    assert "antigravity" not in sys.modules


def test_what_is_left_out_is_said(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    text = "import os\n" + stored("softmax").read_text() + "\nprint('hello')\n"
    problems = read_kernel_file(written(tmp_path, text)).problems
    assert problems[0] == snapshot
    assert "Expr is not part of a kernel" in problems[1]


# --- files that are no kernel files ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no function has a @triton_heuristics"),
        (b"\x7fELF\0\0\0", "is a binary file"),
        (b"def f(:\n", "line 1 is not Python"),
        (b"x = " + b"(" * 5000 + b")" * 5000, "does not contain a generated Triton kernel"),
        (b"x = " + b"-" * 200_000 + b"1", "does not contain a generated Triton kernel"),
        (b"x = " + b"[" * 90 + b"]" * 90, "no function has a @triton_heuristics"),
        (b"\xff\xfe\xfd", "does not contain a generated Triton kernel"),
        (b"print('a program of another kind')", "no function has a @triton_heuristics"),
        (
            b"from x import triton_heuristics\n@triton_heuristics.template()\ndef f(): pass",
            "not contain a gen",
        ),
    ],
)
def test_other_files_are_refused_with_the_reason(
    content: bytes, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(UnreadableRecording, match=reason):
        read_kernel_file(written(tmp_path, content))


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.py"
    with path.open("wb") as file:
        file.truncate(2**36)
    with pytest.raises(UnreadableRecording, match="larger than 32 MiB"):
        read_kernel_file(path)


def test_a_missing_file_is_said_with_how_to_bring_it(tmp_path: Path) -> None:
    with pytest.raises(UnreadableRecording, match=r"No such file.*scp MACHINE:.*CACHE_DIR"):
        read_kernel_file(tmp_path / "gone.py")
    with pytest.raises(UnreadableRecording, match="cannot be read"):
        read_kernel_file(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("triton_meta={", "other_meta={", "no readable signature"),
        ("DeviceProperties(type='cuda'", "dict(type=f()", "no readable device properties"),
        ("'signature': {", "'signature': 7, 'x': {", "no readable signature"),
        ("'arg_B': '*bf16'", "'arg_C': '*bf16'", "which the function does not take"),
        ("'configs': [{(0,)", "'configs': [f(), {(0,)", "divisibility"),
    ],
)
def test_a_file_with_a_gap_is_read_in_part(
    old: str, new: str, problem: str, tmp_path: Path
) -> None:
    text = stored("matmul").read_text()
    assert old in text
    kernel = read_kernel_file(written(tmp_path, text.replace(old, new, 1)))
    assert problem in " ".join(kernel.problems)
    assert kernel.configuration["num_warps"] == 8


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_files_never_raise_anything_else(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = stored(data.draw(st.sampled_from(sorted(HEURISTICS)))).read_bytes()
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = start + data.draw(st.integers(0, 40))
        junk = st.sampled_from([b"", b"{", b"'", b"\n", b"lambda: 0", b"**x", b"\xff", b"9" * 5000])
        text = text[:start] + data.draw(junk) + text[end:]
    path = tmp_path_factory.getbasetemp() / "damaged.py"
    path.write_bytes(text)
    with contextlib.suppress(InductoscopeError):
        for kernel in read_kernel_files(path):
            json.dumps(dict(kernel.configuration))
            assert isinstance(kernel.source, str)


# --- on the command line --------------------------------------------------------------------------


def test_show_source_reads_the_file_and_compiles_nothing() -> None:
    answer = inductoscope("kernel", stored("matmul"), "--show", "source")
    assert answer.exit_code == 0
    assert "triton_tem_fused_mm_0 (template)" in answer.stdout
    assert "BLOCK_M=128" in answer.words
    assert "Not compiled" in answer.words
    assert "acc += tl.dot(a, b" in answer.stdout


def test_the_same_as_json() -> None:
    data = inductoscope("kernel", stored("softmax"), "--show", "source", "--json", "-").data
    assert data["heuristic"] == "persistent_reduction"
    assert data["generated_for"] == "cuda:90"
    assert data["inductor_meta"]["autotune_hints"] == []


def test_escape_sequences_and_html_do_nothing_to_the_terminal(tmp_path: Path) -> None:
    text = stored("matmul").read_text()
    text = text.replace("'kernel_name': '", r"'x<script>': '").replace(
        "ACC_TYPE : tl.constexpr = tl.float32", r"ACC_TYPE : tl.constexpr = '\x1b[31m<b>red'"
    )
    answer = inductoscope("kernel", written(tmp_path, text), "--show", "source")
    assert "\x1b" not in answer.stdout
    assert r"ACC_TYPE=\x1b[31m<b>red" in answer.words


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--target", "cuda"], "cuda is not a target"),
        (["--target", "tpu:5"], "tpu:5 is not a target"),
        (["--config", "BLOCK_M"], "BLOCK_M is not a setting"),
        (["--config", "BLOCK_Q=4"], "has no BLOCK_Q"),
        (["--name", "other"], "has no kernel other"),
    ],
)
def test_what_cannot_be_is_said(words: list[str], message: str) -> None:
    answer = inductoscope("kernel", stored("matmul"), *words, "--quiet")
    assert answer.exit_code == 2
    assert message in answer.words


def test_an_unreadable_file_is_exit_code_2(tmp_path: Path) -> None:
    assert inductoscope("kernel", tmp_path / "gone.py").exit_code == 2
