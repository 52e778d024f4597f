"""Ranks side by side: who left the majority, with which decision, and when nobody is accused."""

from __future__ import annotations

import io
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from inductoscope.analysis.ranks.comparing import (
    NOT_COMPILED,
    OTHER_CALL,
    OTHER_GROUPS,
    REST_ELSEWHERE,
    RankComparison,
    compare_ranks,
)
from inductoscope.analysis.ranks.decisions import Decision, RankLog, RankProgress, merged_order
from inductoscope.analysis.ranks.report import RankReport, find_stragglers, report_on
from inductoscope.torch_facts.printed_graphs import (
    code_lines,
    collective_text,
    collectives_in,
    graph_lines,
    saved_tensors,
    tuned_choices,
)
from inductoscope.views.page.ranks_page import write_ranks_page
from inductoscope.views.report.ranks import print_ranks, ranks_view
from inductoscope.views.report.terminal import Printer

GRAPH = Decision("graph", "0/0 forward graph", "same", "3 operations", "0/0")
SENDS = Decision(
    "collectives",
    "0/0 post-grad graph",
    "a, b",
    "2 collectives",
    "0/0",
    groups=("0",),
    orders=("a b",),
)
MISS = Decision("cache", "0/0 FX graph cache", "miss", "miss", "0/0")
USUAL = (Decision("compile", "0/0", "step", "step", "0/0"), MISS, GRAPH, SENDS)


def ranks(
    number: int,
    *,
    other: Mapping[int, Iterable[Decision]] | None = None,
    progress: RankProgress = RankProgress.AT_REST,
) -> list[RankLog]:
    """So many ranks that decide as usual, but for some."""
    return [
        RankLog(rank, tuple((other or {}).get(rank, USUAL)), progress=progress)
        for rank in range(number)
    ]


def changed(kind: str, **fields: object) -> tuple[Decision, ...]:
    """The usual decisions with another one of this kind."""
    return tuple(d._replace(**fields) if d.kind == kind else d for d in USUAL)  # type: ignore[arg-type]


def report(logs: list[RankLog]) -> RankReport:
    return report_on(logs, [], lambda log, key: [])


def found(comparison: RankComparison) -> list[tuple[tuple[int, ...], str]]:
    return [(odd.odd.ranks, odd.kind) for odd in comparison.odd]


# --- the odd one out ------------------------------------------------------------------------------


def test_ranks_that_decide_the_same_are_not_accused() -> None:
    comparison = compare_ranks(ranks(8))
    assert (comparison.odd, comparison.splits, comparison.behind) == ((), (), ())
    assert not report(ranks(8)).is_problem


def test_a_rank_with_another_graph_is_odd_since_then_and_what_follows_is_not_told_again() -> None:
    other = (*changed("graph", value="other"), Decision("code", "0/0 code", "x", "", "0/0"))
    logs = ranks(5, other={3: other})
    logs = [
        log
        if log.rank == 3
        else RankLog(log.rank, (*log.decisions, Decision("code", "0/0 code", "y", "", "0/0")))
        for log in logs
    ]
    (odd,) = compare_ranks(logs).odd
    assert (odd.odd.ranks, odd.kind, len(odd.majority.ranks)) == ((3,), "graph", 4)
    assert dict(odd.later) == {"code": 1}


def test_ranks_that_send_other_collectives_to_the_same_group_are_a_problem() -> None:
    result = report(ranks(4, other={1: SWAPPED}))
    assert found(result.comparison) == [((1,), "collectives")]
    assert result.is_problem


def test_a_harmless_difference_does_not_hide_a_later_one_that_ranks_wait_for() -> None:
    before = (*USUAL[:3], SENDS._replace(key="0/0 forward graph", orders=("a b c",), value="abc"))
    shorter = SENDS._replace(key="0/0 forward graph", orders=("a",), value="a")
    logs = ranks(4, other=dict.fromkeys(range(3), (*before, SENDS)))
    logs[3] = RankLog(3, (*USUAL[:3], shorter, SWAPPED[-1]))
    result = report(logs)
    assert [odd.is_deadly for odd in result.comparison.odd] == [False, True]
    assert result.is_problem


def again(
    value: str, *, reason: str = "size 8 became 7", order: str = "a b"
) -> tuple[Decision, ...]:
    """The usual decisions, and those of a second compile of the same function."""
    return (
        *USUAL,
        Decision("guard", "0/1", reason, reason, "0/1"),
        Decision("compile", "0/1", "step", "step", "0/1"),
        SENDS._replace(key="0/1 post-grad graph", compile="0/1", value=value, orders=(order,)),
        Decision("compile", "1/0", "evaluate", "evaluate", "1/0"),
    )


EVALUATES = (*USUAL, Decision("compile", "1/0", "evaluate", "evaluate", "1/0"))
STAGE = changed("collectives", value="b", groups=("7",), orders=("b",))
NO_COLLECTIVE = changed("collectives", value="", groups=(), orders=())
BROKEN_GRAPH = changed("collectives", value="a", orders=("a",))
SWAPPED = changed("collectives", value="b, a", orders=("b a",))


@pytest.mark.parametrize(
    ("usual", "odd", "reason"),
    [
        (USUAL, STAGE, OTHER_GROUPS),
        (STAGE, NO_COLLECTIVE, REST_ELSEWHERE),
        (USUAL, BROKEN_GRAPH, REST_ELSEWHERE),
        (EVALUATES, again("a, b"), NOT_COMPILED),
        (again("a, b"), EVALUATES, NOT_COMPILED),
        (again("a, b"), again("c", order="c", reason="size 8 became 5"), OTHER_CALL),
        (USUAL, (USUAL[0]._replace(value="evaluate"), *SWAPPED[1:]), OTHER_CALL),
        (USUAL, (USUAL[0], MISS._replace(value="hit"), *SWAPPED[2:]), OTHER_CALL),
    ],
    ids=[
        "a stage of a pipeline with a group of its own",
        "the last stage of a pipeline, without a collective",
        "a graph break on one rank",
        "one rank compiled again for a last short batch",
        "one rank did not compile again",
        "compiled again for different batches",
        "another function that is compiled first",
        "a forward graph from the cache, so that the first is the backward graph",
    ],
)
def test_healthy_ranks_may_differ_in_the_collectives_of_their_graphs(
    usual: tuple[Decision, ...], odd: tuple[Decision, ...], reason: str
) -> None:
    result = report(ranks(4, other={0: usual, 1: usual, 2: usual, 3: odd}))
    assert not result.is_problem
    (sends,) = [one for one in result.comparison.odd if one.kind == "collectives"]
    assert (sends.odd.ranks, sends.unproven) == ((3,), reason)
    assert "wait" not in ranks_view(result)["odd"][0]["effect"]
    halves = report(ranks(4, other={0: usual, 1: usual, 2: odd, 3: odd}))
    assert not halves.is_problem


def test_the_same_second_compile_with_collectives_in_another_order_is_a_problem() -> None:
    usual = again("a, b")
    logs = ranks(4, other={0: usual, 1: usual, 2: usual, 3: again("b, a", order="b a")})
    assert report(logs).is_problem


def test_ranks_that_all_came_to_their_end_did_not_wait_for_each_other() -> None:
    logs = ranks(4, other={1: SWAPPED}, progress=RankProgress.ENDED)
    assert not report(logs).is_problem
    # Unless their end tells nothing, as on a pretended GPU.
    assert report_on(logs, [], lambda log, key: [], ends_tell=False).is_problem


def called(*names: str) -> tuple[Decision, ...]:
    """Calls of collectives in the group of all ranks."""
    return tuple(
        Decision("collective", f"call {turn} in group 0", name, among=(0, 1, 2), groups=("0",))
        for turn, name in enumerate(names, start=1)
    )


def test_calls_outrank_graphs() -> None:
    same = called("allreduce", "barrier")
    logs = ranks(3, other=dict.fromkeys(range(2), (*USUAL, *same)), progress=RankProgress.ENDED)
    agreeing = replace(logs[2], decisions=(*SWAPPED, *same))
    assert not report([*logs[:2], agreeing]).is_problem
    clashing = replace(logs[2], decisions=(*SWAPPED, *called("barrier", "allreduce")))
    deadly = [o.kind for o in report([*logs[:2], clashing]).comparison.odd if o.is_deadly]
    assert deadly == ["collectives", "collective"]


def test_a_rank_that_ends_without_a_call_keeps_others_waiting_and_one_that_fails_does_not() -> None:
    calls = called("allreduce", "barrier")
    other = Decision("collective", "call 1 in group 1", "barrier", among=(2,), groups=("1",))
    logs = ranks(3, other=dict.fromkeys(range(2), calls), progress=RankProgress.ENDED)
    ended = replace(logs[2], decisions=(*calls[:1], other))
    assert report([*logs[:2], ended]).is_problem
    failed = replace(ended, progress=RankProgress.BUSY)
    assert not report([*logs[:2], failed]).is_problem


def test_a_group_that_is_not_known_accuses_nobody() -> None:
    one, other = (Decision("collective", "call 1 in group ?", name) for name in ("a", "b"))
    result = report(ranks(3, other={0: (one,), 1: (one,), 2: (other,)}))
    assert found(result.comparison) == [((2,), "collective")]
    assert not result.is_problem


def test_two_halves_accuse_nobody() -> None:
    other = changed("graph", value="other")
    comparison = compare_ranks(ranks(4, other={2: other, 3: other}))
    assert comparison.odd == ()
    (split,) = comparison.splits
    assert [side.ranks for side in split.sides] == [(0, 1), (2, 3)]
    assert not split.is_by_rank


def test_a_value_of_its_own_on_every_rank_is_said_to_be_that() -> None:
    own = {rank: changed("graph", value=f"rank {rank}") for rank in range(4)}
    (split,) = compare_ranks(ranks(4, other=own)).splits
    assert split.is_by_rank


def test_a_cache_miss_on_one_rank_is_a_cost_and_what_a_hit_leaves_out_is_no_difference() -> None:
    hit = (USUAL[0], MISS._replace(value="hit", shown="hit"))
    comparison = compare_ranks(ranks(5, other={r: hit for r in range(5) if r != 2}))
    assert found(comparison) == [((2,), "cache")]
    assert not report(ranks(5, other={2: hit})).is_problem


def test_a_guard_that_failed_on_one_rank_only_is_found_though_the_others_may_follow() -> None:
    again = Decision("guard", "0/1", "size changed", "size changed", "0/1")
    (odd,) = compare_ranks(ranks(4, other={2: (*USUAL, again)})).odd
    assert (odd.odd.ranks, odd.kind, odd.others_may_follow) == ((2,), "guard", True)
    logs = ranks(4, other={2: (*USUAL, again)}, progress=RankProgress.ENDED)
    assert not compare_ranks(logs).odd[0].others_may_follow


def test_a_rank_that_is_behind_is_not_odd() -> None:
    comparison = compare_ranks(ranks(4, other={1: USUAL[:2]}))
    assert comparison.odd == ()
    (behind,) = comparison.behind
    assert (behind.ranks, behind.decision) == ((1,), GRAPH.key)
    printed = io.StringIO()
    print_ranks(
        Printer(printed, is_terminal=False), ranks_view(report(ranks(4, other={1: USUAL[:2]})))
    )
    assert f"rank 1 (between compiles): not yet at {behind.decision}" in " ".join(
        printed.getvalue().split()
    )


def test_a_rank_that_left_a_decision_out_and_went_on_is_odd() -> None:
    comparison = compare_ranks(ranks(4, other={1: (USUAL[0], MISS, SENDS)}))
    assert found(comparison) == [((1,), "graph")]
    assert comparison.odd[0].odd.text == "none"


def test_ranks_outside_a_group_are_not_asked_about_its_calls() -> None:
    call = Decision("collective", "call 1 in group 1", "allreduce", among=(0, 1), groups=("1",))
    logs = ranks(4, other={0: (*USUAL, call), 1: (*USUAL, call)}, progress=RankProgress.ENDED)
    assert compare_ranks(logs).odd == ()
    alone = ranks(4, other={0: (*USUAL, call)}, progress=RankProgress.ENDED)
    assert [split.kind for split in compare_ranks(alone).splits] == ["collective"]


def test_what_only_some_ranks_decide_is_placed_where_they_decide_it() -> None:
    assert merged_order([[("a",), ("c",)], [("a",), ("b",), ("c",)]]) == [("a",), ("b",), ("c",)]


# --- slow ranks -----------------------------------------------------------------------------------


def timed(*seconds: float) -> list[RankLog]:
    return [RankLog(n, stage_seconds=(("lowering", s),)) for n, s in enumerate(seconds)]


def test_a_straggler_is_much_slower_than_the_median() -> None:
    (slow,) = find_stragglers(timed(1.0, 1.1, 0.9, 1.0, 9.0))
    assert (slow.rank, slow.seconds, slow.median) == (4, 9.0, 1.0)


@pytest.mark.parametrize(
    "seconds",
    [(1.0, 1.1, 9.0), (0.01, 0.01, 0.01, 0.01, 0.5), (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.5)],
    ids=["too few ranks", "too little to matter", "as spread as all"],
)
def test_what_is_no_straggler(seconds: tuple[float, ...]) -> None:
    assert find_stragglers(timed(*seconds)) == ()


# --- texts that healthy ranks have ----------------------------------------------------------------

PRINTED = """
class GraphModule(torch.nn.Module):
    def forward(self, primals_1: "f32[4, 4][4, 1]cuda:3", primals_2: "f32[8][1]cuda:3"):
        # File: /home/me/train.py:12 in f, code: y = all_reduce(x)
        all_reduce: "f32[4, 4][4, 1]cuda:3" = torch.ops._c10d_functional.all_reduce.default(primals_1, 'sum', '3')
        wait_tensor: "f32[4, 4][4, 1]cuda:3" = torch.ops._c10d_functional.wait_tensor.default(all_reduce)
        gathered: "f32[16][1]cuda:3" = torch.ops._c10d_functional.all_gather_into_tensor.default(primals_2, 2, '3')
        return (wait_tensor, gathered, primals_1)
"""  # noqa: E501


def test_device_numbers_comments_and_names_of_groups_are_no_difference() -> None:
    other = PRINTED.replace("cuda:3", "cuda:0").replace("'3'", "'12'").replace("/me/", "/you/")
    assert graph_lines(PRINTED) == graph_lines(other)
    assert graph_lines(PRINTED) != graph_lines(PRINTED.replace("'sum'", "'max'"))


def test_collectives_are_told_by_what_they_send() -> None:
    assert collectives_in(PRINTED) == [
        ("all_reduce sum f32 x 16", "3"),
        ("all_gather_into_tensor f32 x 8", "3"),
    ]
    assert collectives_in(PRINTED.replace("all_reduce.default", "isend.default"))[0][0].startswith(
        "all_gather"
    )
    assert saved_tensors(PRINTED) == ["wait_tensor", "gathered", "primals_1"]


def test_ranks_may_send_pieces_of_different_sizes_to_each_other() -> None:
    assert collective_text("alltoall_", "", ["float32 x 3"]) == "alltoall"


def test_code_of_another_device_is_the_same_code() -> None:
    code = "with torch.cuda._DeviceGuard(3):\n    stream3 = get_raw_stream(3)\n# /tmp/x/c1.py"
    assert code_lines(code) == code_lines(code.replace("3", "0").replace("/x/", "/y/"))


def test_choices_of_autotuning_are_read_from_code() -> None:
    code = (
        "triton_tem_fused_mm_0 = async_compile.triton('triton_tem_fused_mm_0', '''\n"
        "@triton_heuristics.template(num_stages=3,\nnum_warps=8)\n"
        "    BLOCK_M : tl.constexpr = 64\n''')\nextern_kernels.addmm(a, b)\n"
    )
    assert tuned_choices(code) == [
        "triton_tem_fused_mm_0 BLOCK_M=64 num_stages=3 num_warps=8",
        "library addmm",
    ]


@pytest.mark.parametrize("hostile", ["a" * 60_000, " " * 60_000 + "x", "x: 'a' " * 9_000])
def test_a_hostile_line_of_a_graph_is_read_in_no_time(hostile: str) -> None:
    began = time.process_time()
    sent = f"{hostile} = torch.ops._c10d_functional.all_reduce.default({hostile})"
    for line in (hostile, sent):
        assert collectives_in(line) is not None
        assert graph_lines(line)
    # It took a minute when the time grew with the square of the length.
    assert time.process_time() - began < 20


# --- what is shown --------------------------------------------------------------------------------


def test_the_page_escapes_what_a_log_says_and_loads_nothing(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    logs = ranks(4, other={2: changed("graph", value="x", shown=hostile)})
    page = tmp_path / "page.html"
    write_ranks_page(ranks_view(report(logs)), page)
    text = page.read_text("utf-8")
    assert hostile not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")
    assert 'title="rank 2: decided otherwise"' in text


def test_the_terminal_fits_into_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    logs = ranks(
        900, other={n: changed("graph", value="x", shown="y" * 60) for n in range(0, 90, 3)}
    )
    out = io.StringIO()
    print_ranks(Printer(out), ranks_view(report(logs)))
    assert max(map(len, out.getvalue().splitlines())) <= 80
    assert "ranks 0, 3, 6, 9, 12, 15 and 24 more" in out.getvalue()
