"""`inductoscope run` on hostile programs and on several processes at once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from inductoscope.model.fold import load
from support.programs import Outcome, Workplace

pytestmark = pytest.mark.spread

# --- hostile programs -----------------------------------------------------------------------------

HOSTILE = {
    "deletes its working directory": "import os, shutil; shutil.rmtree(os.getcwd())",
    "closes its standard error": "import os; os.close(2)",
    "sets an excepthook of its own": (
        "import sys; sys.excepthook = lambda *e: print('caught', e[0].__name__)\n"
        "import torch; torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2))\n"
        "raise KeyError('own')"
    ),
    "closes every descriptor": "import os; os.closerange(3, 300)",
    "changes the folder": "import os; os.chdir('/')",
    "clears its environment": "import os; os.environ.clear()",
}

COMPILE = """
import torch
result = torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
print(result.tolist())
"""


@pytest.fixture(scope="module")
def plain_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Every hostile program without the tool."""
    folder = tmp_path_factory.mktemp("plain")
    place = Workplace(folder, folder / "cache")
    scripts = [place.write(f"hostile_{n}.py", script(what)) for n, what in enumerate(HOSTILE)]
    return dict(zip(HOSTILE, place.run_plain_in_forks(scripts), strict=True))


def script(what: str) -> str:
    # torch is imported first: what follows must not take the recording down with it.
    return "import torch, torch._dynamo\n" + HOSTILE[what] + "\n" + COMPILE


@pytest.mark.parametrize("what", HOSTILE)
def test_a_program_that_goes_on_undisturbed_and_is_recorded(
    workplace: Workplace, tmp_path: Path, plain_runs: dict[str, Outcome], what: str
) -> None:
    path = tmp_path / "script.py"
    path.write_text(script(what))
    recorded = workplace.run(str(path), options=("--output", str(tmp_path / "kept")))
    plain = plain_runs[what]
    assert (recorded.stdout, recorded.exit_code) == (plain.stdout, plain.exit_code)
    assert load(tmp_path / "kept").compiles, recorded.stderr


@pytest.mark.smoke
def test_a_fork_writes_a_stream_of_its_own(workplace: Workplace) -> None:
    workplace.write(
        "script.py",
        "import os, torch\n"
        "child = os.fork()\n"
        "torch.compile(lambda x: x + (2 if child else 3), backend='eager')(torch.ones(1))\n"
        "if child: os.waitpid(child, 0)",
    )
    outcome = workplace.run("script.py")
    assert outcome.exit_code == 0, outcome.stderr
    recording = outcome.recording
    assert len({compile_.process for compile_ in recording.compiles}) == 2
    assert len({process.pid for process in recording.processes if process.torch}) >= 1


def test_a_full_disk_stops_the_recording_and_not_the_program(workplace: Workplace) -> None:
    """The size limit on files stands for a full disk: writing fails in the middle of a line."""
    workplace.write(
        "script.py",
        "import resource, torch\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))\n"
        "for n in range(6):\n"
        "    torch._dynamo.reset()\n"
        "    print(torch.compile(lambda x: x + n, backend='eager')(torch.ones(1)).item())",
    )
    outcome = workplace.run("script.py")
    assert outcome.exit_code == 0
    assert outcome.stdout.split() == ["1.0", "2.0", "3.0", "4.0", "5.0", "6.0"]
    assert "stopped recording" in outcome.stderr
    assert outcome.recording.compiles


def test_a_time_limit_of_the_programs_own_is_never_swallowed(workplace: Workplace) -> None:
    """A signal handler may raise while a hook is at work; what it raises is the program's."""
    workplace.write(
        "script.py",
        "import signal, torch\n"
        "from inductoscope.inside.scope import SCOPE\n"
        "def limit(*_): raise TimeoutError('time is up')\n"
        "signal.signal(signal.SIGALRM, limit)\n"
        "def slow_hook():\n"
        "    signal.setitimer(signal.ITIMER_REAL, 0.01)\n"
        "    while True: pass\n"
        "try:\n    SCOPE.guard(slow_hook)\n"
        "except TimeoutError as error:\n    print(error)",
    )
    assert workplace.run("script.py").stdout == "time is up\n"


# --- several processes ----------------------------------------------------------------------------


def test_every_rank_of_torchrun_writes_its_own_stream(workplace: Workplace) -> None:
    workplace.write(
        "script.py",
        "import os, torch\n"
        "rank = int(os.environ['RANK'])\n"
        "torch.compile(lambda x: x + rank, backend='eager')(torch.ones(1))\n",
    )
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    outcome = workplace.run(torchrun, "--nproc-per-node", "2", "script.py")
    assert outcome.exit_code == 0, outcome.stderr
    recording = outcome.recording
    ranks = {process.stream: process.rank for process in recording.processes}
    assert sorted(ranks[compile_.process] for compile_ in recording.compiles) == ["0", "1"]


def test_pytest_as_the_command(workplace: Workplace) -> None:
    workplace.write(
        "test_model.py",
        "import torch\n"
        "def test_compiled():\n"
        "    assert torch.compile(lambda x: x + 1, backend='eager')(torch.ones(1)).item() == 2\n",
    )
    pytest_program = str(Path(sys.executable).with_name("pytest"))
    outcome = workplace.run(pytest_program, "-q", "-p", "no:cacheprovider", "test_model.py")
    assert outcome.exit_code == 0, outcome.stdout
    assert "1 passed" in outcome.stdout
    assert len(outcome.recording.compiles) == 1


def test_a_missing_private_name_switches_one_view_off_and_says_so(workplace: Workplace) -> None:
    """A torch of the future: a function that a hook needs is gone."""
    planted = workplace.plant("torch._inductor.debug", "del m.log_ir_pre_fusion")
    workplace.write("script.py", "import torch, torch._inductor.debug")

    outcome = workplace.run("script.py", **planted)

    views = [view for process in outcome.recording.processes for view in process.views_off]
    assert len(views) == 1, outcome.stderr
    assert "torch._inductor.debug.log_ir_pre_fusion" in views[0]
    assert "Not recorded: scheduler nodes, buffers and loop bodies" in outcome.stderr


def test_no_recorded_variable_is_outside_the_list(workplace: Workplace) -> None:
    workplace.write("script.py", "import torch")
    secrets = {"SECRET_TOKEN": "s3cret-1", "AWS_KEY": "s3cret-2", "TORCH_API_TOKEN": "s3cret-3"}
    outcome = workplace.run("script.py", **secrets)
    text = "".join(p.read_text() for p in outcome.recording_path.rglob("*") if p.is_file())
    assert "s3cret" not in text
    assert "TORCHINDUCTOR_CACHE_DIR" in text


def test_a_program_that_outlived_its_recording_is_not_called_dead(workplace: Workplace) -> None:
    """The stream ends inside a stage because the disk was full, not because the process died."""
    workplace.write(
        "script.py",
        "import resource, torch\n"
        "def capped(graph, inputs):\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (500, resource.RLIM_INFINITY))\n"
        "    return graph\n"
        "print(torch.compile(lambda x: x + 1, backend=capped)(torch.ones(1)).item())",
    )
    outcome = workplace.run("script.py")
    assert (outcome.stdout, outcome.exit_code) == ("2.0\n", 0)
    assert "stopped recording" in outcome.stderr
    assert "problem:" not in outcome.stderr


def test_an_interrupted_compile_is_a_note_that_says_where_it_was(workplace: Workplace) -> None:
    """An endless fusion loop, ended with Ctrl-C; it must not have filled the disk either."""
    workplace.write(
        "script.py",
        "import os, signal, torch\n"
        "from torch._inductor.scheduler import Scheduler\n"
        "def endless(self, nodes):\n"
        "    for n in range(10**9):\n"
        "        if n == 300: os.kill(os.getpid(), signal.SIGINT)\n"
        "        self.fuse_nodes_once(nodes, is_reorder_round=False)\n"
        "Scheduler.fuse_nodes = endless\n"
        "torch.compile(lambda x: (x.sum(0), x.t() + 1))(torch.ones(4, 4))",
    )
    outcome = workplace.run("script.py")
    assert outcome.exit_code == -2
    assert "was interrupted in stage scheduler" in outcome.stderr
    assert "stopped by SIGINT, while it compiled" in outcome.stderr
    assert "problem:" not in outcome.stderr
    rounds = {pair.round for graph in outcome.recording.graphs for pair in graph.pairs}
    assert max(rounds) == 64
