"""Reduces the TORCH_LOGS text of one rank to decisions: fewer than a trace has."""

from __future__ import annotations

import re
from collections import Counter

from inductoscope.analysis.ranks.decisions import Decision, RankProgress
from inductoscope.analysis.ranks.graph_text import (
    collective_lines,
    collectives_in,
    digest,
    orders_in_groups,
)
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.counting import count_of
from inductoscope.vocabulary.guard_reasons import read_guard

_COMPILE = r"\[(?P<compile>!?[\d/]*\d+/\d+)(?:_\d+)?\]"
_TRACING = re.compile(
    rf"^{_COMPILE}.*torchdynamo start tracing (?P<name>\S+) (?P<file>\S+):(?P<line>\d+)"
)
_FAILED = re.compile(rf"^{_COMPILE} \[__recompiles\]\s+- (?P<reason>\d+/\d+: .*)")
_CACHE = re.compile(rf"^{_COMPILE}.*\bFX (?:graph )?cache (?P<state>hit|miss)\b", re.IGNORECASE)
_GRAPH = re.compile(rf"^{_COMPILE} \[__post_grad_graphs\] (?P<line>.*)")
_TABLE = re.compile(r"^(?:\[\w+\]:? ?)?AUTOTUNE (?P<operation>\w+\(.*\))")
_ROW = re.compile(
    r"^(?:\[\w+\]:? ?)?\s*(?P<choice>[A-Za-z_]\w+)\s+[\d.]+ ms\s+100\.0%\s*(?P<how>.*)"
)


class TextDecisions:
    """Takes the lines of one rank in turn."""

    def __init__(self) -> None:
        self._decisions: dict[tuple[str, str], Decision] = {}
        self._turns: Counter[str] = Counter()
        self._operation = ""
        # Lines of graphs, by compile, as far as collectives need them.
        self._graphs: dict[str, list[str]] = {}

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """In the order in which they were taken."""
        for compile_id in list(self._graphs):
            self._close_graph(compile_id)
        return tuple(self._decisions.values())

    @property
    def progress(self) -> RankProgress:
        """Text does not tell for sure whether a compile is under way."""
        return RankProgress.AT_REST

    def take(self, text: str, *, in_torch: bool) -> None:
        """Take what follows the header of a line, or a line without one."""
        if not in_torch:
            self._take_printed(text)
            return
        for pattern, reader in _READERS:
            found = pattern.match(text)
            if found:
                reader(self, found)
                return

    def take_tracing(self, found: re.Match[str]) -> None:
        """Dynamo begins with a frame."""
        file = found["file"].replace("\\", "/").rpartition("/")[2]
        shown = f"{found['name']} {file}:{found['line']}"
        self._add(Decision("compile", found["compile"], shown, shown, found["compile"]))

    def take_failed(self, found: re.Match[str]) -> None:
        """A guard failed."""
        compile_id = found["compile"]
        if ("guard", compile_id) not in self._decisions:
            shown = read_guard(found["reason"]).condition
            self._add(Decision("guard", compile_id, shown, shown, compile_id))

    def take_cache(self, found: re.Match[str]) -> None:
        """The cache was asked."""
        key = self._key(f"{found['compile']} FX graph cache")
        state = found["state"].lower()
        self._add(Decision("cache", key, state, state, found["compile"]))

    def take_graph(self, found: re.Match[str]) -> None:
        """A line of a graph that is printed."""
        compile_id, line = found["compile"], found["line"]
        if "class " in line and "torch.nn.Module" in line:
            self._close_graph(compile_id)
        self._graphs.setdefault(compile_id, []).append(line)

    def _close_graph(self, compile_id: str) -> None:
        lines = self._graphs.pop(compile_id, [])
        if not any("def forward" in line for line in lines):
            return
        found = collectives_in("\n".join(lines))
        orders = orders_in_groups(found)
        key = self._key(f"{compile_id} post-grad graph")
        shown = count_of(len(found), "collective")
        made = Decision("collectives", key, digest(collective_lines(found)), shown, compile_id)
        self._add(made._replace(groups=tuple(orders), orders=tuple(orders.values())))

    def _take_printed(self, text: str) -> None:
        """Autotuning prints a table without a header; its first row is the winner."""
        table = _TABLE.match(text)
        if table:
            self._operation = self._key(f"autotuning of {table['operation']}")
            return
        row = _ROW.match(text) if self._operation else None
        if row:
            shown = f"{row['choice']} {row['how']}".strip()
            self._add(Decision(stages.AUTOTUNE, self._operation, shown, shown))
            self._operation = ""

    def _key(self, name: str) -> str:
        turn = self._turns[name]
        self._turns[name] += 1
        return f"{name} {turn + 1}" if turn else name

    def _add(self, decision: Decision) -> None:
        self._decisions[decision.kind, decision.key] = decision


_READERS = (
    (_TRACING, TextDecisions.take_tracing),
    (_FAILED, TextDecisions.take_failed),
    (_CACHE, TextDecisions.take_cache),
    (_GRAPH, TextDecisions.take_graph),
)
