"""Programs in which nothing is wrong with Inductor, and programs that are odd, under the doctor."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from support.programs import TOOL, Workplace
from support.waiting import wait_until

pytestmark = pytest.mark.spread

# --- what is not ----------------------------------------------------------------------------------


def test_a_healthy_model_with_gradients_is_clean(workplace: Workplace) -> None:
    workplace.write(
        "train.py",
        "import torch\n"
        "from torch import nn\n"
        "model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))\n"
        "step = torch.compile(model)\n"
        "for size in (4, 6):\n"
        "    step(torch.randn(size, 8)).square().mean().backward()\n",
    )
    found = workplace.doctor("train.py")
    assert (found.exit_code, found.verdict["verdict"]) == (0, "clean")
    assert "as in eager: " in found.names


def test_a_program_that_compares_rounding(workplace: Workplace) -> None:
    workplace.write(
        "energy.py",
        "import sys, torch\n"
        "def energy(x):\n"
        "    y = x * 1000.0 + 12345.0\n"
        "    return (y - y.mean()).sum()\n"
        "torch.manual_seed(0)\n"
        "x = torch.randn(30_000)\n"
        "sys.exit(0 if torch.equal(energy(x), torch.compile(energy)(x)) else 1)\n",
    )
    found = workplace.doctor("energy.py")
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("not-a-bug", "none")
    assert "away from float64" in found.names
    assert found.verdict["repro"] is None


def test_a_function_that_counts_what_rounding_moves(workplace: Workplace) -> None:
    """The function differs from its Python code, and with other rounding in eager, too."""
    workplace.write(
        "levels.py",
        "import sys, torch\n"
        "def levels(x):\n"
        "    up = torch.nn.functional.interpolate(\n"
        "        x.floor(), scale_factor=2, mode='bilinear', align_corners=True\n"
        "    )\n"
        "    return torch.unique_consecutive(up)\n"
        "torch.manual_seed(0)\n"
        "x = torch.randn(1, 3, 16, 16)\n"
        "print(levels(x).numel(), torch.compile(levels)(x).numel())\n"
        "sys.exit(0 if levels(x).numel() == torch.compile(levels)(x).numel() else 1)\n",
    )
    found = workplace.doctor("levels.py")
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("not-a-bug", "none")
    assert "rounded differently" in found.names


def test_a_program_that_fails_in_eager_too(workplace: Workplace) -> None:
    workplace.write(
        "wrong.py",
        "import torch\n"
        "f = torch.compile(lambda x: x * 2)\n"
        "print(f(torch.ones(3)))\n"
        "raise ValueError('the data file is missing')\n",
    )
    found = workplace.doctor("wrong.py")
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("not-a-bug", "user")
    assert "the data file is missing" in found.names


def test_errors_that_eager_raises_as_well_are_no_failure(workplace: Workplace) -> None:
    """Compiled code raises the first one as eager does; of the second, only the type differs."""
    workplace.write(
        "raises.py",
        "import torch\n"
        "@torch.compile\n"
        "def root(x):\n"
        "    return torch.linalg.cholesky(x) + 1\n"
        "@torch.compile\n"
        "def row(x, where):\n"
        "    return x[where] + 1\n"
        "calls = (lambda: root(-torch.eye(3)), lambda: row(torch.ones(3), torch.tensor([9])))\n"
        "for call in calls:\n"
        "    try:\n"
        "        call()\n"
        "    except (RuntimeError, IndexError) as error:\n"
        "        print('refused:', error)\n",
    )
    found = workplace.doctor("raises.py")
    assert (found.exit_code, found.verdict["verdict"]) == (0, "clean")
    assert "other-error: eager raises IndexError" in found.names


def test_a_call_that_takes_what_was_captured_for_another(workplace: Workplace) -> None:
    """As the program asks for: no guard on global variables."""
    workplace.write(
        "scaled.py",
        "import torch\n"
        "unguarded = {'guard_filter_fn': torch.compiler.skip_guard_on_globals_unsafe}\n"
        "def scaled(x):\n"
        "    return torch.relu(x) * SCALE\n"
        "compiled = torch.compile(scaled, options=unguarded)\n"
        "x = torch.arange(4.0)\n"
        "for SCALE in (2.0, 2.0, 3.0):\n"
        "    torch.testing.assert_close(compiled(x), scaled(x))\n",
    )
    found = workplace.doctor("scaled.py")
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("not-inductor", "dynamo")
    assert found.verdict["confidence"] == "proven"
    culprit = found.verdict["culprit"]
    assert (culprit["function"], culprit["config"]) == ("scaled", "guards")
    assert "G_SCALE_" in found.names  # The other call's own capture has it as an input.


def test_a_call_that_differs_in_a_program_that_ends_well(workplace: Workplace) -> None:
    """The same without an assertion: Dynamo's capture for the first call served the second."""
    workplace.write(
        "shifted.py",
        "import torch\n"
        "unguarded = {'guard_filter_fn': torch.compiler.skip_guard_on_globals_unsafe}\n"
        "@torch.compile(options=unguarded)\n"
        "def shifted(x):\n"
        "    return torch.relu(x) + SHIFT\n"
        "for SHIFT in (2.0, 3.0):\n"
        "    print(shifted(torch.arange(4.0)))\n",
    )
    found = workplace.doctor("shifted.py")
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("not-inductor", "dynamo")
    assert found.verdict["culprit"]["config"] == "guards"
    assert "with a new capture for each call, call 2 is right" in found.names


def test_a_capture_with_dynamic_shapes_that_is_wrong_is_no_matter_of_guards(
    workplace: Workplace,
) -> None:
    """With other sizes, Dynamo captures again, with symbols that are never the same object."""
    workplace.write(
        "same.py",
        "import torch\n"
        "@torch.compile\n"
        "def scaled(x):\n"
        "    return x * (1.0 if x.shape[0] is x.shape[1] else 2.0)\n"
        "for size in (4, 5, 6):\n"
        "    x = torch.ones(size, size)\n"
        "    torch.testing.assert_close(scaled(x), x)\n",
    )
    assert workplace.run_plain("same.py").exit_code == 1
    found = workplace.doctor("same.py")
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("not-inductor", "dynamo")
    assert found.verdict["culprit"]["config"] != "guards"


def test_a_warning_that_only_eager_gives_is_a_note(workplace: Workplace) -> None:
    """The variance of one row. Where compiled code gives a warning does not count."""
    workplace.write(
        "spread.py",
        "import warnings, torch\n"
        "@torch.compile\n"
        "def spread(x):\n"
        "    warnings.warn('one row')\n"
        "    return torch.nn.functional.softmax(x.var(0))\n"
        "for call in range(2):\n"
        "    print(spread(torch.ones(1, 4)))\n",
    )
    found = workplace.doctor("spread.py")
    assert (found.exit_code, found.verdict["verdict"]) == (0, "clean")
    (note,) = found.verdict["notes"]
    assert (note["aspect"], note["where"]) == ("warning", "spread")
    assert "var(): degrees of freedom is <= 0" in note["text"]
    assert note["text"].endswith("(spread.py:5)")
    plain = workplace.run_plain("spread.py")
    printed = (workplace.folder / "examination" / "doctor" / "output.txt").read_text()
    assert sorted(printed.splitlines()) == sorted((plain.stdout + plain.stderr).splitlines())


def test_a_branch_on_data_is_dynamos_and_its_function_is_the_reproducer(
    workplace: Workplace,
) -> None:
    workplace.write(
        "branch.py",
        "import torch\n"
        "LIMIT = 0.5\n"
        "def halve(x):\n"
        "    return x / 2\n"
        "def refine(x):\n"
        "    if x.norm() < LIMIT:\n"
        "        return x\n"
        "    return halve(x)\n"
        "torch.compile(refine, fullgraph=True)(torch.randn(4))\n",
    )
    found = workplace.doctor("branch.py")
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("not-inductor", "dynamo")
    assert found.verdict["culprit"]["source"].endswith("branch.py:6")
    assert found.verdict["repro"]["verified"]
    assert "LIMIT = 0.5" in Path(found.verdict["repro"]["path"]).read_text()


def test_a_side_effect_that_dynamo_loses_is_not_rounding(workplace: Workplace) -> None:
    """A method appends to a list that only its class's closure has; rounding differs as well."""
    workplace.write(
        "log.py",
        "import sys, torch\n"
        "def counted(seen):\n"
        "    class Scaler:\n"
        "        def apply(self, x):\n"
        "            seen.append(x.shape[0])\n"
        "            return torch.tanh(x) * 0.5 + x.mean()\n"
        "    return lambda x: Scaler().apply(x).sum()\n"
        "torch.manual_seed(0)\n"
        "x, seen = torch.randn(5), []\n"
        "compiled = torch.compile(counted(seen))\n"
        "for call in range(3):\n"
        "    compiled(x)\n"
        "print(seen)\n"
        "sys.exit(0 if len(seen) == 3 else 1)\n",
    )
    found = workplace.doctor("log.py")
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("not-inductor", "dynamo")


# --- odd programs ---------------------------------------------------------------------------------


def test_a_program_without_torch_compile(workplace: Workplace) -> None:
    workplace.write("plain.py", "import torch\nprint(torch.ones(2).sum())\n")
    found = workplace.doctor("plain.py")
    assert (found.exit_code, found.verdict["verdict"]) == (4, "not-checked")
    assert "Nothing was compiled, so nothing was checked" in found.verdict["summary"]


@pytest.mark.smoke
def test_arguments_and_standard_input_reach_every_run(workplace: Workplace) -> None:
    workplace.write(
        "asks.py",
        "import sys, torch\n"
        "assert sys.argv[1:] == ['--epochs', '2']\n"
        "assert sys.stdin.read() == 'seven\\n'\n"
        "print(torch.compile(lambda x: x + 1)(torch.ones(2)))\n",
    )
    done = workplace.call(
        [*TOOL, "doctor", "--json", "-", "asks.py", "--epochs", "2"], given="seven\n"
    )
    assert '"verdict": "clean"' in done.stdout
    assert done.returncode == 0


def test_a_function_that_takes_long_to_trace_does_not_hang(workplace: Workplace) -> None:
    """Dynamo records nothing else for longer than it takes to believe a hang."""
    workplace.write(
        "long.py",
        "import torch\n"
        "@torch.compile\n"
        "def counted(x):\n"
        "    total = 0\n"
        "    for number in range(40_000):\n"
        "        total = (total + number) % 7\n"
        "    return x * total\n"
        "print(counted(torch.ones(2)))\n",
    )
    found = workplace.doctor("--stall", "3", "long.py")
    assert found.verdict["verdict"] == "clean"


def test_an_instruction_that_dynamo_never_ends_is_a_hang(workplace: Workplace) -> None:
    workplace.write(
        "never.py",
        "import dis, torch\n"
        "from torch._dynamo import symbolic_convert\n"
        "def endless(self, instruction):\n"
        "    while True:\n"
        "        instruction.arg\n"
        "symbolic_convert.InstructionTranslator.dispatch_table[dis.opmap['BINARY_OP']] = endless\n"
        "torch.compile(lambda x: x + 1)(torch.ones(2))\n",
    )
    found = workplace.doctor("--stall", "3", "never.py")
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("hang", "dynamo")
    assert found.verdict["culprit"]["function"] == "endless"


def test_ctrl_c_ends_with_what_is_known_and_leaves_nothing_running(workplace: Workplace) -> None:
    workplace.write("forever.py", "import time, torch\ntime.sleep(1000)\n")
    child = subprocess.Popen(
        [*TOOL, "doctor", "--output", "out", "--json", "verdict.json", "forever.py"],
        cwd=workplace.folder,
        env=workplace.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert wait_until(lambda: list((workplace.folder / "out" / "streams").glob("*.jsonl")))
    program = _children(child.pid)
    assert program
    child.send_signal(signal.SIGINT)
    output, _ = child.communicate(timeout=60)
    assert "The examination is not complete" in output
    assert f"\n  inductoscope doctor --resume {workplace.folder / 'out'}\n" in output
    assert child.returncode == 4, "nothing was checked yet"
    assert wait_until(lambda: not any(Path("/proc", pid).exists() for pid in program))


def _children(pid: int) -> list[str]:
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue
            if parent == str(pid):
                found.append(path.name)
    return found


def test_an_examination_goes_on_in_its_folder(workplace: Workplace) -> None:
    """With the command and the input that it was begun with, from where it was begun."""
    workplace.write("asks.py", "import time\nprint(input(), flush=True)\ntime.sleep(1000)\n")
    limit = ("--time-limit", "2", "--json", "-")
    command = [*TOOL, "doctor", "--output", "out", *limit, "asks.py", "--data", "x"]
    assert workplace.call(command, given="seven").returncode == 4
    again = workplace.call([*TOOL, "doctor", "--resume", "out", *limit])
    assert (again.returncode, '"verdict": "not-checked"' in again.stdout) == (4, True)
    printed = sorted((workplace.folder / "out").glob("doctor/**/output.txt"))
    assert [path.read_text() for path in printed] == ["seven\n"] * 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--resume", "out", "--output", "other"], "Remove --output"),
        (["--resume", "out"], "The command holds secrets, which are not recorded"),
    ],
    ids=["another place", "a secret"],
)
def test_an_examination_that_cannot_go_on(
    workplace: Workplace, words: list[str], said: str
) -> None:
    workplace.write("plain.py", "import time\ntime.sleep(1000)\n")
    limit = ("--time-limit", "2")
    workplace.call([*TOOL, "doctor", "--output", "out", *limit, "plain.py", "--token", "1234"])
    done = workplace.call([*TOOL, "doctor", *words])
    assert (done.returncode, said in done.stderr) == (2, True)


def test_bad_usage_says_what_to_do(workplace: Workplace) -> None:
    done = workplace.call([*TOOL, "doctor", "missing.py"])
    assert done.returncode == 2
    assert "missing.py does not exist" in done.stderr
