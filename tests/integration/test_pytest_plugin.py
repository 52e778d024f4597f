"""`pytest --inductoscope`: what a user types, a fault in the compiler, what the tests' reports say.

Faults are planted by the suite's conftest.py; its tests do not know of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from inductoscope.model.fold import load
from support.programs import Workplace
from support.suites import BARE, PYTEST, recordings_left, run_suite, written

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.spread


# --- a fault in the compiler ----------------------------------------------------------------------

BROKEN_COMPILER = """
import torch
import torch._inductor.lowering as m

tanh, mul = torch.ops.aten.tanh.default, torch.ops.aten.mul.Tensor
right = m.lowerings[tanh]
m.lowerings[tanh] = lambda x: m.lowerings[mul](right(x), 1.5)

def refuse(x):
    raise ValueError("planted")

m.lowerings[torch.ops.aten.erf.default] = refuse

@torch.library.custom_op("planted::fail", mutates_args=())
def fail(x: torch.Tensor) -> torch.Tensor:
    raise OSError("planted, too")

fail.register_fake(torch.empty_like)
m.lowerings[torch.ops.aten.erfc.default] = m.fallback_handler(torch.ops.planted.fail.default)
"""

SUITE_WITH_FAULTS = """
import pytest
import torch

X = torch.linspace(-2, 2, 16).reshape(4, 4)

def squashed(x):
    y = x @ x
    return torch.tanh(y)

def test_only_looks_at_the_shape():
    assert torch.compile(squashed)(X).shape == (4, 4)

def test_notices_it_too():
    torch.testing.assert_close(torch.compile(lambda x: torch.tanh(x) * 2)(X), torch.tanh(X) * 2)

@pytest.mark.xfail(strict=True)
def test_is_known_to_fail():
    torch.testing.assert_close(torch.compile(lambda x: torch.tanh(x) - 3)(X), torch.tanh(X) - 3)

@pytest.mark.no_inductoscope
def test_is_left_alone():
    torch.compile(lambda x: torch.tanh(x) + 4)(X)

def test_is_healthy():
    assert torch.compile(lambda x: (x * x).sum())(X) > 0

def test_cannot_be_compiled():
    torch.compile(torch.erf)(X)

def test_wants_the_refusal():
    with pytest.raises(Exception, match="planted"):
        torch.compile(lambda x: torch.erf(x) + 1)(X)

def test_raises_only_when_compiled():
    torch.compile(lambda x: torch.erfc(x) + 1)(X)

def test_wants_the_exception_and_then_fails():
    with pytest.raises(OSError, match="planted"):
        torch.compile(lambda x: torch.erfc(x) + 2)(X)
    raise AssertionError("of the test")
"""


def test_wrong_code_fails_the_tests_that_call_it_and_no_other(workplace: Workplace) -> None:
    workplace.write("conftest.py", BROKEN_COMPILER)
    workplace.write("test_model.py", SUITE_WITH_FAULTS)
    done = run_suite(
        workplace, "--inductoscope", "--inductoscope-json=out.json", "--junitxml=junit.xml"
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "5 failed, 3 passed, 1 xfailed" in done.stdout

    found = {test["test"].partition("::")[2]: test for test in written(workplace)["tests"]}
    (wrong,) = found["test_only_looks_at_the_shape"]["findings"]
    assert (wrong["verdict"], wrong["stage"]) == ("wrong-result", "lowering")
    assert wrong["op"] == "aten.tanh.default"
    assert wrong["source"] == "test_model.py:9"
    assert wrong["kernel"].startswith("cpp_fused_")
    assert "was made again on copies of its inputs" in wrong["known_by"][0]
    assert load(Path(wrong["recording"])).compiles
    command = "inductoscope doctor -m pytest test_model.py::test_only_looks_at_the_shape"
    assert command in done.stdout
    assert "compiled code and eager differ" in done.stdout

    # Both ways to fail have the verdict in their report.
    (noticed,) = found["test_notices_it_too"]["findings"]
    assert (noticed["op"], noticed["ops"]) == ("", ["aten.tanh.default", "aten.mul.Tensor"])
    assert "one of aten.tanh.default, aten.mul.Tensor" in done.stdout
    assert found["test_is_known_to_fail"]["findings"][0]["verdict"] == "wrong-result"
    assert found["test_is_healthy"]["findings"] == []
    assert found["test_wants_the_refusal"]["findings"] == []
    assert "test_is_left_alone" not in found
    (refused,) = found["test_cannot_be_compiled"]["findings"]
    assert (refused["verdict"], refused["stage"]) == ("crash", "lowering")
    assert "planted" in refused["summary"]
    assert "at erf" in refused["summary"]
    (raised,) = found["test_raises_only_when_compiled"]["findings"]
    assert raised["verdict"] == "crash"
    assert raised["summary"] == "compiled code raised OSError: planted, too; eager does not"
    assert "twice more after the test" in raised["known_by"][0]
    wanted = found["test_wants_the_exception_and_then_fails"]
    assert wanted["findings"] == []
    assert wanted["calls"][0]["text"] == "the test expects that it raises OSError: planted, too"

    junit = (workplace.folder / "junit.xml").read_text()
    assert junit.count('<property name="inductoscope"') == 5
    # Recordings of those five, and of no other test.
    (folder,) = recordings_left(workplace)
    assert len(list(folder.iterdir())) == 5


# Without --slow there is nothing to run, and a folder that goes is an error.
PARTICULAR_SUITE = """
import pytest

def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true")

def pytest_collection_modifyitems(config, items):
    if not config.getoption("--slow"):
        items.clear()

@pytest.fixture(autouse=True, scope="session")
def kept(tmp_path_factory):
    path = tmp_path_factory.mktemp("kept")
    yield
    assert path.exists()
"""


def test_report_mode_fails_nothing_and_the_doctor_says_why(workplace: Workplace) -> None:
    """The doctor runs the test with the options of this run, also for a worker of pytest-xdist."""
    workplace.write("conftest.py", BROKEN_COMPILER + PARTICULAR_SUITE)
    workplace.write("test_model.py", SUITE_WITH_FAULTS)
    workplace.write("pytest.ini", "[pytest]\naddopts = --ff\n")
    workplace.write("click.py", "raise ImportError('this is not the click that is meant')\n")
    done = run_suite(
        workplace,
        *("--inductoscope", "--inductoscope-mode=report", "--inductoscope-doctor-quick"),
        *("--inductoscope-json=out.json", "-k", "shape or healthy", "-rA"),
        *("--slow", "--basetemp=base", "-p", "xdist", "-n", "1", "test_model.py"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    wrong = next(test for test in written(workplace)["tests"] if test["findings"])
    said = wrong["findings"][0]["doctor"]
    assert (said["verdict"], said["stage"]) == ("wrong-result", "lowering")
    assert said["culprit"]["op"] == "aten.tanh.default"
    assert "The doctor's verdict" in done.stdout


# --- a healthy suite that looks closely at torch --------------------------------------------------

HEALTHY_SUITE = """
import unittest
import warnings
import pytest
import torch
import torch._dynamo.testing
import torch._inductor.config
from torch._dynamo.utils import counters

torch.manual_seed(0)
calls = []
disk = ["full"]

@torch.library.custom_op("suite::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    calls.append(1)
    return x * 2

@double.register_fake
def _(x):
    return torch.empty_like(x)

@torch.library.custom_op("suite::write", mutates_args=())
def write(x: torch.Tensor) -> torch.Tensor:
    if disk:
        raise OSError(f"the disk is {disk.pop()}")
    return x * 3

write.register_fake(torch.empty_like)

@torch.compile
def shared(x):
    return torch.sin(x).sum(dim=-1)

@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    counters.clear()

def test_draws_random_numbers():
    out = torch.compile(lambda x: torch.nn.functional.dropout(x, 0.5))(torch.ones(64))
    assert set(out.tolist()) <= {0.0, 2.0}

def test_seeded_numbers_stay_the_same():
    noise = torch.compile(lambda x: x + torch.rand_like(x))
    torch.manual_seed(3)
    first = noise(torch.zeros(4))
    torch.manual_seed(3)
    assert torch.equal(first, noise(torch.zeros(4)))

def test_counts_compiles():
    counter = torch._dynamo.testing.CompileCounter()
    f = torch.compile(lambda x: x + 1, backend=counter)
    f(torch.ones(3)), f(torch.ones(3))
    assert counter.frame_count == 1

def test_reads_counters():
    torch.compile(lambda x: x.cos() + 1)(torch.ones(5))
    assert counters["stats"]["unique_graphs"] == 1
    looked_up = counters["inductor"]
    assert looked_up["fxgraph_cache_hit"] + looked_up["fxgraph_cache_miss"] <= 1

def test_counts_calls_of_an_operator():
    before = len(calls)
    torch.compile(lambda x: double(x) + 1)(torch.ones(3))
    assert len(calls) == before + 1

def test_patches_settings():
    with torch._inductor.config.patch(epilogue_fusion=False):
        assert torch.compile(lambda x: x.exp().sum())(torch.zeros(4)) == 4
    assert torch._inductor.config.fallback_random is False

def test_expects_an_exception():
    def f(x):
        torch._check(x.shape[0] == 3)
        return x + 1
    with pytest.raises(Exception):
        torch.compile(f, fullgraph=True)(torch.ones(4))

def test_expects_no_warnings(recwarn):
    torch.compile(lambda x: x.tan())(torch.ones(4))
    assert not [w for w in recwarn if "inductoscope" in str(w)]

def test_profiles():
    f = torch.compile(lambda x: x.sqrt())
    f(torch.ones(4))
    with torch.profiler.profile() as seen:
        f(torch.ones(4))
    assert not [e for e in seen.events() if e.name in ("aten::set_", "aten::copy_", "aten::clone")]

def test_writes_to_its_input(capsys):
    x = torch.ones(4)
    torch.compile(lambda x: x.add_(1))(x)
    assert x.tolist() == [2.0] * 4
    assert capsys.readouterr().out == ""

@pytest.mark.parametrize("size", [2, 3, 7])
def test_sizes_change(size):
    x = torch.randn(size, 4)
    torch.testing.assert_close(shared(x), torch.sin(x).sum(dim=-1))

def test_trains():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh())
    step = torch.compile(lambda x: model(x).square().mean())
    before = model[1].num_batches_tracked.item()
    step(torch.randn(6, 4)).backward()
    assert model[1].num_batches_tracked.item() == before + 1
    assert model[0].weight.grad is not None

def test_only_forward():
    model = torch.nn.Linear(4, 2)
    torch.compile(model)(torch.randn(3, 4))
    assert model.weight.grad is None

class TestOfUnittest(unittest.TestCase):
    def test_compiles(self):
        self.assertEqual(torch.compile(lambda x: x * 3)(torch.ones(2)).tolist(), [3.0, 3.0])

def test_fails_by_itself():
    assert torch.compile(lambda x: x * 5)(torch.ones(2)).tolist() == [6.0, 6.0]

def test_fails_for_as_long_as_the_disk_is_full():
    torch.compile(lambda x: write(x) + 1)(torch.ones(2))

def test_is_skipped_later():
    torch.compile(lambda x: x * 7)(torch.ones(2))
    pytest.skip("of the test")
"""


def test_a_healthy_suite_passes_as_without_the_plugin(workplace: Workplace) -> None:
    """In a worker of pytest-xdist, which hands over what it found."""
    workplace.write("test_healthy.py", HEALTHY_SUITE)
    words = ("--inductoscope", "--inductoscope-json=out.json", "-p", "xdist", "-n", "1")
    done = run_suite(workplace, *words)
    # Those that fail do so without the plugin, too.
    assert "2 failed, 16 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    seen = written(workplace)
    assert seen["totals"]["findings"] == 0
    # The test that fails is told that the compiler is not to blame.
    assert "does what eager does: 1 call of 1 graph checked" in done.stdout

    by_name = {test["test"].partition("::")[2]: test for test in seen["tests"]}
    (trained,) = by_name["test_trains"]["calls"]
    assert trained["with_gradients"]
    (forward,) = by_name["test_only_forward"]["calls"]
    assert not forward["with_gradients"]
    assert {call["verdict"] for call in by_name["test_counts_calls_of_an_operator"]["calls"]} == {
        "right"
    }
    assert {"right", "within-rounding", "not-checked"} >= {
        call["verdict"] for test in seen["tests"] for call in test["calls"]
    }
    (skipped,) = by_name["test_is_skipped_later"]["calls"]
    assert skipped["verdict"] == "right"
    reasons = seen["totals"]["not_checked"]
    assert reasons[
        "it raised OSError: the disk is full in the test, but not each time after the test"
    ]
    assert any("draws random numbers" in why for why in reasons)
    assert reasons["compiled by backend CompileCounter, not Inductor"] == 1
    assert seen["totals"]["checked"] >= 12
    assert "checked against eager in" in done.stdout
    assert recordings_left(workplace) == []


# --- when there is little to do -------------------------------------------------------------------


def test_loading_the_plugin_imports_nothing_else(workplace: Workplace) -> None:
    text = """
import sys

def test_modules():
    ours = sorted(name for name in sys.modules if name.split(".")[0] in ("inductoscope", "torch"))
    assert ours == ["inductoscope", "inductoscope.pytest_plugin", "inductoscope.version"]
"""
    workplace.write("test_modules.py", text)
    done = run_suite(workplace)
    assert "1 passed" in done.stdout, done.stdout


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert '[project.entry-points.pytest11]\ninductoscope = "inductoscope.pytest_plugin"\n' in text


def test_without_torch_it_says_so_and_changes_nothing(workplace: Workplace) -> None:
    """With the packages of pytest and of the tool, and no other."""
    names = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments", "msgspec")
    packages = workplace.folder / "packages"
    packages.mkdir()
    for name in names:
        file = Path(__import__(name).__file__ or "")
        origin = file.parent if file.name == "__init__.py" else file
        for path in (origin, *origin.parent.glob(f"{name}-*.dist-info")):
            (packages / path.name).symlink_to(path)
    (packages / "inductoscope").symlink_to(ROOT / "src" / "inductoscope")
    workplace.write("test_plain.py", "def test_plain(): pass\n")
    code = (
        f"import sys; sys.path.insert(0, {str(packages)!r}); import pytest; sys.exit(pytest.main())"
    )
    words = [*PYTEST[3:], "--inductoscope", "--inductoscope-json=out.json", "test_plain.py"]
    done = workplace.call([sys.executable, "-S", "-c", code, *words], **BARE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "inductoscope: nothing is checked: torch is not installed for" in done.stdout
    assert "1 passed" in done.stdout
    assert "torch is not installed" in written(workplace)["not_checked"]


def test_a_suite_that_compiles_nothing_or_is_only_collected(workplace: Workplace) -> None:
    workplace.write("test_plain.py", "def test_plain(): pass\n")
    done = run_suite(workplace, "--inductoscope")
    assert "no test compiled anything" in done.stdout
    collected = run_suite(workplace, "--inductoscope", "--collect-only", "-q")
    assert collected.returncode == 0
    assert "compiled" not in collected.stdout
    assert recordings_left(workplace) == []


def test_the_command_for_a_test_in_which_a_worker_died_can_be_pasted(workplace: Workplace) -> None:
    text = """
import os
import pytest

@pytest.mark.parametrize("size", [3], ids=["3 (of 4)"])
def test_dies(size):
    os.abort()
"""
    workplace.write("pytest.ini", "[pytest]\n")
    workplace.write("tests/test_model.py", text)
    command = ["env", "-C", "tests", *PYTEST, "--inductoscope", "-p", "xdist", "-n", "1"]
    done = workplace.call(command, **BARE)
    wanted = "inductoscope doctor -m pytest 'test_model.py::test_dies[3 (of 4)]'"
    assert wanted in done.stdout, done.stdout


def test_ctrl_c_leaves_the_json_file_and_nothing_else(workplace: Workplace) -> None:
    text = "def test_one(): pass\ndef test_two(): raise KeyboardInterrupt\n"
    workplace.write("test_plain.py", text)
    done = run_suite(workplace, "--inductoscope", "--inductoscope-json=out.json")
    assert done.returncode == 2
    assert written(workplace)["tests"] == []
    assert recordings_left(workplace) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--inductoscope-mode=report",), "--inductoscope-mode needs --inductoscope"),
        (("--inductoscope", "--inductoscope-calls=0"), "--inductoscope-calls 0 checks nothing"),
        (("--inductoscope", "--inductoscope-json=no/such/x"), "is in a folder that does not exist"),
        (("--inductoscope", "--inductoscope-mode=maybe"), "invalid choice: 'maybe'"),
    ],
)
def test_bad_usage_is_refused_before_any_test_runs(
    workplace: Workplace, words: tuple[str, ...], said: str
) -> None:
    workplace.write("test_plain.py", "def test_plain(): pass\n")
    done = run_suite(workplace, *words)
    assert done.returncode == 4
    assert said in done.stderr
    assert "passed" not in done.stdout
