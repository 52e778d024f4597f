"""Logs of many ranks, read by the workers of a real Dask cluster, where they lie."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.dask_cluster import DaskCluster, running_cluster
from support.programs import TOOL, Workplace, with_mount
from support.rank_traces import recorded, with_swapped_collectives, write

pytest.importorskip("distributed")

RANKS, ODD = 10, 7


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), workers=1) as found:
        yield found


def write_ranks(folder: Path, ranks: range) -> None:
    """Traces of these ranks; one of them sends its collectives in another order."""
    folder.mkdir(parents=True)
    for rank in ranks:
        write(folder, rank, with_swapped_collectives(recorded()) if rank == ODD else recorded())


def read(workplace: Workplace, *options: str) -> dict[str, Any]:
    done = workplace.call([*TOOL, "logs", "--json", "answer.json", *options, "logs"])
    assert done.returncode == 1, done.stderr
    found: dict[str, Any] = json.loads((workplace.folder / "answer.json").read_text())
    return found


def test_what_all_workers_see_is_read_once(workplace: Workplace, cluster: DaskCluster) -> None:
    write_ranks(workplace.folder / "logs", range(RANKS))
    here = read(workplace)
    second = cluster.add_worker()
    spread = read(workplace, "--executor", cluster.address)
    second.terminate()
    assert spread["ranks"] == here["ranks"]
    assert spread["ranks"]["odd"][0]["ranks"] == [ODD]
    assert len(spread["files"]) == len(here["files"]) == RANKS


def test_each_worker_reads_what_lies_on_its_own_disk(
    workplace: Workplace, cluster: DaskCluster
) -> None:
    here, there = workplace.folder / "logs", workplace.folder / "disk"
    write_ranks(here, range(5))
    write_ranks(there, range(5, RANKS))
    second = cluster.add_worker(*with_mount(f"--bind {shlex.quote(str(there))}", here))
    try:
        found = read(workplace, "--executor", cluster.address)
    finally:
        second.terminate()
        second.wait(timeout=30)
    assert len(found["files"]) == RANKS
    assert found["ranks"]["missing"] == []
    assert found["ranks"]["odd"][0]["ranks"] == [ODD]


def test_a_path_that_no_worker_sees(workplace: Workplace, cluster: DaskCluster) -> None:
    done = workplace.call([*TOOL, "logs", "--executor", cluster.address, "nowhere"])
    assert done.returncode == 2
    assert "sees a log at nowhere" in done.stderr
