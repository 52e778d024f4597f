"""A search that uses a Dask cluster: a real scheduler, real workers, one of them killed."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.dask_cluster import DaskCluster, running_cluster
from support.programs import ONE_PROOF, TOOL, Workplace

pytest.importorskip("distributed")

# A hyperbolic tangent among other operations: its generated code computes something else.
PROGRAM = """
import torch

@torch.compile
def step(x, y):
    a = torch.relu(x) + y
    b = torch.tanh(a * 2.0) - torch.sigmoid(y)
    return (b / (1.0 + a.abs())).sum(1)

step(torch.randn(8, 24), torch.randn(8, 24))
"""
CPP = "torch._inductor.codegen.cpp"
WRONG_TANH = """
m.CppVecOverrides.tanh = staticmethod(lambda x: f"{x}.sin()")
m.CppOverrides.tanh = staticmethod(lambda x: f"std::sin({x})")
"""
# The same fault made by the program itself: a worker knows nothing of it.
OWN_FAULT = f"import {CPP} as m\n{WRONG_TANH}\n{PROGRAM}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), workers=2) as found:
        yield found


def children_of(worker: subprocess.Popen[bytes]) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
    return []


def test_a_worker_that_is_killed_changes_nothing(
    workplace: Workplace, cluster: DaskCluster, tmp_path: Path
) -> None:
    workplace.write("step.py", PROGRAM)
    planted = workplace.plant(CPP, WRONG_TANH)
    options = (*ONE_PROOF, "--no-workaround")
    doomed = cluster.add_worker()
    command = [*TOOL, "doctor", "--executor", cluster.address, *options]
    child = subprocess.Popen(
        [*command, "--output", "spread", "--json", "spread.json", "step.py"],
        cwd=workplace.folder,
        env=workplace.environment(**planted),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None
    lines = []
    for line in child.stderr:
        lines.append(line)
        if "searching with 3 workers" in line:
            doomed.kill()
    assert child.wait() == 1, "".join(lines)
    assert doomed.wait() == -9, "".join(lines)
    spread = json.loads((workplace.folder / "spread.json").read_text())
    # As on one machine, in test_answers.py.
    assert (spread["verdict"], spread["stage"]) == ("wrong-result", "codegen")
    assert (spread["culprit"]["op"], spread["confidence"]) == ("aten.tanh.default", "proven")
    assert (spread["repro"]["verified"], spread["repro"]["nodes"]) == (True, 1)
    # Two of three workers were left, and nothing had to be tried here.
    assert "is tried here" not in "".join(lines)
    # What was loaded for the search is gone from the workers that live on.
    assert [children_of(worker) for worker in cluster.workers[:2]] == [[], []]


def test_if_all_workers_die_the_search_goes_on_here(workplace: Workplace, tmp_path: Path) -> None:
    workplace.write("step.py", PROGRAM)
    planted = workplace.plant(CPP, WRONG_TANH)
    with running_cluster(tmp_path, workers=1) as cluster:
        command = [*TOOL, "doctor", "--executor", cluster.address, *ONE_PROOF, "--no-workaround"]
        child = subprocess.Popen(
            [*command, "--output", "spread", "--json", "spread.json", "step.py"],
            cwd=workplace.folder,
            env=workplace.environment(**planted),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        lines = []
        for line in child.stderr or ():
            lines.append(line)
            if "searching with 1 worker" in line:
                cluster.workers[0].kill()
        assert child.wait() == 1, "".join(lines)
    found = json.loads((workplace.folder / "spread.json").read_text())
    assert (found["stage"], found["repro"]["verified"]) == ("codegen", True)
    assert "no worker is left" in "".join(lines)


def test_workers_that_do_not_show_the_failure_are_not_asked(
    workplace: Workplace, cluster: DaskCluster
) -> None:
    workplace.write("step.py", OWN_FAULT)
    options = ("--executor", cluster.address, *ONE_PROOF, "--no-workaround")
    found = workplace.doctor("step.py", options=options)
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("wrong-result", "codegen")
    assert "is not asked: there it does not fail" in found.stderr
    assert "the search stays on this machine" in found.stderr


def test_a_worker_with_another_torch_is_refused_unless_asked_for(
    workplace: Workplace, cluster: DaskCluster, tmp_path: Path
) -> None:
    about = tmp_path / "torch-9.9.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9.0\n")
    other = cluster.add_worker(PYTHONPATH=str(tmp_path))
    try:
        workplace.write("well.py", "print('well')")
        call = [*TOOL, "doctor", "--executor", cluster.address]
        refused = workplace.call([*call, "well.py"])
        assert refused.returncode == 3
        assert "has torch 9.9.0 instead of" in refused.stderr
        assert "--any-worker" in refused.stderr
        accepted = workplace.call([*call, "--any-worker", "well.py"])
        assert "9.9.0" not in accepted.stderr
        assert accepted.returncode == 4, "nothing was compiled"
    finally:
        other.terminate()
        other.wait(timeout=30)


@pytest.mark.parametrize(
    ("address", "exit_code", "text"),
    [
        ("dask://127.0.0.1:9", 3, "No Dask scheduler answers at dask://127.0.0.1:9."),
        ("127.0.0.1:8786", 2, "Write dask://HOST:PORT"),
        ("ray://127.0.0.1:8786", 2, "Write dask://HOST:PORT"),
    ],
)
def test_an_address_where_nothing_is(
    workplace: Workplace, address: str, exit_code: int, text: str
) -> None:
    workplace.write("well.py", "print('well')")
    found = workplace.call([*TOOL, "doctor", "--executor", address, "well.py"])
    assert found.returncode == exit_code
    assert text in found.stderr
    assert "well" not in found.stdout, "nothing was begun"


def test_a_scheduler_without_workers(workplace: Workplace, tmp_path: Path) -> None:
    workplace.write("well.py", "print('well')")
    with running_cluster(tmp_path, workers=0) as empty:
        found = workplace.call([*TOOL, "doctor", "--executor", empty.address, "well.py"])
    assert found.returncode == 3
    assert "has no worker" in found.stderr


def test_without_dask_it_says_what_to_install(workplace: Workplace) -> None:
    workplace.write("well.py", "print('well')")
    without = workplace.write("hidden/distributed.py", "raise ImportError('it is not here')")
    environment = {"PYTHONPATH": os.pathsep.join([str(without.parent)])}
    call = [*TOOL, "doctor", "--executor", "dask://127.0.0.1:8786", "well.py"]
    found = workplace.call(call, **environment)
    assert found.returncode == 2
    assert "pip install 'inductoscope[cluster]'" in found.stderr
