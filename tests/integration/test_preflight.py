"""Ranks compiled on one machine: what is predicted happens with real ranks, and nothing else is."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from support.json_schema import violations
from support.programs import TOOL, Workplace
from support.rank_jobs import GPU_JOB, Flown, preflight, real_ranks
from support.running import is_running
from support.waiting import wait_until


def sides(flown: Flown) -> list[tuple[list[int], str]]:
    (first, *_) = flown.data["predictions"]
    return [(side["ranks"], side["call"]) for side in first["sides"]]


with_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="kernels for a GPU need Triton"
)


def on_absent_gpus(workplace: Workplace, fault: str, *options: str) -> Flown:
    target = ("--target", "cuda:90", *options)
    return preflight(workplace, 2, fault, options=target, job=GPU_JOB)


# --- faults, each confirmed with real ranks -------------------------------------------------------


def test_ranks_that_call_collectives_in_another_order_hang(workplace: Workplace) -> None:
    flown = preflight(workplace, 2, "order", "aot_eager")
    assert flown.exit_code == 1, flown.stdout + flown.stderr
    assert flown.data["verdict"] == "hang predicted"
    assert violations("preflight", flown.data) == []
    assert {call.split()[0] for _, call in sides(flown)} == {"allreduce", "all_gather_into_tensor"}
    # Both what was called and what is in the compiled graphs shows it.
    assert {one["how"].split()[0] for one in flown.data["predictions"]} == {"called", "in"}
    assert real_ranks(workplace, 2, "order", "aot_eager") != [0, 0]


def test_a_collective_of_the_first_rank_alone_hangs(workplace: Workplace) -> None:
    flown = preflight(workplace, 3, "first", "eager")
    assert flown.exit_code == 1, flown.stdout + flown.stderr
    assert flown.data["verdict"] == "hang predicted"
    (most, odd) = sides(flown)
    assert (most[0], odd[0]) == ([1, 2], [0])
    assert "job.py:" in odd[1]
    assert "are not real" in flown.stdout  # What fake collectives cannot tell.
    assert real_ranks(workplace, 3, "first", "eager") != [0, 0, 0]


def test_different_sizes_are_a_mismatch(workplace: Workplace) -> None:
    flown = preflight(workplace, 2, "shapes", "eager")
    assert flown.exit_code == 1, flown.stdout + flown.stderr
    assert flown.data["verdict"] == "mismatch predicted"
    assert {call.partition(" (")[0] for _, call in sides(flown)} == {
        "allreduce float32 x 8",
        "allreduce float32 x 16",
    }
    assert real_ranks(workplace, 2, "shapes", "eager") != [0, 0]


@pytest.mark.parametrize(
    ("fault", "verdict", "calls"),
    [
        ("unreceived", "hang predicted", ["send float32 x 8", "does not receive it"]),
        ("no room", "mismatch predicted", ["send float32 x 8", "recv float32 x 4"]),
        ("both send", "hang predicted", ["send float32 x 8", "send float32 x 8"]),
    ],
)
def test_messages_that_do_not_meet(
    workplace: Workplace, fault: str, verdict: str, calls: list[str]
) -> None:
    flown = preflight(workplace, 2, fault, "eager")
    assert (flown.exit_code, flown.data["verdict"]) == (1, verdict), flown.stdout + flown.stderr
    assert violations("preflight", flown.data) == []
    assert [call.partition(" (job.py:")[0] for _, call in sides(flown)] == calls
    assert real_ranks(workplace, 2, fault, "eager") != [0, 0]


def test_a_branch_that_compiles_another_graph_is_found_and_no_hang_is_predicted(
    workplace: Workplace,
) -> None:
    flown = preflight(workplace, 3, "branch", "aot_eager")
    assert flown.exit_code == 1, flown.stdout + flown.stderr
    assert flown.data["verdict"] == "ranks differ"
    odd = flown.data["ranks"]["odd"][0]
    assert (odd["ranks"], odd["kind"]) == ([2], "graph")
    assert "tanh" in odd["first_line"]["here"]
    assert real_ranks(workplace, 3, "branch", "aot_eager") == [0, 0, 0]


@with_triton
def test_a_branch_for_gpus_is_found_without_a_gpu(workplace: Workplace) -> None:
    flown = on_absent_gpus(workplace, "branch")
    assert flown.exit_code == 1, flown.stdout + flown.stderr
    assert (flown.data["verdict"], flown.data["target"]) == ("hang predicted", "cuda:90")
    called = [(ranks, call.split()[0]) for ranks, call in sides(flown)]
    assert called == [([0], "all_reduce"), ([1], "all_gather_into_tensor")]


# --- healthy programs -----------------------------------------------------------------------------


def test_ranks_in_groups_of_their_own_are_clean(workplace: Workplace) -> None:
    """Ranks 2 and 3 call a collective more than ranks 0 and 1 do, in a group of their own."""
    output = workplace.folder / "kept"
    flown = preflight(workplace, 4, "groups", "eager", options=("--output", str(output)))
    assert (flown.exit_code, flown.data["verdict"]) == (0, "clean"), flown.stdout + flown.stderr
    assert flown.data["backend"] == "gloo"
    assert flown.data["headline"].endswith("; their messages meet")
    assert [run["collectives"] for run in flown.data["runs"]] == [3, 3, 4, 4]
    assert (output / "rank_3" / "output.txt").read_text().endswith("done\n")


@with_triton
def test_equal_ranks_on_absent_gpus_are_clean(workplace: Workplace) -> None:
    output = workplace.folder / "kept"
    flown = on_absent_gpus(workplace, "none", "--output", str(output))
    assert (flown.exit_code, flown.data["verdict"]) == (0, "clean"), flown.stdout + flown.stderr
    (trace,) = (output / "rank_1" / "trace").glob("*.log")
    assert "triton_" in trace.read_text()  # It was compiled for a GPU, and this rank had one.
    assert (output / "rank_1" / "output.txt").read_text().endswith("cuda:1 cuda:1\n")


HEALTHY = """
import torch, torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
sizes = [{"width": 4, "notes": "x" * 99}] if rank == 0 else [None]
dist.broadcast_object_list(sizes, src=0)
mine, all_of_them = [None], [None] * world
dist.scatter_object_list(mine, ["first", "second"] if rank == 0 else None, src=0)
dist.all_gather_object(all_of_them, "x" * rank)
dist.gather_object("x" * rank, all_of_them if rank == 0 else None, dst=0)
print("got", sizes[0]["width"], mine[0], all_of_them)

def layer():
    return torch.nn.Linear(sizes[0]["width"], 2)

for model in (DistributedDataParallel(layer()), fully_shard(layer())):
    model(torch.ones(2, 4)).sum().backward()

@torch.compile(backend="aot_eager", dynamic=False)
def step(x):
    return funcol.all_reduce(x.mean(), "sum", dist.group.WORLD)

for batch in (8, 7 if rank == 1 else 8):
    step(torch.ones(batch))

whole = torch.compile(DistributedDataParallel(layer()), backend="aot_eager")
for _ in range(2):  # The second forward rebuilds buckets, which calls collectives.
    whole(torch.ones(2, 4)).sum().backward()
"""


def test_wrapped_models_objects_and_a_last_short_batch_are_no_fault(workplace: Workplace) -> None:
    script = workplace.write("healthy.py", HEALTHY)
    output = workplace.folder / "kept"
    words = ("--world", "2", "--quiet", "--json", "found.json", "--output", str(output))
    done = workplace.call([*TOOL, "preflight", *words, str(script)])
    found = json.loads((workplace.folder / "found.json").read_text())
    assert (found["predictions"], found["verdict"]) == ([], "ranks differ"), done.stdout
    assert not found["ranks"]["problem"]
    # The second graph, for the short batch; not what is called.
    assert {one["decision"].split()[0] for one in found["ranks"]["splits"]} == {"0/1"}
    assert "got 4 first ['', '']" in found["runs"][0]["output"]
    assert "got 4 second ['x', 'x']" in found["runs"][1]["output"]
    calls = (output / "rank_1" / "collectives.jsonl").read_text()
    assert '"all_gather_object"' in calls
    assert '"broadcast_object_list root 0"' in calls
    assert not (output / "objects").exists()
    (trace,) = (output / "rank_1" / "trace").glob("*.log")
    compiled = set(re.findall(r'"co_filename": "([^"]+)"', trace.read_text()))
    assert str(script) in compiled
    # In the job, C++ stands where the tool listens.
    assert [file for file in compiled if "inductoscope/inside" in file] == []


def test_a_program_without_ranks_is_said_to_be_that(workplace: Workplace) -> None:
    script = workplace.write("plain.py", "print('hello')\n")
    done = workplace.call([*TOOL, "preflight", "--world", "2", str(script)])
    assert done.returncode == 4, done.stderr
    assert "it does not use torch.distributed" in " ".join(done.stdout.split())


# --- programs that fail, hang or are interrupted --------------------------------------------------


def test_a_rank_that_fails_alone_is_found(workplace: Workplace) -> None:
    text = "import os\nif os.environ['RANK'] == '2': raise ValueError('no shard')\n"
    script = workplace.write("fails.py", text)
    done = workplace.call([*TOOL, "preflight", "--world", "4", str(script)])
    assert done.returncode == 1, done.stderr
    assert "the program fails as rank 2" in done.stdout
    assert "ValueError: no shard" in done.stdout


def test_a_program_that_fails_as_every_rank_could_not_be_checked(workplace: Workplace) -> None:
    script = workplace.write("fails.py", "raise SystemExit(5)\n")
    done = workplace.call([*TOOL, "preflight", "--world", "2", str(script)])
    assert done.returncode == 4
    assert "nothing could be compared" in done.stdout


def test_what_ranks_called_before_they_all_failed_is_compared(workplace: Workplace) -> None:
    text = (
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "dist.barrier() if dist.get_rank() else dist.all_reduce(torch.ones(2))\n"
        "raise SystemExit(5)\n"
    )
    script = workplace.write("fails.py", text)
    done = workplace.call([*TOOL, "preflight", "--world", "2", str(script)])
    assert done.stdout.startswith("hang predicted"), done.stdout
    assert done.returncode == 1


def test_a_rank_that_takes_too_long_is_ended(workplace: Workplace) -> None:
    text = "import os, time\nif os.environ['RANK'] == '1': time.sleep(600)\n"
    script = workplace.write("sleeps.py", text)
    done = workplace.call(
        [*TOOL, "preflight", "--world", "3", "--ranks", "0,1", "--timeout", "1", str(script)]
    )
    assert done.returncode == 1
    assert "rank 1: not done after 1 s" in " ".join(done.stdout.split())
    assert "2 of 3 ranks were run" in " ".join(done.stdout.split())


SLEEPER = (
    "import os, subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "open(f'pids_{os.environ[\"RANK\"]}', 'w').write(f'{os.getpid()} {child.pid} ')\n"
    "if os.environ['RANK'] == '0': child.kill(); sys.exit()\n"
    "time.sleep(600)\n"
)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_behind_when_it_is_interrupted(
    workplace: Workplace, number: signal.Signals
) -> None:
    script = workplace.write("sleeper.py", SLEEPER)
    tool = subprocess.Popen(
        [*TOOL, "preflight", "--world", "3", "--jobs", "2", str(script)],
        cwd=workplace.folder,
        env=workplace.environment(TMPDIR=str(workplace.folder)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    files = [workplace.folder / f"pids_{rank}" for rank in (1, 2)]
    assert wait_until(lambda: all(f.exists() and f.read_text().endswith(" ") for f in files))
    os.kill(tool.pid, number)
    tool.communicate(timeout=60)
    assert tool.returncode == 128 + number
    pids = [int(word) for file in files for word in file.read_text().split()]
    assert wait_until(lambda: not any(map(is_running, pids)), 10)
    assert list(workplace.folder.glob("inductoscope-*")) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--world", "1", "x.py"), "Invalid value for '--world'"),
        (("--world", "4", "--ranks", "0,4", "x.py"), "ranks are 0 to 3"),
        (("--world", "4", "--ranks", "1", "x.py"), "nothing to compare it with"),
        (("--world", "4", "--ranks", "a", "x.py"), "'a' is no rank"),
        (("--world", "4", "torchrun", "x.py"), "torchrun starts the ranks itself"),
        (("--world", "4"), "Nothing to run"),
        (("--world", "4", "missing.py"), "does not exist"),
        (("--world", "4", "--output", ".", "x.py"), "exists already"),
        (("x.py",), "Missing option '--world'"),
    ],
)
def test_bad_usage_is_answered_at_once(
    workplace: Workplace, words: tuple[str, ...], says: str
) -> None:
    workplace.write("x.py", "raise SystemExit('must not run')\n")
    began = time.monotonic()
    done = workplace.call([*TOOL, "preflight", *words])
    assert done.returncode == 2
    assert says in done.stderr
    assert "must not run" not in done.stdout + done.stderr
    assert time.monotonic() - began < 30


def test_the_users_own_cache_and_folder_stay_as_they_were(workplace: Workplace) -> None:
    script = workplace.write(
        "plain.py", "import os; print(os.environ['TORCHINDUCTOR_CACHE_DIR'])\n"
    )
    before = sorted(workplace.folder.iterdir())
    done = workplace.call(
        [sys.executable, "-m", "inductoscope", "preflight", "--world", "2", str(script)]
    )
    assert done.returncode == 4
    assert done.stdout.startswith("nothing compared: none of 2 ranks compiled anything")
    assert sorted(workplace.folder.iterdir()) == before
    assert not workplace.cache.exists() or list(workplace.cache.iterdir()) == []


def test_a_program_that_fails_at_once_is_not_said_to_do_without_ranks(workplace: Workplace) -> None:
    """It might have made its process group later; and it printed nothing that could be shown."""
    script = workplace.write("fails.py", "raise SystemExit(3)\n")
    done = workplace.call([*TOOL, "preflight", "--world", "2", "--quiet", str(script)])
    assert done.returncode == 4
    assert "rank 0 printed nothing" in done.stdout
    assert "failed        ranks 0-1: failed with exit code 3\n" in done.stdout
    assert "made no process group" not in done.stdout
