"""With how many bits a kernel indexes, and whether they suffice for every size."""

from __future__ import annotations

from inductoscope.analysis.bounds.accesses import BodyJudge, PointBudget
from inductoscope.analysis.bounds.index_range import (
    IndexedBody,
    IndexVerdict,
    Limited,
    Overflows,
    judge_indices,
)
from inductoscope.analysis.bounds.kernels import judge_recording
from inductoscope.analysis.bounds.sizes import AdmittedSizes
from inductoscope.analysis.bounds.verdicts import OutOfReach, Proven
from inductoscope.model.fold import load
from inductoscope.model.memory import GraphMemory, Room, SizeSymbol
from inductoscope.torch_facts.index_expressions import Expression, Number, read_expression
from inductoscope.torch_facts.loop_bodies import read_body
from inductoscope.torch_facts.triton_indices import NARROW, WIDE, KernelIntegers, read_index_types
from support.examples import stored
from support.loop_bodies import body_text

TEXT = """
@triton_heuristics.pointwise(
    size_hints={'x': 64},
    triton_meta={'signature': {'in_ptr0': '*fp32', 'in_ptr1': '*i64', 'out_ptr0': '*fp32',
                 'ks0': 'i64', 'xnumel': 'i32', 'XBLOCK': 'constexpr'}},
)
@triton.jit
def triton_poi_fused_0(in_ptr0, in_ptr1, out_ptr0, ks0, xnumel, XBLOCK : tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = (xindex % 40)
    x1 = xindex // 40
    tmp0 = tl.load(in_ptr1 + (x1), xmask)
    tl.store(out_ptr0 + (x0 + 40*x1), tmp0, xmask)
"""
WIDE_TEXT = TEXT.replace("program_id(0)", "program_id(0).to(tl.int64)").replace(
    "XBLOCK)[:]", "XBLOCK)[:].to(tl.int64)"
)
LINE = "tmp1 = tl.load(in_ptr0 + (%s), xmask)"
ROWS = SizeSymbol("2", "int_oo", "30", "L['x'].size()[0]")


def triton_types(text: str = TEXT) -> KernelIntegers:
    found = read_index_types(text, "Triton")
    assert found is not None
    return found


def judged(
    *,
    symbols: dict[str, SizeSymbol],
    assumed: tuple[str, ...] = (),
    line: str = LINE % "x0 + 40*x1",
    is_package: bool = False,
) -> IndexVerdict:
    """The verdict on `x[p0, p1]`, where x has s0 rows of 40 elements."""
    memory = GraphMemory(
        {"x": Room(("s0", "40"), ("40", "1"), is_input=True)}, symbols, {}, assumed
    )
    body = read_body(body_text("{p0: s0, p1: 40}", "40*p0 + p1"))

    def bodies(sizes: AdmittedSizes) -> list[IndexedBody]:
        counts: tuple[Expression, Expression] = (read_expression("40*s0"), Number(1))
        return [IndexedBody(BodyJudge(body, sizes, {}, PointBudget(0)), counts, {"load": (line,)})]

    return judge_indices(triton_types(), bodies, memory, guards_are_checked=not is_package)


# --- reading the text -----------------------------------------------------------------------------


def test_a_text_says_which_axes_have_32_bits() -> None:
    assert triton_types().narrow_axes == ("x",)
    assert read_index_types(WIDE_TEXT, "Triton") is None


def test_an_index_is_as_wide_as_its_widest_part() -> None:
    types = triton_types()
    assert types.of_access([LINE % "x0 + 40*x1"]) == NARROW
    assert types.of_access([LINE % "x0 + ks0*x1"]) == WIDE
    assert types.of_access([LINE % "x0 + 10000000000*x1"]) == WIDE
    assert types.of_access([LINE % "x0 + 3000000000*x1"]) is None  # 32 bits without a sign.
    assert types.of_access([LINE % "tmp0 + 40*x1"]) == WIDE  # A value of int64.
    assert types.of_access([LINE % "x0 + libdevice.trunc(x1)"]) is None
    assert types.of_access(["x1 = xindex // 40"]) is None


def test_cpp_loops_count_in_64_bits() -> None:
    loop = "for(%s x0=static_cast<int64_t>(0LL); x0<static_cast<int64_t>(s0); x0+=1)"
    assert read_index_types(loop % "int64_t", "C++") is None
    assert read_index_types(loop % "int32_t", "C++") is not None


def test_damaged_text_says_nothing() -> None:
    assert read_index_types("def (", "Triton") is None
    assert read_index_types("", "Triton") is None


# --- judging --------------------------------------------------------------------------------------


def test_the_guard_that_torch_adds_is_the_proof() -> None:
    assert isinstance(judged(symbols={"s0": ROWS}, assumed=("40*s0 <= 2147483647",)), Proven)


def test_an_upper_limit_is_a_proof_too() -> None:
    assert isinstance(judged(symbols={"s0": SizeSymbol("2", "1000", "30")}), Proven)


def test_without_a_guard_the_first_size_that_is_too_large_is_given() -> None:
    found = judged(symbols={"s0": ROWS})
    assert isinstance(found, Overflows)
    assert found.sizes == {"s0": 53_687_092}
    assert found.value == 40 * 53_687_092 - 1
    assert 40 * 53_687_091 - 1 <= 2**31 - 1 < found.value


def test_a_guard_that_comes_one_too_late_is_found() -> None:
    found = judged(symbols={"s0": ROWS}, assumed=("s0 <= 53687092",))
    assert isinstance(found, Overflows)
    assert isinstance(judged(symbols={"s0": ROWS}, assumed=("s0 <= 53687091",)), Proven)


def test_sizes_keep_to_the_other_guards() -> None:
    found = judged(symbols={"s0": ROWS}, assumed=("Eq(Mod(s0, 64), 0)",))
    assert isinstance(found, Overflows)
    assert found.sizes["s0"] % 64 == 0


def test_a_guard_that_is_not_understood_makes_no_alarm() -> None:
    assert isinstance(judged(symbols={"s0": ROWS}, assumed=("riddle(s0)",)), OutOfReach)


def test_a_package_has_no_guards_so_what_torch_assumed_is_said() -> None:
    assumed = ("40*s0 <= 2147483647",)
    found = judged(symbols={"s0": ROWS}, assumed=assumed, is_package=True)
    assert found == Limited(assumed, {"s0": 53_687_092})
    limited = {"s0": SizeSymbol("2", "4096", "30")}
    assert isinstance(judged(symbols=limited, is_package=True), Proven)


def test_kernels_that_an_h200_ran_are_proven() -> None:
    for name in ("h200_seed", "h200_autotune"):
        graphs = judge_recording(load(stored(name)))
        found = [kernel for graph in graphs for kernel in graph.index_types]
        assert found
        assert {kernel.verdict.kind for kernel in found} == {"proven"}
