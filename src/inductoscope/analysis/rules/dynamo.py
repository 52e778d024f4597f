"""Rules about Dynamo: graph breaks, recompiles, guards, ranks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from inductoscope.analysis.ranks.comparing import RankDifference, RankSide
from inductoscope.analysis.ranks.decisions import KINDS, Weight
from inductoscope.analysis.ranks.recorded import ranks_of
from inductoscope.analysis.ranks.report import RankReport, ranks_text
from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Compile, Recording
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.guard_reasons import FailedGuard, read_guard
from inductoscope.wording import count_of

# --- graph breaks ---------------------------------------------------------------------------------

_EXPLANATION = re.compile(r"^\s*Explanation: (.+)$", re.MULTILINE)
_HINT = re.compile(r"^\s*Hint: (.+)$", re.MULTILINE)
# Hints that say nothing about the user's program.
_EMPTY_HINT = re.compile(
    r"report an issue|possible to write Dynamo tracing rules|caused by an earlier graph break"
    r"|This is likely to be a Dynamo bug"
)
# torch's name for a break that it cannot resume from, because the frame is inside a loop.
_IN_LOOP = "graph break in loop"


@dataclass
class BrokenLine:
    """A line that breaks graphs for one reason, or that leaves one function to eager."""

    source: str
    reason: str
    in_eager: str  # The function that ran in eager; empty if only the graph broke.
    stack: tuple[str, ...] = ()
    code: str = ""
    compiles: list[str] = field(default_factory=list)

    @property
    def times(self) -> str:
        """The count in brackets; empty for one."""
        return f" ({len(self.compiles)} times)" if len(self.compiles) > 1 else ""

    def finding(self, title: str, advice: str) -> Finding:
        """Return a finding on this line, with the known details."""
        return Finding(
            title=f"{title}: {short_reason(self.reason)}",
            is_problem=True,
            evidence=(f"reported by Dynamo in compile {', '.join(dict.fromkeys(self.compiles))}",),
            advice=f"{advice} All hints: 'inductoscope show --stage breaks'.",
            stage=stages.DYNAMO,
            stack=self.stack,
        ).at(self.compiles[0], self.source, self.code)


def graph_breaks(recording: Recording) -> Iterator[Finding]:
    """Lines where Dynamo had to break the graph.

    What it finds: every line of your program where Dynamo ended a graph and started another, with
    the reason torch gives.

    Why it matters: nothing is fused or optimised across a break, and each one costs time on every
    call.

    Example: a `print` in a compiled function, a branch on the value of a tensor.

    What to do: torch's own hint is quoted; `fullgraph=True` turns breaks into errors.
    """
    for line in broken_lines(recording):
        if not line.in_eager:
            yield line.finding(f"Graph break{line.times}", first_hint(line.reason))


def ran_in_eager(recording: Recording) -> Iterator[Finding]:
    """Functions that Dynamo gave up on, so that they ran in eager.

    What it finds: every function under torch.compile that Dynamo left to eager, with the line and
    the reason torch gives.

    Why it matters: nothing of the function itself is compiled, and torch says so only in its logs.

    Example: a graph break inside a `for` loop, from which Dynamo cannot resume.

    What to do: remove what breaks the graph, or compile the body of the loop instead of the loop.
    `fullgraph=True` turns this into an error.
    """
    for line in broken_lines(recording):
        if line.in_eager:
            in_loop = _IN_LOOP in line.reason
            why = "its graph breaks inside a loop" if in_loop else "Dynamo gave up on it"
            instead = " Or compile the body of the loop instead of the loop." if in_loop else ""
            title = f"Your function {line.in_eager} ran in eager{line.times}, because {why}"
            yield line.finding(title, f"{first_hint(line.reason)}{instead}")


def broken_lines(recording: Recording) -> list[BrokenLine]:
    """Merge the breaks of all compiles: one entry per line and reason."""
    places: dict[tuple[str, str, str], BrokenLine] = {}
    for compile_ in recording.compiles:
        for found in _places_of(compile_):
            key = (found.source, short_reason(found.reason), found.in_eager)
            place = places.setdefault(key, found)
            place.compiles.append(compile_.id)
            if len(found.stack) > len(place.stack):  # A whole stack says more than its inner end.
                place.stack = found.stack
    return list(places.values())


def _places_of(compile_: Compile) -> Iterator[BrokenLine]:
    """Yield the breaks of a compile, or the error at which Dynamo gave up without a break."""
    given_up = [
        error
        for error in compile_.errors
        if error.swallowed and "recompile limit" not in error.message.lower()
    ]
    name = compile_.function or "?"
    if compile_.resumed:
        name = f"{compile_.resumed.partition(' at ')[0]}, from the break at its line on,"
    for item in compile_.breaks:
        left = name if given_up else ""
        yield BrokenLine(item.source, item.reason, left, item.stack, item.code)
    for error in given_up if not compile_.breaks else ():
        yield BrokenLine(error.source or compile_.place, error.message, name)


def short_reason(text: str) -> str:
    """Return the sentence of torch's explanation that gives the reason."""
    explanation = _EXPLANATION.search(text)
    if explanation is not None:
        return explanation[1].strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")


def first_hint(reason: str) -> str:
    """Return the first of torch's hints that says what to change in the program."""
    hints = [hint.strip() for hint in _HINT.findall(reason) if not _EMPTY_HINT.search(hint)]
    return hints[0] if hints else "Move this line out of the compiled function."


# --- recompiles and guards ------------------------------------------------------------------------

# torch gives up at 8; a frame that is halfway there will not settle by itself.
RECOMPILE_LIMIT = 4
_VALUES_SHOWN = 4
FEWEST_MICROSECONDS = 100.0
# Taken from torch's documentation of skip_guard_eval_unsafe.
SKIPPED_GUARDS = (
    "This flag is unsafe [...] If this assumption [that no further recompilations will be "
    "necessary] fails, there is a risk of silently producing incorrect results"
)


def recompiles(recording: Recording) -> Iterator[Finding]:
    """Functions that are recompiled again and again.

    What it finds: a function of your program that was recompiled at least four times, or that
    reached torch's own limit, after which inputs that fit none of its compiled versions run in
    eager.

    Why it matters: each recompile costs as much as the first compile.

    Example: a Python number with a guard on it that changes on every call.

    What to do: pass what changes as a tensor, or mark the size as dynamic
    (`torch._dynamo.mark_dynamic`).
    """
    frames: dict[tuple[str, str, str], list[Compile]] = {}
    for compile_ in recording.compiles:
        if compile_.recompile is not None:
            key = (compile_.process, compile_.function, compile_.place)
            frames.setdefault(key, []).append(compile_)
    # Ranks that recompile the same are one finding.
    same: dict[tuple[object, ...], list[list[Compile]]] = {}
    for (_, function, place), compiles in frames.items():
        if limit_of(compiles) or len(compiles) >= RECOMPILE_LIMIT:
            key_of_all = (function, place, limit_of(compiles), tuple(_reasons(compiles)))
            same.setdefault(key_of_all, []).append(compiles)
    for every in same.values():
        yield _recompiled(every[0], processes=len(every))


def limit_of(compiles: Sequence[Compile]) -> str:
    """Return the limit of torch that the compiles reached; empty if none."""
    return next((c.recompile.limit for c in compiles if c.recompile and c.recompile.limit), "")


def main_guard(compiles: Sequence[Compile]) -> FailedGuard:
    """Return the guard that failed most often, which is the one to fix."""
    guards = [read_guard(reason) for reason in _reasons(compiles)]
    often = Counter(guard.about for guard in guards)
    return max(guards, key=lambda guard: often[guard.about], default=FailedGuard(""))


def _reasons(compiles: Sequence[Compile]) -> Iterator[str]:
    """Yield the first failed guard of each recompile."""
    for compile_ in compiles:
        for reason in compile_.recompile.reasons[:1] if compile_.recompile else ():
            if reason.strip():
                yield reason


def _recompiled(compiles: list[Compile], processes: int) -> Finding:
    first, main, limit = compiles[0], main_guard(compiles), limit_of(compiles)
    name = f"The rest of {first.resumed}" if first.resumed else first.function
    where = f" in each of {processes} processes" if processes > 1 else ""
    ended = (
        f"; torch's {limit} refused the next recompile, so inputs that no compiled version fits "
        "now run in eager (the others still run compiled)"
        if limit
        else ""
    )
    times = count_of(sum(compile_.is_recompile for compile_ in compiles), "time")
    callers = next((c.recompile.callers for c in compiles if c.recompile), ())
    return Finding(
        title=f"{name} was recompiled {times}{where}{ended}",
        is_problem=True,
        evidence=tuple(_failed_guards(compiles)),
        advice=main.what_to_change,
        stage=stages.DYNAMO,
        stack=(*callers, *(str(frame) for frame in main.stack)),
    ).at(
        compiles[-1].id,
        str(main.stack[-1]) if main.stack else first.place,
        main.stack[-1].code if main.stack else "",
    )


def _failed_guards(compiles: Sequence[Compile]) -> Iterator[str]:
    """Group guards by subject: only its values change."""
    alike: dict[str, list[FailedGuard]] = {}
    for guard in map(read_guard, _reasons(compiles)):
        alike.setdefault(guard.about, []).append(guard)
    for same in alike.values():
        values = list(dict.fromkeys(guard.value for guard in same))
        more = "".join(f", {value}" for value in values[1:_VALUES_SHOWN] if value)
        left_out = ", …" if len(values) > _VALUES_SHOWN else ""
        times = f" {len(same)} times" if len(same) > 1 else ""
        yield f"guard that failed{times}: {same[0].condition}{more}{left_out}"


def slow_guards(recording: Recording) -> Iterator[Finding]:
    """Guards that take long on every call.

    What it finds: a compiled function whose guards take at least 100 microseconds to evaluate,
    measured when they were built, and the values that they look at longest.

    Why it matters: torch evaluates the guards of a compiled function on every call, before anything
    is computed. A function with several compiled versions evaluates those of each until one fits.

    Example: a model with thousands of submodules that takes 1 ms to compute.

    What to do: Compile a larger part, so that one call does more work. If what the guards look at
    never changes after the first calls, `torch.compiler.set_stance(skip_guard_eval_unsafe=True)`
    evaluates only those that tell compiled versions apart. Torch calls it unsafe: if something does
    change, results are silently wrong.
    """
    slowest: dict[tuple[str, str], tuple[float, Compile]] = {}
    for compile_ in recording.compiles:
        took, key = compile_.guard_microseconds or 0.0, (compile_.function, compile_.place)
        if took >= FEWEST_MICROSECONDS and (key not in slowest or took > slowest[key][0]):
            slowest[key] = took, compile_
    for took, compile_ in slowest.values():
        values = [f"those on {source}: {own:.0f} µs" for source, own in compile_.costly_guards]
        yield Finding(
            title=f"{compile_.guard_count} guards of {compile_.function} take {took:.0f} µs on "
            "every call",
            evidence=(
                "measured when they were built, the fastest of several evaluations",
                *values[:3],
            ),
            advice="Compile a larger part at once. If what they look at never changes: "
            "torch.compiler.set_stance(skip_guard_eval_unsafe=True) after the first calls. "
            f'Torch warns: "{SKIPPED_GUARDS}."',
            stage=stages.DYNAMO,
        ).at(compile_.id, compile_.place)


# --- ranks ----------------------------------------------------------------------------------------


def ranks_differ(recording: Recording) -> Iterator[Finding]:
    """Ranks of one job that compiled something else than the others.

    What it finds: the first decision with which a rank leaves the majority of the ranks: another
    graph, other collectives or another order of them, a guard that failed only there. Where no
    value has a majority, nobody is accused.

    Why it matters: ranks of one process group that call different collectives wait for each other
    forever. Different graphs are by design where ranks do different work, as stages of a pipeline
    do.

    Example: `if rank == 0: loss = all_reduce(loss)` inside the compiled function.

    What to do: make the branch the same on all ranks. `inductoscope preflight --world N SCRIPT`
    tells before a job is started whether its ranks agree.
    """
    report = ranks_of(recording)
    if report is None:
        return
    for odd in report.comparison.odd:
        if odd.weight is not Weight.COST and not odd.others_may_follow:
            ranks = ranks_text(odd.odd.ranks)
            title = f"{ranks[0].upper()}{ranks[1:]} left the others at {odd.key}"
            title += f": {KINDS[odd.kind].words}"
            yield _divided(report, odd, (odd.odd, odd.majority), title)
    for split in report.comparison.splits:
        if split.weight is not Weight.COST and not split.is_by_rank:
            title = f"Ranks are divided over {KINDS[split.kind].words} at {split.key}"
            yield _divided(report, split, split.sides[:2], title)


def _divided(
    report: RankReport, difference: RankDifference, sides: Sequence[RankSide], title: str
) -> Finding:
    evidence = [f"{ranks_text(side.ranks)}: {side.text}" for side in sides]
    line = report.first_lines.get((difference.kind, difference.key))
    if line is not None:
        evidence.append(f"line {line.number}: {line.here or '(nothing)'}")
        evidence.append(f"instead of: {line.there or '(nothing)'}")
    return Finding(
        title=title,
        is_problem=difference.is_deadly,
        confidence="likely",
        evidence=tuple(evidence),
        advice="Make the branch that leads there the same on all ranks. Before the next job: "
        "inductoscope preflight --world N SCRIPT."
        if difference.is_deadly
        else "Nothing to do if these ranks are to do different work, as stages of a pipeline do.",
        compile=difference.key.partition(" ")[0],
    )
