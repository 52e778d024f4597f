"""A thousand ranks, each fault planted in another one: one command finds them all."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.examples import Answer, inductoscope
from support.json_schema import violations
from support.rank_traces import (
    FAILED_GUARD,
    Plant,
    cut_inside,
    from_cache,
    of_rank,
    recorded,
    replaced,
    slower,
    with_another_compile,
    with_clock_off,
    with_failed_guard,
    with_swapped_collectives,
    write,
)

WORLD, MISSING = 1000, 517
GRAPHS = ("dynamo_output_graph", "aot_joint_graph", "aot_forward_graph", "inductor_post_grad_graph")
STUCK = (40, 41, 600)

PLANTED: dict[int, Plant] = {
    3: replaced(GRAPHS, "relu", "tanh"),
    77: with_swapped_collectives,
    123: with_failed_guard,
    345: replaced(("inductor_output_code",), "extern_kernels.mm(", "extern_kernels._int_mm("),
    # One more tensor is kept for the backward pass instead of being computed again.
    432: replaced(("aot_forward_graph",), "return (", "return (kept_one, "),
    555: replaced(("dynamo_start",), '"name": "loss_of"', '"name": "evaluate"'),
    654: with_another_compile,
    700: slower("GraphLowering.run", 90.0),
    888: replaced(("dynamo_cpp_guards_str",), '"num_threads":1,', '"num_threads":8,'),
    **dict.fromkeys(STUCK, cut_inside("GraphLowering.run")),
}
# Misses where all others hit.
COLD = 234


@dataclass(frozen=True)
class Job:
    """The answer about the thousand ranks, and its page."""

    answer: Answer
    page: str

    @property
    def ranks(self) -> dict[str, Any]:
        found: dict[str, Any] = self.answer.data["ranks"]
        return found

    def odd(self, kind: str) -> list[list[int]]:
        return [odd["ranks"] for odd in self.ranks["odd"] if odd["kind"] == kind]

    def only(self, rank: int, kind: str) -> dict[str, Any]:
        (found,) = [o for o in self.ranks["odd"] if o["ranks"] == [rank] and o["kind"] == kind]
        return dict(found)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("ranks")
    logs = folder / "logs"
    logs.mkdir()
    cold = recorded()
    usual = from_cache(cold)
    for rank in range(WORLD):
        if rank == MISSING:
            continue
        trace = PLANTED.get(rank, lambda same: same)(cold if rank == COLD else usual)
        # Every host has a clock of its own.
        write(logs, rank, with_clock_off(rank % 7)(trace))
    answer = inductoscope("logs", logs, "--page", folder / "page.html", "--json", "-")
    return Job(answer, (folder / "page.html").read_text("utf-8"))


def test_the_missing_rank_is_named(job: Job) -> None:
    assert job.ranks["missing"] == [MISSING]
    assert job.ranks["count"] == WORLD - 1
    assert violations("logs", job.answer.data) == []


def test_another_graph(job: Job) -> None:
    odd = job.only(3, "graph")
    assert odd["decision"] == "0/0 Dynamo's graph"
    assert "tanh" in odd["first_line"]["here"]
    assert "relu" in odd["first_line"]["there"]


def test_another_order_of_collectives_is_the_problem(job: Job) -> None:
    odd = job.only(77, "collectives")
    assert odd["problem"]
    assert odd["confidence"] == "likely"
    assert odd["first_line"]["here"] != odd["first_line"]["there"]
    assert [o["ranks"] for o in job.ranks["odd"] if o["problem"]] == [[77]]
    assert job.answer.exit_code == 1


def test_another_function_and_another_compile_id(job: Job) -> None:
    other = job.only(555, "compile")
    assert (other["decision"], other["here"][:8], other["there"][:7]) == (
        "0/0",
        "evaluate",
        "loss_of",
    )
    more = job.only(654, "compile")
    assert (more["decision"], more["there"]) == ("1/0", "none")


def test_another_guard(job: Job) -> None:
    assert '"num_threads":8' in job.only(888, "guards")["first_line"]["here"]


def test_a_guard_that_failed_only_there(job: Job) -> None:
    assert FAILED_GUARD in job.only(123, "guard")["here"]


def test_a_cache_miss_only_there(job: Job) -> None:
    odd = job.only(COLD, "cache")
    assert (odd["here"], odd["there"], odd["problem"]) == ("miss", "hit", False)


def test_another_choice_of_autotuning(job: Job) -> None:
    assert "_int_mm" in job.only(345, "autotune")["first_line"]["here"]


def test_another_choice_of_what_is_recomputed(job: Job) -> None:
    assert "kept_one" in job.only(432, "partition")["first_line"]["here"]


def test_the_straggler_and_no_other_though_clocks_differ_by_hours(job: Job) -> None:
    stragglers = job.ranks["stragglers"]
    assert [(one["rank"], one["stage"]) for one in stragglers] == [(700, "lowering")]
    assert 85 < stragglers[0]["seconds"] - stragglers[0]["median"] < 95
    assert "never the time of one rank with that of another" in job.ranks["clocks"]


def test_the_three_that_are_stuck(job: Job) -> None:
    (stuck,) = [place for place in job.ranks["places"] if place["problem"]]
    assert stuck["ranks"] == list(STUCK)
    assert stuck["stage"] == "lowering"
    assert stuck["confidence"] == "likely"


def test_nobody_else_is_accused(job: Job) -> None:
    accused = {rank for odd in job.ranks["odd"] for rank in odd["ranks"]}
    assert accused == {3, 77, 123, COLD, 345, 432, 555, 654, 888}
    assert job.ranks["splits"] == []
    behind = {rank for one in job.ranks["behind"] for rank in one["ranks"]}
    assert behind == set(STUCK)


def test_the_page_has_one_square_for_each_rank(job: Job) -> None:
    assert job.page.count('" title="rank ') == WORLD
    assert f"No log: rank {MISSING}." in job.page
    assert f"</i>{WORLD - 14} as most</li>" in job.page
    assert f'title="rank {MISSING}: no log"' in job.page
    assert 'title="rank 600: stuck or failed"' in job.page
    assert 'title="rank 77: other collectives"' in job.page
    assert "<script" not in job.page


# --- damaged input --------------------------------------------------------------------------------


def four(folder: Path) -> list[Path]:
    return [write(folder, rank, recorded()) for rank in range(4)]


def test_healthy_ranks_are_clean_whatever_their_device_process_and_clock(tmp_path: Path) -> None:
    for rank in range(4):
        write(tmp_path, rank, with_clock_off(rank * 5)(recorded()))
    answer = inductoscope("logs", tmp_path, "--json", "-")
    assert answer.exit_code == 0
    ranks = answer.data["ranks"]
    assert (ranks["odd"], ranks["splits"], ranks["stragglers"], ranks["problem"]) == (
        [],
        [],
        [],
        False,
    )


def test_a_truncated_a_binary_and_an_empty_log_accuse_nobody(tmp_path: Path) -> None:
    paths = four(tmp_path)
    data = paths[0].read_bytes()
    paths[1].write_bytes(data[: len(data) // 2])
    (tmp_path / "rank_4_noise.log").write_bytes(bytes(range(256)) * 4000)
    (tmp_path / "rank_5_empty.log").write_bytes(b"")
    answer = inductoscope("logs", tmp_path, "--json", "-")
    assert answer.exit_code in (0, 1)
    assert [odd for odd in answer.data["ranks"]["odd"] if odd["problem"]] == []


def test_a_line_without_an_end_takes_little_memory(tmp_path: Path) -> None:
    paths = four(tmp_path)
    with paths[0].open("ab") as file:
        for _ in range(64):
            file.write(b"x" * (1 << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer = inductoscope("logs", tmp_path, "--cores", "1", "--json", "-")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert answer.data["ranks"]["odd"] == []
    assert grown < 40 << 10  # KiB


def test_the_ranks_that_there_should_be_are_told_with_an_option(tmp_path: Path) -> None:
    four(tmp_path)
    answer = inductoscope("logs", tmp_path, "--world", "6", "--json", "-")
    assert answer.data["ranks"]["missing"] == [4, 5]


def test_a_rank_that_was_started_again_is_compared_by_its_last_log(tmp_path: Path) -> None:
    four(tmp_path)
    again = of_rank(with_clock_off(1)(replaced(GRAPHS, "relu", "tanh")(recorded())), 2)
    (tmp_path / "dedicated_log_torch_trace_rank_2_later.log").write_text("\n".join(again) + "\n")
    answer = inductoscope("logs", tmp_path, "--json", "-")
    assert [odd["ranks"] for odd in answer.data["ranks"]["odd"]] == [[2]]
    assert "rank 2 wrote several logs" in answer.data["ranks"]["notes"][0]
