"""The standalone script that is made of a kernel file. Only its text: nothing is compiled here."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from inductoscope.errors import UsageError
from inductoscope.kernels.plan import (
    Config,
    Plan,
    configs_in_file,
    default_config,
    make_plan,
    parse_config,
    script_text,
    with_settings,
)
from inductoscope.torch_facts.gpu_targets import parse_target
from inductoscope.torch_facts.triton_kernels import (
    amd_resources,
    nvidia_resources,
    read_kernel_file,
)
from support.examples import inductoscope
from support.kernel_files import stored


def plan(name: str, settings: str = "", target: str = "cuda:90") -> Plan:
    kernel = read_kernel_file(stored(name))
    config = (configs_in_file(kernel) or [default_config(kernel)])[0]
    return make_plan(kernel, parse_target(target), with_settings(config, parse_config(settings)))


def assigned(text: str) -> dict[str, object]:
    """The constants of a script."""
    return {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Dict)
    }


def test_a_script_holds_all_that_triton_needs() -> None:
    values = assigned(script_text(plan("matmul")))
    assert values["SIGNATURE"] == {"arg_B": "*bf16", "out_ptr0": "*bf16"}
    assert values["ATTRIBUTES"] == {(n,): [["tt.divisibility", 16]] for n in (0, 1)}
    assert values["OPTIONS"] == {
        "debug": True,
        "sanitize_overflow": False,
        "num_warps": 8,
        "num_stages": 4,
    }


def test_a_script_says_how_to_run_it_and_where_it_is_from() -> None:
    about = ast.get_docstring(ast.parse(script_text(plan("matmul")))) or ""
    assert "From matmul.txt" in about
    assert "no GPU" in about


def test_torch_is_imported_only_where_the_kernel_calls_it() -> None:
    assert "torch" not in script_text(plan("matmul")).replace("torch.compile", "")
    assert plan("softmax").needs_torch
    assert not plan("matmul").needs_torch


def test_a_block_size_inside_of_the_kernel_can_be_changed() -> None:
    text = script_text(plan("matmul", "BLOCK_M=256,num_warps=4"))
    assert "    BLOCK_M : tl.constexpr = 256\n" in text
    assert assigned(text)["OPTIONS"]["num_warps"] == 4  # type: ignore[index]


def test_a_type_inside_of_the_kernel_stays_a_name() -> None:
    assert "ACC_TYPE : tl.constexpr = tl.float16\n" in script_text(
        plan("matmul", "ACC_TYPE=tl.float16")
    )


def test_an_argument_becomes_a_constant() -> None:
    values = assigned(script_text(plan("softmax", "XBLOCK=4,num_warps=2")))
    assert values["CONSTANTS"] == {"XBLOCK": 4}


def test_options_follow_the_target() -> None:
    cuda, hip = (
        plan("cooperative_sum", "RSPLIT=8"),
        plan("cooperative_sum", "RSPLIT=8", "hip:gfx942"),
    )
    assert cuda.options["launch_cooperative_grid"] is True
    assert "launch_cooperative_grid" not in hip.options
    assert "GPUTarget(\"hip\", 'gfx942', 64)" in script_text(hip)


def test_without_torch_blocks_follow_the_size_hints_and_the_origin_is_said() -> None:
    config = default_config(read_kernel_file(stored("transposed_add")))
    assert config.values == {"YBLOCK": 1024, "XBLOCK": 1, "num_warps": 4, "num_stages": 1}
    assert "inductoscope" in config.origin
    assert not config.is_own


def test_an_argument_that_nobody_chose_is_asked_for() -> None:
    kernel = read_kernel_file(stored("cooperative_sum"))
    with pytest.raises(UsageError, match="There is no value for RSPLIT: give --config RSPLIT=64"):
        make_plan(kernel, parse_target("cuda:90"), default_config(kernel))


def test_host_descriptors_carry_the_shape_of_their_block(tmp_path: Path) -> None:
    described = "{'arg_B': {'block_shape': ['BLOCK_M', 32], 'shape': [512], 'strides': [1]}}"
    text = stored("matmul").read_text()
    path = tmp_path / "tma.py"
    path.write_text(
        text.replace("'grid_type'", f"'host_tma_descriptor_args': {described}, 'grid_type'")
    )
    kernel = read_kernel_file(path)
    made = make_plan(kernel, parse_target("cuda:90"), Config({}, "test"))
    assert made.signature["arg_B"] == "tensordesc<bf16[128, 32]>"


def test_a_hostile_file_name_cannot_leave_the_docstring(tmp_path: Path) -> None:
    path = tmp_path / '"""\nimport os\n"""'
    path.write_text(stored("matmul").read_text())
    kernel = read_kernel_file(path)
    made = make_plan(kernel, parse_target("cuda:90"), configs_in_file(kernel)[0])
    names = [
        n.name
        for s in ast.parse(script_text(made)).body
        if isinstance(s, ast.Import)
        for n in s.names
    ]
    assert names == ["os", "time", "triton", "triton.language"]  # The script's own.


@pytest.mark.parametrize(
    ("name", "quoted"), [("repro.py", "repro.py"), ('the "big" one.py', "'the \"big\" one.py'")]
)
def test_the_script_is_written_where_it_is_wanted(tmp_path: Path, name: str, quoted: str) -> None:
    script = tmp_path / name
    words = ("kernel", stored("matmul"), "--show", "source", "--script", script)
    assert inductoscope(*words).exit_code == 0
    assert "def triton_tem_fused_mm_0(arg_B, out_ptr0):" in script.read_text()
    about = ast.get_docstring(ast.parse(script.read_text())) or ""
    assert f"timeout 60 python {quoted}\n" in about


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        ("XBLOCK=64, num_warps=8", {"XBLOCK": 64, "num_warps": 8}),
        ("A=True,B=1.5,C=tl.float32", {"A": True, "B": 1.5, "C": "tl.float32"}),
    ],
)
def test_settings_as_typed(text: str, values: dict[str, object]) -> None:
    assert parse_config(text) == values


# --- what compilers say of a kernel ---------------------------------------------------------------


def test_nvidia_says_registers_and_spills() -> None:
    log = """ptxas info    : Function properties for triton_mm
    312 bytes stack frame, 440 bytes spill stores, 460 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 312 bytes cumulative stack size"""
    usage = " Function triton_mm:\n  REG:255 STACK:312 SHARED:0 LOCAL:0 CONSTANT[0]:560"
    taken = nvidia_resources(log, usage, 98304)
    assert (taken.registers, taken.spills, taken.shared, taken.local) == (255, 440, 98304, 312)


def test_amd_says_them_in_the_assembly() -> None:
    taken = amd_resources(
        "    .private_segment_fixed_size: 16\n    .sgpr_count:     24\n"
        "    .vgpr_count:     58\n    .vgpr_spill_count: 3\n",
        None,
    )
    assert (taken.registers, taken.scalar_registers, taken.spills, taken.local) == (58, 24, 3, 16)
