"""The compile decisions of a rank, in order; one form for traces, logs and recordings."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeVar

from inductoscope.torch_facts import stages
from inductoscope.torch_facts.guard_reasons import read_guard
from inductoscope.torch_facts.printed_graphs import (
    code_lines,
    collective_lines,
    collectives_in,
    compared_once,
    digest,
    graph_lines,
    guard_lines,
    orders_in_groups,
    saved_tensors,
    tuned_choices,
)
from inductoscope.torch_facts.stage_lookup import stage_of_phase
from inductoscope.torch_facts.torch_trace import read_event
from inductoscope.wording import count_of


class Weight(str, Enum):
    """The severity of a difference in a decision."""

    # Actual calls say more than the collectives in a graph, so each has its own weight.
    CALLS = "calls"
    COLLECTIVES = "collectives"
    PROGRAM = "program"
    COST = "cost"


# Ranks that differ in decisions of these weights deadlock.
DEADLY = (Weight.CALLS, Weight.COLLECTIVES)


class DecisionKind(NamedTuple):
    """A kind of decision: its weight and its title.

    `skipped_on_hit`: ranks with a cache hit may lack the decision.
    """

    weight: Weight
    words: str
    skipped_on_hit: bool = False


# Titles as in the output. A new kind needs one line here, and one in each source that records it.
KINDS: dict[str, DecisionKind] = {
    "compile": DecisionKind(Weight.PROGRAM, "the function that is compiled"),
    "guard": DecisionKind(Weight.PROGRAM, "a guard that failed"),
    "graph": DecisionKind(Weight.PROGRAM, "the graph", skipped_on_hit=True),
    "partition": DecisionKind(
        Weight.PROGRAM, "what the forward pass saves for the backward pass", skipped_on_hit=True
    ),
    "collectives": DecisionKind(
        Weight.COLLECTIVES, "the order of collectives in the graph", skipped_on_hit=True
    ),
    "collective": DecisionKind(Weight.CALLS, "a collective that was called"),
    stages.GUARDS: DecisionKind(Weight.COST, "the guards of the compiled code"),
    "cache": DecisionKind(Weight.COST, "the cache look-up", skipped_on_hit=True),
    "cache key": DecisionKind(Weight.COST, "the key in the cache", skipped_on_hit=True),
    stages.AUTOTUNE: DecisionKind(Weight.COST, "the choices of autotuning", skipped_on_hit=True),
    "code": DecisionKind(Weight.COST, "the generated code", skipped_on_hit=True),
}


class RankProgress(str, Enum):
    """How far a rank has come, as far as its log tells."""

    ENDED = "ended"
    # Between compiles: missing decisions may still come.
    AT_REST = "at rest"
    # Inside a compile when its log ends.
    BUSY = "busy"


class Decision(NamedTuple):
    """A decision. `key` identifies it, and is the same on every rank that makes it.

    `value` is compared, often a digest; `shown` is displayed. `among` has the ranks that make the
    decision, if not all do; `groups` has the process groups of collectives, and `orders` has for
    each group one short hash per collective, in order.
    """

    kind: str
    key: str
    value: str
    shown: str = ""
    compile: str = ""
    among: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()
    orders: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return self.shown or self.value


@dataclass(frozen=True)
class RankLog:
    """The data of one rank that is compared."""

    rank: int
    decisions: tuple[Decision, ...] = ()
    # Seconds of each stage, measured by the rank's own clock.
    stage_seconds: tuple[tuple[str, float], ...] = ()
    progress: RankProgress = RankProgress.AT_REST
    # The form of the log: only ranks read from the same form are compared.
    form: str = "trace"
    files: tuple[str, ...] = ()
    began: str = ""
    # Whether other ranks wrote into the same files.
    among_others: bool = False


# --- One order for the decisions of all ranks -----------------------------------------------------

Key = TypeVar("Key", bound=tuple[str, ...])


def merged_order(lists: Sequence[Sequence[Key]]) -> list[Key]:
    """Merge lists of keys: every key occurs once, after the key that it follows in its list."""
    following: dict[Key | None, Key | None] = {None: None}
    seen: set[tuple[Key, ...]] = set()
    for keys in lists:
        as_tuple = tuple(keys)
        if as_tuple in seen:
            continue  # Most ranks decide the same.
        seen.add(as_tuple)
        before: Key | None = None
        for key in as_tuple:
            if key not in following:
                following[key] = following[before]
                following[before] = key
            before = key
    order: list[Key] = []
    key_or_none = following[None]
    while key_or_none is not None:
        order.append(key_or_none)
        key_or_none = following[key_or_none]
    return order


# --- Seconds of each stage, from the beginnings and ends of phases in a trace ---------------------
#
# Only differences of one clock are taken: clocks of different hosts are never compared.

# Waits for kernels, whichever compiler they go to: the phase does not say whether it is Triton's.
_WAITS = re.compile(r"async_compile|PyCodeCache")


class StageClock:
    """A sum of the seconds in each stage, excluding nested phases."""

    def __init__(self) -> None:
        self._open: dict[str, list[_OpenPhase]] = {}
        self._seconds: dict[str, float] = defaultdict(float)

    @property
    def is_open(self) -> bool:
        return any(self._open.values())

    @property
    def stage_seconds(self) -> tuple[tuple[str, float], ...]:
        """The stages that took time."""
        found = self._seconds.items()
        return tuple((stage, round(seconds, 6)) for stage, seconds in found if seconds > 0)

    def take_event(self, compile_id: str, payload: str) -> None:
        data = payload.encode()
        kind, name, seconds = read_event(data, 0, len(data)) or ("", "", 0.0)
        if not seconds:
            return
        phases = self._open.setdefault(compile_id, [])
        if kind == "begin":
            phases.append(_OpenPhase(name, seconds))
        else:
            self._end(phases, name, seconds)

    def _end(self, phases: list[_OpenPhase], name: str, time: float) -> None:
        """End a phase, and all phases left open inside it."""
        if all(phase.name != name for phase in phases):
            return  # It began before the log does.
        while (phase := phases.pop()).name != name:
            pass
        took = max(0.0, time - phase.began)
        stage = stages.WAITING if _WAITS.match(name) else stage_of_phase(name)
        self._seconds[stage] += max(0.0, took - phase.inside)
        if phases:
            phases[-1].inside += took

    def add(self, stage: str, seconds: float) -> None:
        self._seconds[stage] += seconds


@dataclass
class _OpenPhase:
    """A phase that has not ended, and the seconds of the phases that ended inside it."""

    name: str
    began: float
    inside: float = 0.0


# --- Reduces what one rank compiled to its decisions and the seconds of its stages ----------------
#
# It takes the records of a TORCH_TRACE; what a recording holds is handed to it in the same form.

# Graphs by the name of their record, in the order in which torch writes them. Collectives are
# looked for where they are single operations; passes of Inductor may change their order once more.
GRAPHS = {
    "dynamo_output_graph": "Dynamo's graph",
    "aot_joint_graph": "joint graph",
    "aot_forward_graph": "forward graph",
    "aot_backward_graph": "backward graph",
    "aot_inference_graph": "inference graph",
    "inductor_post_grad_graph": "post-grad graph",
}
_WITH_COLLECTIVES = (
    "aot_forward_graph",
    "aot_backward_graph",
    "aot_inference_graph",
    "inductor_post_grad_graph",
)
_FORWARD = "aot_forward_graph"
_SCHEDULE = "inductor_collective_schedule"
_CACHES = {"fx_graph_cache": "FX graph cache", "aotautograd_cache": "AOTAutograd cache"}
_CACHE = re.compile(r"^(fx_graph_cache|aotautograd_cache)_(hit|miss|bypass)$")
_KEY = re.compile(r'"key": "([^"\\]+)"')
_ATTEMPT = re.compile(r"_\d+$")
_MOST_SHOWN = 160


class DecisionFold:
    """A fold of the records of one rank, taken in order, into decisions."""

    def __init__(self) -> None:
        self._decisions: dict[tuple[str, str], Decision] = {}
        self._files: dict[int, str] = {}
        self._turns: Counter[tuple[str, str]] = Counter()
        self.clock = StageClock()
        # The compared lines of the decisions that were requested.
        self.lines: dict[tuple[str, str], list[str]] = {}
        self.keeps_lines = False

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return tuple(self._decisions.values())

    @property
    def progress(self) -> RankProgress:
        """Whether the rank was inside a compile at its last record."""
        return RankProgress.BUSY if self.clock.is_open else RankProgress.AT_REST

    def take(self, name: str, compile_id: str, head: str, payload: str) -> None:
        """Add a record: its name, or that of an artifact; its line of JSON; its payload."""
        compile_id = _ATTEMPT.sub("", compile_id)
        reader = _READERS.get(name)
        if reader is not None:
            reader(self, compile_id, head, payload)
        elif name in GRAPHS:
            self._take_graph(name, compile_id, payload)
        else:
            self._take_cache(name, compile_id, payload)

    # --- one kind of record each ------------------------------------------------------------------

    def take_file_name(self, _compile: str, head: str, _payload: str) -> None:
        """Note the number of a file name, which torch writes once and then refers to."""
        found = re.search(r'\{"str": \["((?:[^"\\]|\\.)*)", (\d{1,9})\]', head)
        if found:
            self._files[int(found[2])] = found[1].replace("\\", "/").rpartition("/")[2]

    def take_start(self, compile_id: str, head: str, _payload: str) -> None:
        """Begin a frame. Dynamo may restart its analysis, which voids the first attempt."""
        frames = re.findall(r'\{"line": (\d{1,9}), "name": "([^"]*)", "filename": (\d{1,9})', head)
        shown = "?"
        if frames:
            line, name, number = frames[-1]
            shown = f"{name} {self._files.get(int(number), '?')}:{line}"
        self.begin(compile_id, shown)

    def begin(self, compile_id: str, function: str) -> None:
        """Begin the compile of a frame; a second attempt replaces the first."""
        self._forget(compile_id)
        self._add(Decision("compile", compile_id, function, function, compile_id))

    def _forget(self, compile_id: str) -> None:
        old = [key for key, one in self._decisions.items() if one.compile == compile_id]
        for key in old:
            if key[0] != "guard":  # Why it is compiled at all is written before it begins.
                del self._decisions[key]
        for turn in [turn for turn in self._turns if turn[0] == compile_id]:
            del self._turns[turn]

    def take_guard(self, compile_id: str, _head: str, payload: str) -> None:
        """Add a failed guard, which caused a recompile."""
        reasons = _loaded(payload)
        texts = [str(item) for item in reasons] if isinstance(reasons, list) else [str(reasons)]
        conditions = [read_guard(text).condition for text in texts] or [payload[:_MOST_SHOWN]]
        shown = "; ".join(dict.fromkeys(conditions))
        self._add(Decision("guard", compile_id, shown, _short(shown), compile_id))

    def take_guards(self, compile_id: str, _head: str, payload: str) -> None:
        self._add_read(stages.GUARDS, compile_id, compile_id, payload, guard_lines)

    def take_code(self, compile_id: str, _head: str, payload: str) -> None:
        """Add generated code, and the autotuning choices in it."""
        self.take_choices(compile_id, tuned_choices(payload))
        self._add_read("code", self._key(compile_id, "code"), compile_id, payload, code_lines)

    def take_choices(self, compile_id: str, choices: list[str]) -> None:
        if choices:
            shown = choices[0] if len(choices) == 1 else count_of(len(choices), "choice")
            key = self._key(compile_id, "autotuning")
            self._add_text(stages.AUTOTUNE, key, compile_id, choices, shown)

    def take_schedule(self, compile_id: str, _head: str, payload: str) -> None:
        """Add the collectives in the order in which the scheduler left them."""
        names = _loaded(payload)
        lines = [str(name) for name in names] if isinstance(names, list) else []
        if lines:
            shown = count_of(len(lines), "collective")
            key = self._key(compile_id, "schedule")
            self._add_text("collectives", key, compile_id, lines, shown)

    # --- graphs and caches ------------------------------------------------------------------------

    def _take_graph(self, name: str, compile_id: str, payload: str) -> None:
        key = self._key(compile_id, GRAPHS[name])
        if name == _FORWARD:
            saved = saved_tensors(payload)
            shown = f"returns and saves {count_of(len(saved), 'tensor')}"
            self._add_text("partition", compile_id, compile_id, saved, shown)
        self._add_read("graph", key, compile_id, payload, graph_lines)
        if name in _WITH_COLLECTIVES:
            self._take_collectives(key, compile_id, payload)

    def _take_collectives(self, key: str, compile_id: str, payload: str) -> None:
        found = collectives_in(payload)
        lines, orders = collective_lines(found), orders_in_groups(found)
        self._add_text("collectives", key, compile_id, lines, count_of(len(lines), "collective"))
        made = self._decisions["collectives", key]
        # Graphs with collectives in different groups cannot deadlock.
        self._add(made._replace(groups=tuple(orders), orders=tuple(orders.values())))

    def _take_cache(self, name: str, compile_id: str, payload: str) -> None:
        found = _CACHE.match(name)
        if found is None:
            return
        key = self._key(compile_id, _CACHES[found[1]])
        self._add(Decision("cache", key, found[2], found[2], compile_id))
        in_cache = _KEY.search(payload)
        if in_cache:
            self._add(Decision("cache key", key, in_cache[1], _short(in_cache[1]), compile_id))

    # --- adding -----------------------------------------------------------------------------------

    def _key(self, compile_id: str, what: str) -> str:
        """Number repeated decisions of a compile: forward and backward, or inner graphs."""
        turn = self._turns[compile_id, what]
        self._turns[compile_id, what] += 1
        again = f" {turn + 1}" if turn else ""
        return f"{compile_id} {what}{again}"

    def _add(self, decision: Decision) -> None:
        self._decisions[decision.kind, decision.key] = decision

    def _add_read(
        self, kind: str, key: str, compile_id: str, payload: str, read: Callable[[str], list[str]]
    ) -> None:
        """Add a long text; a text that other ranks share is parsed only once."""
        value, lines = compared_once(payload, read)
        self._add(Decision(kind, key, value, count_of(lines, "line"), compile_id))
        if self.keeps_lines:
            self.lines[kind, key] = read(payload)

    def _add_text(self, kind: str, key: str, compile_id: str, lines: list[str], shown: str) -> None:
        self._add(Decision(kind, key, digest(lines), shown, compile_id))
        if self.keeps_lines:
            self.lines[kind, key] = lines


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 1] + "…"


def _loaded(payload: str) -> object:
    try:
        found: object = json.loads(payload)
    except ValueError:
        return payload.strip() or None
    return found


_Reader = Callable[[DecisionFold, str, str, str], None]
_READERS: dict[str, _Reader] = {
    "str": DecisionFold.take_file_name,
    "dynamo_start": DecisionFold.take_start,
    "recompile_reasons": DecisionFold.take_guard,
    "dynamo_cpp_guards_str": DecisionFold.take_guards,
    "inductor_output_code": DecisionFold.take_code,
    _SCHEDULE: DecisionFold.take_schedule,
    "chromium_event": lambda fold, id_, _head, payload: fold.clock.take_event(id_, payload),
}


def reads_record(name: str) -> bool:
    """Check whether a record holds a decision."""
    return name in GRAPHS or name in _READERS or _CACHE.match(name) is not None
