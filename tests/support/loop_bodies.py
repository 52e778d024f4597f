"""Loop bodies as a recording has them, and what is said of the buffers that they read."""

from __future__ import annotations

from inductoscope.analysis.bounds.accesses import BodyJudge, PointBudget
from inductoscope.analysis.bounds.sizes import AdmittedSizes
from inductoscope.analysis.bounds.verdicts import Verdict
from inductoscope.model.memory import GraphMemory, Room, SizeSymbol
from inductoscope.model.schedule import IndirectIndex
from inductoscope.torch_facts.loop_bodies import read_body


def body_text(ranges: str, index: str, *more: str) -> str:
    """A body that loads x at an index."""
    return "\n".join(
        (
            f"var_ranges = {ranges}",
            f"index0 = {index}",
            "def body(self, ops):",
            "    get_index = self.get_index('index0')",
            "    load = ops.load('x', get_index)",
            *more,
        )
    )


def masked_text(ranges: str, index: str, compared: str, *, limit: str) -> str:
    """A body that loads x only where 0 <= compared < limit."""
    return "\n".join(
        (
            f"var_ranges = {ranges}",
            f"index0 = {compared}",
            f"index1 = {index}",
            f"index2 = {limit}",
            "def body(self, ops):",
            "    get_index = self.get_index('index0')",
            "    index_expr = ops.index_expr(get_index, torch.int64)",
            "    constant = ops.constant(0, torch.int64)",
            "    ge = ops.ge(index_expr, constant)",
            "    get_index_1 = self.get_index('index2')",
            "    index_expr_1 = ops.index_expr(get_index_1, torch.int64)",
            "    lt = ops.lt(index_expr, index_expr_1)",
            "    and_ = ops.and_(ge, lt)",
            "    masked_subblock1 = self.masked_subblock1(and_, 0.0)",
            "    return masked_subblock1",
            "def masked_subblock1(self, ops):",
            "    get_index = self.get_index('index1')",
            "    load = ops.load('x', get_index)",
            "    return load",
        )
    )


def judged(
    text: str,
    size: tuple[str, ...],
    stride: tuple[str, ...],
    *,
    symbols: dict[str, SizeSymbol] | None = None,
    assumed: tuple[str, ...] = (),
    indirect: dict[str, IndirectIndex] | None = None,
    replacements: dict[str, str] | None = None,
    storage: str = "",
) -> Verdict:
    """The verdict on the last load of x. `storage`: the bytes of the memory that x is in."""
    around = {"before": "0", "bytes": storage, "recorded_itemsize": 4} if storage else {}
    rooms = {
        "x": Room(size, stride, is_input=True, **around),
        "i": Room(("5",), ("1",), is_input=True),
    }
    sizes = AdmittedSizes(GraphMemory(rooms, symbols or {}, replacements or {}, assumed))
    body = read_body(text)
    judge = BodyJudge(body, sizes, indirect or {}, PointBudget(100_000))
    found = [(access, judge.judge(access)) for access in body.accesses]
    return [verdict for access, verdict in found if access.buffer == "x"][-1]


def value_text(*lines: str) -> str:
    """A body that loads x at a value computed from p0."""
    return "\n".join(
        (
            "var_ranges = {p0: 300}",
            "index0 = p0",
            "index1 = indirect0",
            "def body(self, ops):",
            "    get_index = self.get_index('index0')",
            "    v0 = ops.index_expr(get_index, torch.int64)",
            *(f"    {line}" for line in lines),
            "    set_indirect0 = self.set_indirect0(value)",
            "    get_index_1 = self.get_index('index1')",
            "    load = ops.load('x', get_index_1)",
        )
    )


# How x is addressed by what `value_text` computes.
PLAIN = {"set_indirect0": IndirectIndex("indirect0", "300", is_checked=False, wraps=False)}
