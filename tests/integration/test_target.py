"""A GPU that is not there: what it would get, on a machine that has none."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from inductoscope.analysis.rules.wrong_indices import narrow_value
from inductoscope.errors import UsageError
from inductoscope.inside import stand_in
from inductoscope.model.entities import Recording
from inductoscope.model.fold import load
from inductoscope.model.kernels import compile_of_kernel, generated
from inductoscope.model.target import left_out, recording_target, target_note, target_notes
from inductoscope.recording.location import FOLDER_VARIABLE
from inductoscope.targets import recompile as kept
from inductoscope.targets.recompile import recording_for_target
from inductoscope.torch_facts.gpu_targets import (
    ARCHITECTURES,
    architecture,
    parse_target,
    read_target,
)
from support.examples import inductoscope
from support.recompiled import call, captured, output, placeholder, tensor

pytest.importorskip("torch")

HAS_TRITON = importlib.util.find_spec("triton") is not None
with_triton = pytest.mark.skipif(not HAS_TRITON, reason="machine code needs Triton")

GRAPHS = {
    "soft": [
        placeholder("x", tensor(8, 64, requires_grad=True)),
        call(
            "softmax",
            "torch._VariableFunctionsClass.softmax",
            "(x, -1)",
            value=tensor(8, 64, requires_grad=True),
        ),
        output("softmax"),
    ],
    "wide": [
        call("arange", "torch._VariableFunctionsClass.arange", "(0, 11)"),
        call("mul", "mul", "(arange, 1000000000)"),
        output("mul"),
    ],
    "own": [
        placeholder("x", tensor(4)),
        call("twice", "mine.twice.default", "(x,)"),
        output("twice"),
    ],
    # Constants: torch computes with their values while it compiles.
    "scaled": [
        placeholder("x", tensor(12)),
        call("three", "torch.tensor", "(3.0,)", kwargs="{'device': device(type='cpu')}"),
        call("mul", "mul", "(x, three)"),
        call("steps", "torch.tensor", f"({list(range(12))},)", kwargs="{'device': 'cpu'}"),
        call("add", "add", "(mul, steps)"),
        output("add"),
    ],
    # A library's own operator, and a call with which torch counts the use of its classes.
    "called": [
        placeholder("x", tensor(4, 8, requires_grad=True)),
        call("counted", "torch._C._log_api_usage_once", "('python.nn_module',)"),
        call("twice", "mine.twice", "(x, 2)", value=tensor(4, 8, requires_grad=True)),
        call("relu", "torch.relu", "(twice,)", value=tensor(4, 8, requires_grad=True)),
        output("relu"),
    ],
}
CODE = {"called": "def forward(self, x):\n    twice = torch.ops.mine.twice(x, 2)\n"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where recordings are kept, and what was compiled for targets."""
    return tmp_path_factory.mktemp("target")


@pytest.fixture(scope="module")
def on_cpu(place: Path) -> Path:
    """The recording of a program on the CPU."""
    return captured(place / "recording", GRAPHS, **CODE)


@pytest.fixture(scope="module")
def for_h100(place: Path, on_cpu: Path) -> Path:
    """The same graphs, compiled for an H100."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(place))
        return recording_for_target(on_cpu, parse_target("cuda:90"))


@pytest.fixture(autouse=True)
def _same_place(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(place))


@pytest.fixture(scope="module")
def on_h100(for_h100: Path) -> Recording:
    return load(for_h100)


# --- what is compiled -----------------------------------------------------------------------------


def test_every_graph_is_compiled_forward_and_backward(on_h100: Recording) -> None:
    keys = {graph.key: [k.name for k in graph.kernels] for graph in on_h100.graphs}
    assert list(keys) == [
        "0/0 forward", "0/0 backward", "1/0 inference", "3/0 inference", "4/0 inference",
    ]  # fmt: skip
    own = keys.pop("4/0 inference")
    assert all(name.startswith("triton_") for names in keys.values() for name in names)
    assert own[0] == "torch.ops.mine.twice.default"
    assert own[1].startswith("triton_")
    functions = [compile_.function for compile_ in on_h100.compiles]
    assert functions == ["soft", "wide", "own", "scaled", "called"]


def test_an_operator_of_a_library_is_called_and_what_is_missing_is_said(on_h100: Recording) -> None:
    notes = [note for compile_, note in target_notes(on_h100) if compile_ == "4/0"]
    assert notes == [
        "mine.twice: called by its name, and taken to change none of its inputs",
        "compiled without its backward graph: the gradient of mine.twice is not recorded",
    ]


def test_what_cannot_be_built_is_left_out_and_the_rest_goes_on(on_h100: Recording) -> None:
    assert left_out(on_h100) == (("2/0", "mine.twice.default is an operator of the program's own"),)


def test_a_constant_of_the_program_is_in_the_kernel(on_h100: Recording) -> None:
    (kernel,) = (k for g in on_h100.graphs for k in g.kernels if g.key == "3/0 inference")
    source = on_h100.payload(kernel.payload)
    assert "tl.full([1], 3.0, tl.float32)" in source
    assert "tl.load(in_ptr1 + " in source  # Twelve numbers are too many to be written into it.


def test_it_says_that_nothing_ran_on_a_gpu(on_h100: Recording) -> None:
    assert recording_target(on_h100) == "cuda:90"
    assert on_h100.manifest["ran_on_gpu"] is False
    assert "Compiled for cuda:90. Nothing ran on a GPU" in target_note(on_h100)
    assert ("pip install triton" in target_note(on_h100)) is not HAS_TRITON


@with_triton
def test_every_kernel_goes_down_to_machine_code(on_h100: Recording) -> None:
    for graph in on_h100.graphs:
        for kernel in generated(graph):
            natives = compile_of_kernel(on_h100, kernel)
            assert natives
            for native in natives:
                assert {"ttir", "ttgir", "llir", "ptx"} <= native.forms.keys()
                assert f".entry {kernel.name}" in on_h100.payload(native.forms["ptx"])
                assert native.registers is not None
                assert native.registers > 0
                assert (native.spills, native.error) == (0, "")
                binary = Path(native.output)
                assert binary.suffix == ".cubin"
                assert "EXIT" in binary.with_suffix(".sass").read_text()


# --- how a user sees it ---------------------------------------------------------------------------


def test_an_operation_is_followed_to_the_kernel_that_an_h100_would_get(on_cpu: Path) -> None:
    words = ("show", on_cpu, "--op", "softmax", "--target", "cuda:90")
    answer = inductoscope(*words, "--json", "-")
    assert answer.exit_code == 0
    assert answer.data["target"]["ran_on_gpu"] is False
    shown = [o for o in answer.data["operations"] if o["kernel"]]
    assert {k["language"] for o in shown for k in o["kernel"]} == {"Triton"}
    assert "/scripts/model.py:3" in answer.stdout
    assert answer.data["target"]["note"] in inductoscope(*words).words


def test_the_second_time_is_instant(
    on_cpu: Path, for_h100: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "recompile", lambda *a, **k: pytest.fail("compiled again"))
    assert recording_for_target(on_cpu, parse_target("cuda:90")) == for_h100


class Compiled(Exception):
    """It was not kept."""


@pytest.fixture
def _not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def recompile(*args: object, **kwargs: object) -> Path:
        raise Compiled

    monkeypatch.setattr(kept, "recompile", recompile)


@pytest.mark.usefixtures("_not_kept", "for_h100")
def test_another_version_or_another_graph_is_compiled_anew(
    on_cpu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = captured(tmp_path / "other", {"soft": GRAPHS["soft"]})
    with pytest.raises(Compiled):
        recording_for_target(other, parse_target("cuda:90"))
    monkeypatch.setattr(kept, "versions", lambda: {"torch": "2.0"})
    with pytest.raises(Compiled):
        recording_for_target(on_cpu, parse_target("cuda:90"))


@pytest.mark.usefixtures("_not_kept")
def test_a_result_that_lies_in_the_recording_is_not_taken_for_ones_own(
    for_h100: Path, tmp_path: Path
) -> None:
    stranger = captured(tmp_path / "stranger", {"soft": GRAPHS["soft"]})
    shutil.copytree(for_h100, stranger / "targets" / "cuda_90")
    shutil.copytree(for_h100, stranger / kept.FOLDER / for_h100.name)
    with pytest.raises(Compiled):
        recording_for_target(stranger, parse_target("cuda:90"))


def test_what_was_cut_short_is_shown_and_not_kept(place: Path, tmp_path: Path) -> None:
    path = captured(tmp_path / "recording", {"soft": GRAPHS["soft"]})
    made = tmp_path / "made"
    (made / "streams").mkdir(parents=True)
    (made / "recording.json").write_text('{"schema": 1, "came_to_its_end": false}')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept, "recompile", lambda *a, **k: made)
        assert recording_for_target(path, parse_target("cuda:90")) == made
    assert not kept._is_whole(made)


def test_the_result_has_no_target_of_its_own(for_h100: Path) -> None:
    with pytest.raises(UsageError, match=r"is itself compiled for cuda:90"):
        recording_for_target(for_h100, parse_target("cuda:80"))


# --- targets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cuda:75", "hip:gfx1100", "xpu", "banana"])
def test_an_unknown_target_is_told_which_there_are(on_cpu: Path, name: str) -> None:
    answer = inductoscope("show", on_cpu, "--target", name)
    assert answer.exit_code == 2
    assert "cuda:80, cuda:90, cuda:100, hip:gfx90a" in answer.words


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_target_has_the_figures_that_torch_reads(name: str) -> None:
    target = read_target(name)
    about = architecture(target)
    assert about.warp_size == target.warp_size
    assert bool(about.gcnArchName) == (target.kind == "hip")
    if target.kind == "cuda":
        assert about.capability == divmod(int(target.architecture), 10)


# --- the library that stands in -------------------------------------------------------------------


def test_the_library_is_kept_where_only_its_owner_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = stand_in._own_folder()
    assert folder is not None
    assert folder.stat().st_mode & 0o077 == 0
    folder.chmod(0o777)
    assert stand_in._own_folder() is None


def test_a_library_that_somebody_else_could_have_put_there_is_not_loaded(tmp_path: Path) -> None:
    library = tmp_path / "planted.so"
    library.write_bytes(b"")
    library.chmod(0o666)
    assert not stand_in._is_own_file(library)
    library.chmod(0o600)
    assert stand_in._is_own_file(library)
    (tmp_path / "link.so").symlink_to(library)
    assert not stand_in._is_own_file(tmp_path / "link.so")


# --- a whole program ------------------------------------------------------------------------------

ASKS_FOR_A_GPU = """
import torch

model = torch.nn.Linear(4, 4).to("cuda")
out = model(torch.ones(2, 4, device="cuda"))
print(out.device, tuple(out.shape), torch.cuda.get_device_name())
print(torch.compile(torch.relu, mode="reduce-overhead")(out).device)
print(out.sum().item())
"""


def test_a_program_that_asks_for_a_gpu_runs_until_it_asks_for_a_value(tmp_path: Path) -> None:
    script, folder = tmp_path / "asks.py", tmp_path / "recording"
    script.write_text(ASKS_FOR_A_GPU)
    words = ["run", "--target", "cuda:90", "--pretend", "--output", str(folder), str(script)]
    done = subprocess.run(
        [sys.executable, "-m", "inductoscope", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "INDUCTOSCOPE_RECORDINGS": str(tmp_path / "recordings")},
    )
    assert "cuda:0 (2, 4) NVIDIA H100 80GB HBM3 (not there)\ncuda:0\n" in done.stdout
    said = " ".join(done.stderr.split())
    assert "the program asked for a value that was computed on cuda:90" in said
    assert target_note(load(folder)) in said
    assert "0/0: CUDA graphs are left out: there is no GPU to capture them on." in said
    assert done.returncode == 1
    manifest = json.loads((folder / "recording.json").read_text())
    assert (manifest["target"], manifest["ran_on_gpu"], manifest["fresh"]) == (
        "cuda:90",
        False,
        True,
    )


def test_pretending_needs_a_target() -> None:
    answer = inductoscope("run", "--pretend", "train.py")
    assert (answer.exit_code, "Add --target" in answer.words) == (2, True)


# --- index and value ------------------------------------------------------------------------------


def test_the_wide_product_is_computed_in_32_bits_by_the_torch_that_is_installed(
    on_h100: Recording,
) -> None:
    (finding,) = narrow_value(on_h100)
    assert finding.confidence == "proven"
    assert "0 to 10,000,000,000" in finding.title
    assert finding.source == "/scripts/model.py:4"
    kernel = next(k for g in on_h100.graphs for k in g.kernels if g.key == "1/0 inference")
    for native in compile_of_kernel(on_h100, kernel):
        assert "mul.lo.s32" in on_h100.payload(native.forms["ptx"])
