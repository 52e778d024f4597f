"""Which choices of which operation were submitted, finished, failed, or never finished.

torch compiles the choices of one operation together, as a group, and may wait for it only much
later. So an unfinished choice is stuck only if torch waits for its group and nothing later in
the log shows that the wait is over; until torch waits for the group, it is pending.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from inductoscope.hangs.logs.choice import whole_choice
from inductoscope.hangs.logs.groups import ChoiceState, Group, GroupState, Progress
from inductoscope.hangs.logs.lines import FAILED_CHOICE, pattern_of, recognise
from inductoscope.hangs.logs.origin import Origin
from inductoscope.vocabulary.line_meanings import LineMeaning

# Groups that are over are kept so that a reader can look at them, but not all of a long log.
_MOST_OVER = 64


class AutotuneFold:
    """Builds groups from log lines, of one program."""

    def __init__(self) -> None:
        self._open: OrderedDict[int, Group] = OrderedDict()
        self._over: list[Group] = []
        self._forgotten = 0
        self._number = 0
        self._awaited: dict[str, Group] = {}
        self._operation: dict[str, tuple[str, str]] = {}
        self._waiting: dict[str, Origin] = {}
        self._error: dict[str, str] = {}
        self.choices_seen = 0

    @property
    def groups(self) -> list[Group]:
        """All that are kept, in the order in which they began."""
        found = [*self._over, *self._open.values()]
        return sorted(found, key=lambda group: group.origin.line)

    @property
    def over(self) -> int:
        """How many groups are over."""
        return len(self._over) + self._forgotten

    def take(self, text: str, origin: Origin) -> bool:
        """Take one message; False if it says nothing about autotuning."""
        pattern = recognise(text)
        if pattern is None:
            if FAILED_CHOICE in text:
                self._failed(text, origin)
                return True
            return False
        return self.take_line(pattern.head, text, origin)

    def take_line(self, head: str, text: str, origin: Origin) -> bool:
        """Take a message whose pattern is known."""
        if head == FAILED_CHOICE:
            self._failed(text, origin)
            return True
        pattern = pattern_of(head)
        if pattern is None or pattern.meaning is None:
            return False
        handler = _HANDLERS.get(pattern.meaning)
        if handler is None:
            return False
        match = pattern.expression.match(text)
        values = match.groups() if match else (text[len(head) :],)
        if pattern.meaning in _NAMES_A_CHOICE:
            choice = self._named(values[0].removeprefix(" "), origin)
            if choice is None:
                return True
            values = (choice, *values[1:])
        handler(self, values, origin)
        return True

    def _named(self, text: str, origin: Origin) -> str | None:
        """The choice that a line names; for a cut line, the only one that it can be."""
        choice = whole_choice(text)
        if choice is not None:
            return choice
        known = {c for g in self._open.values() for c in g.choices if c.startswith(text)}
        if len(known) == 1:
            return known.pop()
        group = self._awaited_group(origin) or next(reversed(self._open.values()), None)
        if group is not None:
            group.cut += 1
        return None

    # --- which group ------------------------------------------------------------------------------

    def _begin(self, origin: Origin) -> Group:
        self._number += 1
        group = Group(origin=origin, last=origin)
        self._open[self._number] = group
        return group

    def _latest(self, origin: Origin) -> Group:
        """The group that a submission belongs to: the last one of its compile."""
        for group in reversed(self._open.values()):
            if group.origin.compile_id == origin.compile_id and group.stage is GroupState.SUBMITTED:
                return group
        return self._begin(origin)

    def _holding(self, text: str, origin: Origin) -> Group:
        """The group that a result belongs to. Threads write no compile id."""
        waiting = self._awaited.get(origin.compile_id)
        if waiting is not None and text in waiting.choices:
            return waiting
        groups = list(self._open.values())
        holding = [group for group in groups if text in group.choices]
        same = [g for g in holding if g.origin.compile_id == origin.compile_id]
        if same or holding:
            return (same or holding)[0]
        return waiting or (groups[-1] if groups else self._begin(origin))

    def _state(self, group: Group, text: str, origin: Origin) -> ChoiceState:
        group.last = origin
        state = group.choices.get(text)
        if state is None:
            state = group.choices[text] = ChoiceState(text)
        if len(state.origins) < 8:
            state.origins.append(origin)
        return state

    # --- handlers ---------------------------------------------------------------------------------

    def _choices(self, values: tuple[str, ...], origin: Origin) -> None:
        self.choices_seen += 1

    def _group(self, values: tuple[str, ...], origin: Origin) -> None:
        group = self._begin(origin)
        group.announced = _whole(values[0])
        group.threads = _whole(values[1]) if len(values) > 1 else None

    def _submitted_to_pool(self, values: tuple[str, ...], origin: Origin) -> None:
        self._state(self._latest(origin), values[0], origin).to_pool = True

    def _submitted(self, values: tuple[str, ...], origin: Origin) -> None:
        self._state(self._latest(origin), values[0], origin)

    def _started(self, values: tuple[str, ...], origin: Origin) -> None:
        group = next(
            (g for g in reversed(self._open.values()) if values[0] in g.choices),
            None,
        )
        if group is None:
            # The thread may be faster than the one that submits.
            groups = list(self._open.values())
            group = groups[-1] if groups else self._begin(origin)
        state = self._state(group, values[0], origin)
        group.starts += 1
        if state.progress is Progress.SUBMITTED:
            state.progress = Progress.STARTED

    def _skipped(self, values: tuple[str, ...], origin: Origin) -> None:
        group = self._latest(origin)
        if values[0] not in group.choices:
            self._state(group, values[0], origin).progress = Progress.SKIPPED

    def _finished(self, values: tuple[str, ...], origin: Origin) -> None:
        text = values[0]
        state = self._state(self._confirm(text, origin), text, origin)
        state.progress = Progress.FINISHED
        state.seconds = _number(values[1]) if len(values) > 1 else None

    def _exception(self, values: tuple[str, ...], origin: Origin) -> None:
        if len(values) < 2:
            self._error[origin.compile_id] = values[0]
            return
        choice = self._named(values[1], origin)
        if choice is not None:
            self._fail(choice, values[0], origin)

    def _failed(self, text: str, origin: Origin) -> None:
        """The last line of a message of several: 'rest of it for benchmark choice X'."""
        message, _, rest = text.rpartition(FAILED_CHOICE)
        first = self._error.pop(origin.compile_id, "")
        choice = self._named(rest, origin)
        if choice is None:
            return
        self._fail(choice, f"{first} {message}".strip().removeprefix("Exception "), origin)

    def _fail(self, choice: str, message: str, origin: Origin) -> None:
        state = self._state(self._confirm(choice, origin), choice, origin)
        state.progress = Progress.FAILED
        state.message = message[:2000]

    def _timed_out(self, values: tuple[str, ...], origin: Origin) -> None:
        state = self._state(self._confirm(values[0], origin), values[0], origin)
        state.progress = Progress.TIMED_OUT

    def _time_out(self, values: tuple[str, ...], origin: Origin) -> None:
        group = self._awaited_group(origin)
        if group is not None:
            group.timed_out_after = _whole(values[0])
            group.last = origin

    def _next_operation(self, values: tuple[str, ...], origin: Origin) -> None:
        shapes = values[1] if len(values) > 1 else ""
        self._operation[origin.compile_id] = (values[0], shapes)

    def _wait(self, values: tuple[str, ...], origin: Origin) -> None:
        """torch waits for one of the groups; the line does not say which."""
        self._close(origin)
        self._waiting[origin.compile_id] = origin
        candidates = self._candidates(origin)
        if len(candidates) == 1:
            self._await(candidates[0], origin)

    def _candidates(self, origin: Origin) -> list[Group]:
        mine = [g for g in self._open.values() if g.origin.compile_id == origin.compile_id]
        return [g for g in mine if g.stage is GroupState.SUBMITTED]

    def _await(self, group: Group, origin: Origin) -> None:
        group.stage = GroupState.AWAITED
        group.awaited_at = self._waiting.pop(origin.compile_id, None)
        group.last = origin
        group.operation, group.shapes = self._operation.pop(
            origin.compile_id, (group.operation, group.shapes)
        )
        self._awaited[origin.compile_id] = group

    def _confirm(self, text: str, origin: Origin) -> Group:
        """The group of a result: results come only while torch waits for it."""
        group = self._holding(text, origin)
        if group.stage is GroupState.SUBMITTED:
            current = self._awaited.get(group.origin.compile_id)
            if current is not None and current is not group:
                self._finish(current)
            self._await(group, origin)
        return group

    def _awaited_group(self, origin: Origin) -> Group | None:
        return self._awaited.get(origin.compile_id)

    def _complete(self, values: tuple[str, ...], origin: Origin) -> None:
        """Names no choice, so it says nothing that the later line does not."""

    def _precompiled(self, values: tuple[str, ...], origin: Origin) -> None:
        self._waiting.pop(origin.compile_id, None)
        group = self._awaited_group(origin)
        if group is None:
            # Choices that were not precompiled, or a truncated log.
            candidates = self._candidates(origin)
            group = candidates[0] if len(candidates) == 1 else None
        if group is not None and group.stage in (GroupState.SUBMITTED, GroupState.AWAITED):
            group.stage, group.last = GroupState.COMPILED, origin
            self._awaited[origin.compile_id] = group

    def _benchmarking(self, values: tuple[str, ...], origin: Origin) -> None:
        self._precompiled(values, origin)
        group = self._awaited_group(origin)
        if group is None:
            group = self._begin(origin)
            self._awaited[origin.compile_id] = group
        group.stage, group.last = GroupState.BENCHMARKING, origin
        if origin.compile_id in self._operation:
            group.operation, group.shapes = self._operation.pop(origin.compile_id)

    def _benchmarked(self, values: tuple[str, ...], origin: Origin) -> None:
        self._close(origin)

    def _close(self, origin: Origin) -> None:
        group = self._awaited.get(origin.compile_id)
        if group is not None:
            group.last = origin
            self._finish(group)

    def _finish(self, group: Group) -> None:
        group.stage = GroupState.OVER
        for compile_id in [key for key, value in self._awaited.items() if value is group]:
            del self._awaited[compile_id]
        for number in [key for key, value in self._open.items() if value is group]:
            del self._open[number]
            self._over.append(group)
        if len(self._over) > _MOST_OVER:
            self._forgotten += 1
            del self._over[0]

    def compile_is_over(self, compile_id: str) -> None:
        """The compile finished, so torch waits for none of its groups."""
        for group in [g for g in self._open.values() if g.origin.compile_id == compile_id]:
            self._finish(group)
        self._waiting.pop(compile_id, None)

    def printed_table(self) -> None:
        """The table of results: printed by no compile in particular, after a benchmark."""
        measured = [g for g in self._open.values() if g.stage is GroupState.BENCHMARKING]
        measured = measured or [g for g in self._open.values() if g.stage is GroupState.AWAITED]
        if len(measured) == 1:
            self._finish(measured[0])

    def is_busy(self, *, benchmarking: bool) -> bool:
        """Whether torch waits for a group or benchmarks it."""
        waits = (
            (GroupState.BENCHMARKING,)
            if benchmarking
            else (GroupState.AWAITED, GroupState.COMPILED)
        )
        return any(group.stage in waits for group in self._open.values())

    def unclear_waits(self) -> Iterator[tuple[Origin, list[Group]]]:
        """Waits for which the log does not name the group."""
        for origin in self._waiting.values():
            candidates = self._candidates(origin)
            if candidates:
                yield origin, candidates


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


_NAMES_A_CHOICE = (
    LineMeaning.SUBMITTED_TO_POOL,
    LineMeaning.SUBMITTED_TO_THREAD,
    LineMeaning.STARTED,
    LineMeaning.SKIPPED,
    LineMeaning.FINISHED,
    LineMeaning.TIMED_OUT,
)
_Handler = Callable[[AutotuneFold, tuple[str, ...], Origin], None]
_HANDLERS: dict[LineMeaning, _Handler] = {
    LineMeaning.CHOICES: AutotuneFold._choices,
    LineMeaning.GROUP: AutotuneFold._group,
    LineMeaning.SUBMITTED_TO_POOL: AutotuneFold._submitted_to_pool,
    LineMeaning.SUBMITTED_TO_THREAD: AutotuneFold._submitted,
    LineMeaning.STARTED: AutotuneFold._started,
    LineMeaning.SKIPPED: AutotuneFold._skipped,
    LineMeaning.FINISHED: AutotuneFold._finished,
    LineMeaning.FAILED: AutotuneFold._exception,
    LineMeaning.TIMED_OUT: AutotuneFold._timed_out,
    LineMeaning.TIME_OUT: AutotuneFold._time_out,
    LineMeaning.OPERATION: AutotuneFold._next_operation,
    LineMeaning.WAITING: AutotuneFold._wait,
    LineMeaning.COMPLETE: AutotuneFold._complete,
    LineMeaning.PRECOMPILED: AutotuneFold._precompiled,
    LineMeaning.BENCHMARKING: AutotuneFold._benchmarking,
    LineMeaning.BENCHMARKED: AutotuneFold._benchmarked,
}
