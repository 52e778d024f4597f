"""Whether a loop body stays inside its buffers: proven, broken, data, or out of reach."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.analysis.bounds.accesses import PointBudget, judge_parts
from inductoscope.analysis.bounds.kernels import judge_recording
from inductoscope.analysis.bounds.proof import Context, Ends, Prover, difference
from inductoscope.analysis.bounds.sentences import who
from inductoscope.analysis.bounds.sizes import AdmittedSizes, edge_sizes
from inductoscope.analysis.bounds.verdicts import (
    Broken,
    DataDependent,
    JudgedAccess,
    OutOfReach,
    Proven,
)
from inductoscope.model.fold import load
from inductoscope.model.memory import GraphMemory, Room, SizeSymbol
from inductoscope.model.schedule import IndirectIndex
from inductoscope.torch_facts.index_expressions import ZERO, Number, read_expression, value_of
from support.loop_bodies import PLAIN, body_text, judged, masked_text, value_text

RECORDINGS = sorted((Path(__file__).parents[1] / "data" / "recordings").glob("*/recording"))


ANY = SizeSymbol("2", "int_oo", "8")


def test_an_index_inside_its_buffer_is_proven() -> None:
    text = body_text("{p0: 10, p1: 100}", "100*p0 + p1")
    assert isinstance(judged(text, ("10", "100"), ("100", "1")), Proven)


def test_one_past_the_end_is_broken_and_the_point_is_named() -> None:
    text = body_text("{p0: 10, p1: 100}", "100*p0 + p1 + 1")
    found = judged(text, ("10", "100"), ("100", "1"))
    assert isinstance(found, Broken)
    assert (found.position, found.first, found.end) == (1000, 0, 1000)
    assert found.point == {"p0": 9, "p1": 99}


def test_one_before_the_beginning_is_broken() -> None:
    found = judged(body_text("{p0: 4}", "p0 - 1"), ("4",), ("1",))
    assert isinstance(found, Broken)
    assert found.position == -1


def test_a_proof_holds_for_all_sizes() -> None:
    text = body_text("{p0: s0, p1: s1}", "p0*s1 + p1")
    symbols = {"s0": ANY, "s1": ANY}
    assert isinstance(judged(text, ("s0", "s1"), ("s1", "1"), symbols=symbols), Proven)


def test_an_error_at_odd_sizes_is_found_although_the_run_had_an_even_one() -> None:
    """Two loads for each step of a loop that is rounded up, as if the last one were whole."""
    text = body_text("{p0: ((s0 + 1)//2)}", "2*p0 + 1")
    found = judged(text, ("s0",), ("1",), symbols={"s0": ANY})
    assert isinstance(found, Broken)
    assert found.sizes["s0"] % 2 == 1
    assert found.position == found.end


def test_a_guard_that_excludes_odd_sizes_makes_it_right() -> None:
    text = body_text("{p0: ((s0 + 1)//2)}", "2*p0 + 1")
    found = judged(text, ("s0",), ("1",), symbols={"s0": ANY}, assumed=("Eq(Mod(s0, 2), 0)",))
    assert not isinstance(found, Broken)


def test_divisibility_from_a_guard_is_used_in_a_proof() -> None:
    text = body_text("{p0: s0}", "p0")
    size, stride = ("(s0//8)", "8"), ("8", "1")
    found = judged(text, size, stride, symbols={"s0": ANY}, assumed=("Eq(Mod(s0, 8), 0)",))
    assert isinstance(found, Proven)


def test_a_mask_keeps_an_access_inside() -> None:
    symbols = {"s0": ANY}
    text = masked_text("{p0: s0 + 3}", "p0 - 1", "p0 - 1", limit="s0")
    assert isinstance(judged(text, ("s0",), ("1",), symbols=symbols), Proven)


def test_a_mask_that_is_one_too_wide_does_not() -> None:
    text = masked_text("{p0: s0 + 3}", "p0 - 1", "p0 - 1", limit="s0 + 1")
    found = judged(text, ("s0",), ("1",), symbols={"s0": ANY})
    assert isinstance(found, Broken)
    assert found.position == found.sizes["s0"]


def test_a_guard_that_is_not_understood_makes_no_alarm() -> None:
    text = body_text("{p0: s0 + 1}", "p0")
    found = judged(text, ("s0",), ("1",), symbols={"s0": ANY}, assumed=("riddle(s0)",))
    assert isinstance(found, OutOfReach)


def test_a_size_that_is_data_makes_no_alarm() -> None:
    text = body_text("{p0: u0}", "p0")
    unbacked = {"u0": SizeSymbol("0", "int_oo")}
    assert isinstance(judged(text, ("7",), ("1",), symbols=unbacked), OutOfReach)


@pytest.mark.parametrize("storage", ["400", "0"])
def test_what_is_inside_the_tensor_is_inside_whatever_its_memory_is_said_to_be(
    storage: str,
) -> None:
    text = body_text("{p0: s0}", "p0*s0 - p0*p0")
    size = ("s0", "s0")
    found = judged(text, size, ("s0", "1"), symbols={"s0": ANY}, storage=storage)
    assert not isinstance(found, Broken)


def test_what_leaves_the_tensor_but_not_its_memory_is_no_fault() -> None:
    text = body_text("{p0: 10}", "p0 + 1")
    assert isinstance(judged(text, ("10",), ("1",), storage="44"), Proven)
    found = judged(text, ("10",), ("1",), storage="40")
    assert isinstance(found, Broken)
    assert (found.position, found.end) == (10, 10)


def test_a_size_that_was_replaced_by_a_riddle_is_not_taken_as_free() -> None:
    text = body_text("{p0: s1}", "p0")
    symbols = {"s0": ANY, "s1": ANY}
    riddle = {"s1": "OpaqueUnaryFn_sqrt(s0*s0)"}
    found = judged(text, ("s0",), ("1",), symbols=symbols, replacements=riddle)
    assert isinstance(found, OutOfReach)


def test_a_guard_on_a_size_that_is_not_known_admits_nothing() -> None:
    text = body_text("{p0: s0 + 1}", "p0")
    found = judged(text, ("s0",), ("1",), symbols={"s0": ANY}, assumed=("Eq(s0, z0)",))
    assert found == OutOfReach("no proof was found for all sizes")
    # One on other sizes only has nothing to say of it.
    found = judged(text, ("s0",), ("1",), symbols={"s0": ANY}, assumed=("Eq(z1, z0)",))
    assert isinstance(found, Broken)


def test_an_index_of_which_it_was_not_recorded_whether_it_wraps_is_data() -> None:
    """x[arange(5) - 1]: in Python, -1 is the last element."""
    text = "\n".join(
        (
            "var_ranges = {p0: 5}",
            "index0 = p0 - 1",
            "index1 = indirect0",
            "def body(self, ops):",
            "    get_index = self.get_index('index0')",
            "    index_expr = ops.index_expr(get_index, torch.int64)",
            "    set_indirect0 = self.set_indirect0(index_expr)",
            "    get_index_1 = self.get_index('index1')",
            "    load = ops.load('x', get_index_1)",
        )
    )
    assert judged(text, ("5",), ("1",)) == DataDependent((), None, is_inside=False)
    how = {"set_indirect0": IndirectIndex("indirect0", "5", is_checked=False, wraps=True)}
    assert isinstance(judged(text, ("5",), ("1",), indirect=how), Proven)


INDIRECT = "\n".join(
    (
        "var_ranges = {{p0: 5, p1: 4}}",
        "index0 = p0",
        "index1 = {index}",
        "def body(self, ops):",
        "    get_index = self.get_index('index0')",
        "    load = ops.load('i', get_index)",
        "    set_indirect0 = self.set_indirect0(load)",
        "    get_index_1 = self.get_index('index1')",
        "    load_1 = ops.load('x', get_index_1)",
    )
)


@pytest.mark.parametrize("is_checked", [True, False])
def test_an_index_that_is_data_is_called_so(is_checked: bool) -> None:
    how = {"set_indirect0": IndirectIndex("indirect0", "7", is_checked, wraps=True)}
    text = INDIRECT.format(index="4*indirect0 + p1")
    found = judged(text, ("7", "4"), ("4", "1"), indirect=how)
    assert found == DataDependent(("i",), is_checked, is_inside=is_checked)


def test_data_that_passes_the_check_and_still_leaves_the_buffer() -> None:
    how = {"set_indirect0": IndirectIndex("indirect0", "7", is_checked=True, wraps=True)}
    text = INDIRECT.format(index="4*indirect0 + p1 + 1")
    found = judged(text, ("7", "4"), ("4", "1"), indirect=how)
    assert isinstance(found, Broken)
    assert (found.values, found.position) == ({"i": 6}, 28)


def test_a_buffer_without_elements_is_never_addressed_by_an_empty_loop() -> None:
    assert isinstance(judged(body_text("{p0: 0}", "p0"), ("0",), ("1",)), Proven)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.parent.name)
def test_nothing_recorded_is_accused(path: Path) -> None:
    """Loads and stores of real kernels, on CPU and H200; all of them are proven."""
    judged_graphs = list(judge_recording(load(path)))
    kinds = {access.verdict.kind for graph in judged_graphs for access in graph.accesses}
    assert kinds <= {"proven"}


@pytest.mark.parametrize(
    "line",
    [
        "value = ops.to_dtype(v0, torch.uint8)",
        "value = ops.to_dtype(v0, torch.bool)",
        "value = ops.bitwise_and(v0, v0)",
        "value = ops.bitwise_or(v0, v0)",
    ],
)
def test_bits_of_a_value_are_data(line: str) -> None:
    """The kernel stays inside x here, but to know that takes more than whole numbers."""
    found = judged(value_text(line), ("256",), ("1",), indirect=PLAIN)
    assert found == DataDependent((), False, is_inside=False)


def test_a_comparison_fits_into_every_type() -> None:
    lines = ("lt = ops.lt(v0, 5)", "value = ops.to_dtype(lt, torch.uint8)")
    assert isinstance(judged(value_text(*lines), ("2",), ("1",), indirect=PLAIN), Proven)


def test_a_part_that_leaves_its_buffer_has_a_subject() -> None:
    rooms = {"x": Room(("8",), ("1",)), "part": Room(("4",), ("1",), inside="x", offset="6")}
    sizes = AdmittedSizes(GraphMemory(rooms, {}, {}, ()))
    found = [verdict for _, verdict in judge_parts(sizes, PointBudget(1000))]
    assert isinstance(found[1], Broken)
    access = JudgedAccess("", "", "", "part", "x", "9", found[1])
    assert who(access) == "the graph"


# --- a proof is never wrong -----------------------------------------------------------------------


def random_index(rng: random.Random, depth: int = 0) -> str:
    """An expression as torch writes them, of loop variables and a size."""
    if depth > 2 or rng.random() < 0.3:
        return rng.choice(["p0", "p1", "s0", str(rng.randint(0, 5))])
    one, two = random_index(rng, depth + 1), random_index(rng, depth + 1)
    small = rng.randint(1, 4)
    return rng.choice(
        [
            f"({one} + {two})",
            f"({one} - {two})",
            f"{small}*({one})",
            f"(p0*({two}))",
            f"(({one})//{small})",
            f"floor(({one})/{small})",
            f"ceiling(({one})/{small})",
            f"ModularIndexing({one}, {small}, {rng.randint(1, 5)})",
            f"Min({one}, {two})",
            f"Max({one}, {two})",
            f"Abs({one})",
            f"Where({one} < {two}, {two}, {one})",
        ]
    )


def test_a_proof_holds_at_every_point_that_can_be_computed() -> None:
    """Random expressions: where a proof says 'never negative', no point may be negative."""
    rng = random.Random(7)
    context = Context(
        {
            "p0": Ends(ZERO, read_expression("s0 - 1")),
            "p1": Ends(ZERO, Number(3)),
            "s0": Ends(Number(2), None),
        },
        sizes=frozenset({"s0"}),
    )
    proofs = 0
    for _ in range(600):
        expression = read_expression(random_index(rng))
        goal = difference(expression, read_expression(str(rng.randint(-6, 1))))
        if not Prover(context).never_negative(goal):
            continue
        proofs += 1
        for s0, p1 in itertools.product(range(2, 8), range(4)):
            for p0 in range(s0):
                values = {"s0": s0, "p0": p0, "p1": p1}
                assert least(goal, values) >= 0, f"{expression} at {values}"
    assert proofs > 100


def least(goal: object, values: dict[str, int]) -> int:
    """The value at a point; where torch leaves it undefined, it proves nothing."""
    from inductoscope.analysis.bounds.proof import Polynomial, written
    from inductoscope.torch_facts.index_expressions import NoValue

    assert isinstance(goal, Polynomial)
    try:
        return value_of(written(goal), values)
    except NoValue:
        return 0


# --- sizes to try ---------------------------------------------------------------------------------


def edges(symbol: SizeSymbol, *assumed: str, index: str = "p0") -> dict[int, str]:
    sizes = AdmittedSizes(GraphMemory({}, {"s0": symbol}, {}, assumed))
    return {edge.value: edge.why for edge in edge_sizes(sizes, [read_expression(index)])}


def test_both_ends_of_a_range_and_where_vectors_end_are_tried(snapshot: SnapshotAssertion) -> None:
    found = edges(SizeSymbol("2", "50", "8"))
    assert found[2] == snapshot
    assert found[50] == snapshot
    assert {3, 49, 7, 9, 15, 16, 17, 31, 32, 33} <= found.keys()
    assert 8 not in found  # The run had it.


def test_sizes_around_what_the_code_divides_by_are_tried(snapshot: SnapshotAssertion) -> None:
    found = edges(SizeSymbol("2", "int_oo", "100"), index="p0 + ((s0 + 1)//12)")
    assert found[97] == snapshot
    assert {95, 96} <= found.keys()


def test_where_not_all_are_tried_those_beside_a_width_are() -> None:
    found = edges(SizeSymbol("2", "int_oo", "100"), index="p0 + s0//12 + s0//7")
    assert len(found) == 14
    assert {7, 9, 15, 17, 33} <= found.keys()


def test_only_sizes_that_the_guards_admit_are_tried() -> None:
    assert all(value % 8 == 0 for value in edges(ANY, "Eq(Mod(s0, 8), 0)"))
    assert max(edges(SizeSymbol("2", "int_oo", "8"))) <= 4096
    assert 0 in edges(SizeSymbol("0", "9", "8"))
    assert edges(SizeSymbol("0", "9", "")) == {}  # Not known before the run.
