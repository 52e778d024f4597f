"""Compares two recordings: matches compiles and graphs, then stages, fusions, kernels and runs."""

from __future__ import annotations

import difflib
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from pathlib import PurePosixPath
from typing import Generic, Literal, TypeVar

from inductoscope.analysis.diff.entities import (
    Difference,
    Fact,
    FusionChange,
    GraphDifference,
    KernelChange,
    OnlyIn,
    PassCount,
    StageComparison,
)
from inductoscope.analysis.diff.materials import (
    NAMED_BY_OTHERS,
    STAGES,
    Material,
    kernel_material,
    scheduler,
    why_missing,
    why_unnamed,
)
from inductoscope.analysis.diff.sides import Side, graph_lines
from inductoscope.model.entities import Compile, Process, Recording
from inductoscope.model.fx import FxGraph
from inductoscope.model.kernels import NativeIndex
from inductoscope.model.schedule import ScheduledNode
from inductoscope.recording.events import Kernel, Settings
from inductoscope.recording.values import members, texts
from inductoscope.torch_facts.stages import WRAPPER
from inductoscope.wording import count_of

_UNSEEN = (
    "The versions and the recorded environment variables are the same. {settings}: look for the "
    "cause in the program itself."
)
_SAME_SETTINGS = "So are the settings of torch._inductor, torch._dynamo and torch._functorch"
_NO_SETTINGS = "Settings made in the program were not recorded by this version of inductoscope"

Seconds = Mapping[str, tuple[float, float]]


def compare(first: Recording, second: Recording) -> Difference:
    """Return everything that differs, and what could not be compared."""
    compiles = match(
        _sides(first),
        _sides(second),
        lambda side: (side.rank, *_frame(side.compile), side.compile.line),
        lambda side: (side.rank, *_frame(side.compile)),
        lambda side: _lines(side.captured),
        lambda side: side.compile.function or None,
    )
    found = Difference(
        first=first.path,
        second=second.path,
        surroundings=surroundings(first, second),
        settings=different_settings(compiles.pairs),
        graphs=tuple(graph for pair in compiles.pairs for graph in _compare_compile(*pair)),
        only=tuple(_only(compiles)),
        outcomes=tuple(_outcomes(compiles)),
        seconds=_joined(_seconds(first), _seconds(second)),
        notes=(*notes(first, "first"), *notes(second, "second")),
    )
    if not found.differs or found.surroundings or found.settings:
        return found
    recorded = all(are_recorded(recording.compiles) for recording in (first, second))
    unseen = _UNSEEN.format(settings=_SAME_SETTINGS if recorded else _NO_SETTINGS)
    return replace(found, notes=(*found.notes, unseen))


def generate_same_code(first: Recording, second: Recording) -> bool:
    """Check whether two runs generated the same kernels and wrappers, up to names.

    They have to be compiled to machine code alike, too, as far as that was recorded.
    """
    found = compare(first, second)
    stages = [stage for graph in found.graphs for stage in graph.stages]
    generated = [stage.status for stage in stages if stage.stage in ("kernel", WRAPPER)]
    is_same = bool(generated) and {*generated} <= {"same", "renamed"} and not found.only
    return is_same and ("native", "different") not in {(s.stage, s.status) for s in stages}


def _differing(
    first: Mapping[str, str], second: Mapping[str, str], *, otherwise: str
) -> Iterator[Fact]:
    """Yield the named values that differ; `otherwise` stands where one side has none."""
    for name in dict.fromkeys((*first, *second)):
        one, other = first.get(name, otherwise), second.get(name, otherwise)
        if one != other:
            yield Fact(name, one, other)


# --- one compile ----------------------------------------------------------------------------------


def _sides(recording: Recording) -> list[Side]:
    """Return the compiles of a run; processes are told apart by rank, or else by order."""
    natives = NativeIndex(recording)
    compiling = dict.fromkeys(compile_.process for compile_ in recording.compiles)
    known = {process.stream: process.rank for process in recording.processes}
    ranks = {name: known.get(name) or f"#{n}" for n, name in enumerate(compiling)}
    return [
        Side(recording, compile_, None, natives, ranks[compile_.process])
        for compile_ in recording.compiles
    ]


def _frame(compile_: Compile) -> tuple[str, str]:
    """Return a frame's key, with the name of its file but not its folders, which are local."""
    return compile_.function, PurePosixPath(compile_.file).name


def _lines(graph: FxGraph | None) -> Hashable:
    return None if graph is None else graph_lines(graph)


def _compare_compile(one: Side, other: Side) -> Iterator[GraphDifference]:
    ours, theirs = (
        [replace(side, graph=graph) for graph in side.compile.inductor] for side in (one, other)
    )
    found = match(ours, theirs, _phase, lambda side: _lines(side.final))
    pairs = [*found.pairs]
    pairs += [(side, other) for side in found.only_first]
    pairs += [(one, side) for side in found.only_second]
    for number, pair in enumerate(pairs or [(one, other)]):
        yield _compare_graph(*pair, of_compile=number == 0)


def _phase(side: Side) -> Hashable:
    """Return the graph's key without the compile's number: 'forward', 'forward#2'."""
    graph = side.graph
    return (graph.key.partition(" ")[2] or graph.phase or None) if graph else None


def _compare_graph(first: Side, second: Side, *, of_compile: bool) -> GraphDifference:
    """Compare one graph; passes that belong to several go to the compile's first graph."""
    return GraphDifference(
        function=first.compile.function,
        place=first.compile.place,
        first=_key(first),
        second=_key(second),
        stages=tuple(compare_stages(first, second)),
        passes=tuple(_passes(first, second, of_compile=of_compile)),
        fusions=tuple(fusion_changes(first, second)),
        kernels=tuple(kernel_changes(first, second)),
        seconds=_joined(*(side.graph.seconds if side.graph else {} for side in (first, second))),
    )


def _key(side: Side) -> str:
    return side.graph.key if side.graph else ""


def _passes(first: Side, second: Side, *, of_compile: bool) -> Iterator[PassCount]:
    """Return the passes that changed the graph more often in one run than in the other."""
    if any(side.graph is None or side.graph.cached for side in (first, second)):
        return
    ours, theirs = _counted_passes(first, of_compile), _counted_passes(second, of_compile)
    for stage, name in dict.fromkeys((*ours, *theirs)):
        counts = ours[stage, name], theirs[stage, name]
        if counts[0] != counts[1]:
            yield PassCount(stage, name, *counts)


def _counted_passes(side: Side, of_compile: bool) -> Counter[tuple[str, str]]:
    wanted = {_key(side), *([""] if of_compile else [])}
    return Counter((p.stage, p.name) for p in side.compile.passes if p.graph in wanted)


# --- all compiles ---------------------------------------------------------------------------------


def _only(found: Matched[Side]) -> Iterator[OnlyIn]:
    for side in found.only_first:
        yield _only_in("first", side.compile)
    for side in found.only_second:
        yield _only_in("second", side.compile)


def _only_in(run: Literal["first", "second"], item: Compile) -> OnlyIn:
    return OnlyIn(run, item.id, item.function, item.place, item.outcome)


def _outcomes(found: Matched[Side]) -> Iterator[Fact]:
    """Return the compiles that ended differently, or broke in other places."""
    for one, other in found.pairs:
        name = f"{one.compile.function or one.compile.id} ({one.compile.place or 'unknown place'})"
        ours, theirs = (
            {name: _outcome(item), f"graph breaks in {name}": str(len(item.breaks))}
            for item in (one.compile, other.compile)
        )
        yield from _differing(ours, theirs, otherwise="")


def _outcome(compile_: Compile) -> str:
    raised = [error for error in compile_.errors if not error.swallowed]
    if raised:
        return f"{compile_.outcome}: {raised[-1].type} in stage {raised[-1].stage}"
    return compile_.outcome


def _seconds(recording: Recording) -> Mapping[str, float]:
    totals: Counter[str] = Counter()
    for compile_ in recording.compiles:
        totals.update(compile_.stage_seconds)
    return totals


def _joined(first: Mapping[str, float], second: Mapping[str, float]) -> Seconds:
    return {
        stage: (round(first.get(stage, 0.0), 6), round(second.get(stage, 0.0), 6))
        for stage in dict.fromkeys((*first, *second))
    }


# --- Which item of one run corresponds to which of the other --------------------------------------

Item = TypeVar("Item")
Key = Callable[[Item], Hashable]


@dataclass(frozen=True)
class Matched(Generic[Item]):
    """Matched pairs in the order of the first run, and the items without a counterpart."""

    pairs: tuple[tuple[Item, Item], ...]
    only_first: tuple[Item, ...]
    only_second: tuple[Item, ...]


def match(first: Sequence[Item], second: Sequence[Item], *keys: Key[Item]) -> Matched[Item]:
    """Pair items with equal keys, in order; try the next key on the items left over.

    A key of None never matches.
    """
    left, right = dict(enumerate(first)), dict(enumerate(second))
    found: dict[int, int] = {}
    for key_of in keys:
        waiting: dict[Hashable, list[int]] = defaultdict(list)
        for number, item in right.items():
            waiting[key_of(item)].append(number)
        for number, item in list(left.items()):
            key = key_of(item)
            if key is not None and waiting[key]:
                found[number] = waiting[key].pop(0)
                del left[number], right[found[number]]
    pairs = tuple((first[number], second[found[number]]) for number in sorted(found))
    return Matched(pairs, tuple(left.values()), tuple(right.values()))


# --- Compares one graph stage by stage ------------------------------------------------------------

_LONGEST_DIFF = 1000  # lines

# The edit operation, and the range of lines in each text that it applies to.
Change = tuple[str, int, int, int, int]


def compare_stages(first: Side, second: Side) -> Iterator[StageComparison]:
    for stage, extract in STAGES.items():
        one, other = extract(first), extract(second)
        unnamed = why_unnamed(first, second) if stage in NAMED_BY_OTHERS else ""
        if one is not None and other is not None:
            yield _compared(stage, one, other, unnamed)
        elif one is not None or other is not None:
            side, run = (second, "second") if other is None else (first, "first")
            why = why_missing(side, stage, run=run)
            yield StageComparison(stage, "not compared", why=why)


def _compared(stage: str, one: Material, other: Material, unnamed: str) -> StageComparison:
    """Compare a stage. `unnamed`: why names cannot be matched, so a difference may be theirs."""
    if one.canonical == other.canonical:
        same = one.lines == other.lines
        return StageComparison(stage, "same" if same else "renamed")
    operations = _changed_operations(one, other)
    if unnamed and not operations:
        return StageComparison(stage, "not compared", why=unnamed)
    return StageComparison(
        stage,
        "different",
        detail=operations or _first_line(one, other),
        diff=unified(one, other),
    )


def _changed_operations(one: Material, other: Material) -> str:
    ours, theirs = Counter(one.operations), Counter(other.operations)
    only = [("only in the first", ours - theirs), ("only in the second", theirs - ours)]
    return "; ".join(f"{where}: {_counted(names)}" for where, names in only if names)


def _counted(names: Counter[str]) -> str:
    shown = [f"{name} ({n} times)" if n > 1 else name for name, n in names.most_common(4)]
    return ", ".join(shown) + (", …" if len(names) > 4 else "")


def _first_line(one: Material, other: Material) -> str:
    """Return the first differing line, as both runs wrote it."""
    number = _first_change(one.canonical, other.canonical)
    return f"{_line(one, number)} became {_line(other, number)}"


def _first_change(one: Sequence[str], other: Sequence[str]) -> int:
    count = min(len(one), len(other))
    return next((number for number in range(count) if one[number] != other[number]), count)


def _line(material: Material, number: int) -> str:
    text = material.lines[number] if number < len(material.lines) else "(nothing)"
    squeezed = " ".join(text.split())
    return squeezed if len(squeezed) <= 120 else squeezed[:119] + "…"


def unified(one: Material, other: Material) -> str:
    """Diff under canonical names, and show the changed lines as each run wrote them.

    Comparing canonical lines keeps a renumbering from marking everything that follows.
    """
    lines = ["--- first", "+++ second"]
    for group in _changes(one.canonical, other.canonical):
        start, end = group[0], group[-1]
        lines.append(
            f"@@ -{start[1] + 1},{end[2] - start[1]} +{start[3] + 1},{end[4] - start[3]} @@"
        )
        for tag, a, b, c, d in group:
            mark = " " if tag == "equal" else "-"
            lines += [f"{mark}{line}" for line in one.lines[a:b]]
            if tag != "equal":
                lines += [f"+{line}" for line in other.lines[c:d]]
    more = len(lines) - _LONGEST_DIFF
    return "\n".join(lines[:_LONGEST_DIFF]) + (
        f"\n… {count_of(more, 'more line')}" if more > 0 else ""
    )


def _changes(one: Sequence[str], other: Sequence[str]) -> Iterator[list[Change]]:
    """Yield groups of changes with two lines of context.

    Matching takes time proportional to the product of both lengths, so the common prefix is
    skipped, and only as many lines are compared as can be shown.
    """
    start = max(0, _first_change(one, other) - 2)
    ends = min(len(one), start + _LONGEST_DIFF), min(len(other), start + _LONGEST_DIFF)
    parts = one[start : ends[0]], other[start : ends[1]]
    matcher = difflib.SequenceMatcher(None, *parts, autojunk=False)
    for group in matcher.get_grouped_opcodes(2):
        yield [(t, a + start, b + start, c + start, d + start) for t, a, b, c, d in group]


# --- Fusions that one run has and the other has not, with torch's reason for each -----------------

Identities = dict[str, Hashable]
Parts = list[list[ScheduledNode]]


def identities(first: Side, second: Side) -> tuple[Identities, Identities, str]:
    """Identify the scheduler nodes of both runs, and say how sure the match is.

    If both runs have the same schedule, a node is identified by its position; otherwise by its
    operations, and its number among nodes with the same ones.
    """
    one, other = scheduler(first), scheduler(second)
    if one is not None and other is not None and one.canonical == other.canonical:
        return _by_place(first), _by_place(second), "proven"
    return _by_operations(first), _by_operations(second), "likely"


def _by_place(side: Side) -> Identities:
    return {leaf.name: number for number, leaf in enumerate(side.before)}


def _by_operations(side: Side) -> Identities:
    seen: Counter[Hashable] = Counter()
    found: Identities = {}
    for leaf in side.before:
        key = (leaf.kind, leaf.loops, leaf.kernel, side.operations(leaf))
        found[leaf.name] = (key, seen[key])
        seen[key] += 1
    return found


def fusion_changes(first: Side, second: Side) -> Iterator[FusionChange]:
    """Yield fusions that changed, lost ones first; none if a run has no schedule."""
    if not (first.before and first.after and second.before and second.after):
        return
    ours, theirs, confidence = identities(first, second)
    yield from _torn("lost", (first, ours), (second, theirs), confidence)
    yield from _torn("gained", (second, theirs), (first, ours), confidence)


def _torn(
    what: Literal["lost", "gained"],
    fused: tuple[Side, Identities],
    torn: tuple[Side, Identities],
    confidence: str,
) -> Iterator[FusionChange]:
    """Yield changes for groups of `fused` whose nodes are in several groups of `torn`."""
    side, names = fused
    other, other_names = torn
    nodes = {other_names[leaf.name]: leaf for leaf in other.before}
    place = {
        other_names[leaf.name]: number
        for number, group in enumerate(other.after)
        for leaf in group.leaves
        if leaf.name in other_names
    }
    for group in side.after:
        parts: dict[int, list[ScheduledNode]] = defaultdict(list)
        for leaf in group.leaves:
            identity = names.get(leaf.name)
            if identity in place:
                parts[place[identity]].append(nodes[identity])
        for one, two in _neighbours(list(parts.values())):
            yield _change(what, other, one, two, confidence)


def _neighbours(parts: Parts) -> Iterator[tuple[list[ScheduledNode], list[ScheduledNode]]]:
    """Yield parts connected by data flow; parts that only share an input occur once each."""
    flowing = [(a, b) for a, b in combinations(parts, 2) if _flows(a, b) or _flows(b, a)]
    linked = {id(part) for pair in flowing for part in pair}
    yield from flowing
    for one, two in pairwise(parts):
        if id(one) not in linked or id(two) not in linked:
            yield one, two


def _flows(producers: list[ScheduledNode], consumers: list[ScheduledNode]) -> bool:
    written = {name for leaf in producers for name in leaf.writes}
    return any(name in written for leaf in consumers for name in leaf.reads)


def _change(
    what: Literal["lost", "gained"],
    torn: Side,
    one: list[ScheduledNode],
    two: list[ScheduledNode],
    confidence: str,
) -> FusionChange:
    reason, is_torchs = refusal(torn, {leaf.name for leaf in one}, {leaf.name for leaf in two})
    return FusionChange(
        what=what,
        operations=_operations_of_leaves(torn, one),
        others=_operations_of_leaves(torn, two),
        nodes=tuple(leaf.name for leaf in one),
        other_nodes=tuple(leaf.name for leaf in two),
        reason=reason,
        in_torchs_words=is_torchs,
        confidence=confidence,
    )


def _operations_of_leaves(side: Side, leaves: list[ScheduledNode]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for leaf in leaves for word in side.operations(leaf)))


def refusal(side: Side, one: set[str], two: set[str]) -> tuple[str, bool]:
    """Return why torch did not fuse two sets of nodes, and whether the words are torch's."""
    possible = False
    for pair in reversed(side.graph.pairs if side.graph else ()):
        first, second = set(pair.first.split("_")), set(pair.second.split("_"))
        if not ((first & one and second & two) or (first & two and second & one)):
            continue
        if not pair.possible and pair.reasons:
            return "; ".join(pair.reasons), True
        possible = possible or pair.possible
    if possible:
        return "torch found it possible, and fused otherwise", False
    return "torch does not say: it did not consider the pair", False


# --- Kernels added, removed and changed, told by the operations inside them -----------------------


def kernel_changes(first: Side, second: Side) -> Iterator[KernelChange]:
    """Yield changed kernels, then those that only one run has."""
    if not (first.graph and second.graph and first.graph.kernels and second.graph.kernels):
        return
    ours, theirs, _ = identities(first, second)
    found = match(
        [(kernel, _identity(kernel, ours)) for kernel in first.graph.kernels],
        [(kernel, _identity(kernel, theirs)) for kernel in second.graph.kernels],
        lambda item: item[1],
        lambda item: item[0].name,
    )
    for (one, _), (other, _) in found.pairs:
        diff = _source_diff(first, second, one, other)
        if diff:
            yield _kernel_change("changed", first, one, (other.name,), diff)
    if bool(first.before) != bool(second.before):
        return  # Names alone do not tell that a kernel is gone.
    for item, _ in found.only_first:
        yield _kernel_change("removed", first, item, _doing(item, ours, second, theirs))
    for item, _ in found.only_second:
        yield _kernel_change("added", second, item, _doing(item, theirs, first, ours))


def _identity(item: Kernel, names: Identities) -> Hashable:
    inside = frozenset(names[node] for node in item.nodes if node in names)
    library = item.name if item.language == "extern" else ""
    return (item.language, library, inside) if inside else None


def _source_diff(first: Side, second: Side, one: Kernel, other: Kernel) -> str:
    if one.payload and (one.payload, one.name) == (other.payload, other.name):
        return ""
    ours, theirs = kernel_material(first, one), kernel_material(second, other)
    if ours is None or theirs is None or ours.canonical == theirs.canonical:
        return ""
    return unified(ours, theirs)


def _kernel_change(
    what: Literal["added", "removed", "changed"],
    side: Side,
    item: Kernel,
    others: tuple[str, ...],
    diff: str = "",
) -> KernelChange:
    leaves = [leaf for leaf in side.before if leaf.name in item.nodes]
    operations = _operations_of_leaves(side, leaves) or item.origins
    return KernelChange(what, item.name, item.language, operations, others, diff)


def _doing(item: Kernel, names: Identities, other: Side, others: Identities) -> tuple[str, ...]:
    """Return the kernels of the other run that contain nodes of this one."""
    inside = {names[node] for node in item.nodes if node in names}
    kernels = other.graph.kernels if other.graph else ()
    return tuple(k.name for k in kernels if inside & {others.get(node) for node in k.nodes})


# --------------------------------------------------------------------------------------------------
# Settings of the compiler that differ: config modules, torch.compile's arguments, marked sizes.

_PLAIN_CALL = "torch.compile without arguments"


def different_settings(pairs: Iterable[tuple[Side, Side]]) -> tuple[Fact, ...]:
    """Return the settings in which compiles of the same functions differ, without repeats."""
    found = (fact for one, other in pairs for fact in _facts(one.compile, other.compile))
    return tuple(dict.fromkeys(found))


def are_recorded(compiles: Iterable[Compile]) -> bool:
    """Check whether a run recorded its settings, which earlier versions did not."""
    return any(compile_.settings is not None for compile_ in compiles)


def _facts(one: Compile, other: Compile) -> Iterator[Fact]:
    ours, theirs = one.settings, other.settings
    if ours is None or theirs is None:
        return
    yield from _differing(ours.config, theirs.config, otherwise="the default")
    if ours.arguments != theirs.arguments:
        yield Fact(
            _place("the call for", one), ours.call or _PLAIN_CALL, theirs.call or _PLAIN_CALL
        )
    if set(ours.marked) != set(theirs.marked):
        yield Fact(_place("marked sizes of", one), _marks(ours), _marks(theirs))


def _marks(settings: Settings) -> str:
    return ", ".join(settings.marked) or "none"


def _place(what: str, compile_: Compile) -> str:
    place = f" ({PurePosixPath(compile_.place).name})" if compile_.place else ""
    return f"{what} {compile_.function or 'a frame'}{place}"


# --- What differs about the runs themselves: versions, settings, targets, what each lacks ---------

# Locations of files do not affect the compiler's output.
_PLACES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_TRACE", "TMPDIR")


def surroundings(first: Recording, second: Recording) -> tuple[Fact, ...]:
    """Return the facts about the runs (versions, devices, environment) that differ."""
    one, other = dict(_facts_of_run(first)), dict(_facts_of_run(second))
    return tuple(_differing(one, other, otherwise="not set"))


def _facts_of_run(recording: Recording) -> Iterator[tuple[str, str]]:
    program = _program(recording)
    torch = program.torch if program else {}
    yield "torch", str(torch.get("version") or "unknown")
    for name in ("cuda", "hip"):
        if torch.get(name):
            yield name, str(torch[name])
    yield "Python", (program.python if program else "") or "unknown"
    yield "target", _target(recording)
    yield "devices", ", ".join(_devices(recording)) or "unknown"
    yield "arguments", " ".join(texts(recording.manifest.get("command"))[1:]) or "unknown"
    for name, value in members(recording.manifest.get("environment")).items():
        if name not in _PLACES:
            yield name, str(value)


def _program(recording: Recording) -> Process | None:
    compiling = {compile_.process for compile_ in recording.compiles}
    programs = [p for p in recording.processes if p.role == "program" and p.torch]
    return next((p for p in programs if p.stream in compiling), programs[0] if programs else None)


def _target(recording: Recording) -> str:
    """Return the GPU that the run compiled for without having it."""
    target = recording.manifest.get("target")
    name = members(target).get("name") if isinstance(target, dict) else target
    return str(name or "the machine's own")


def _devices(recording: Recording) -> list[str]:
    languages = {k.language for graph in recording.graphs for k in graph.kernels}
    return sorted({"C++": "cpu", "Triton": "gpu"}[name] for name in languages & {"C++", "Triton"})


def notes(recording: Recording, run: str) -> Iterator[str]:
    """Yield the parts of a recording that cannot be compared, and why."""
    if recording.damage:
        where, what = recording.damage[0]
        parts = count_of(len(recording.damage), "part")
        yield (
            f"The {run} recording is damaged: {parts} could not be read ({where}: {what}). "
            "What was there counts as missing."
        )
    cached = [graph.key for graph in recording.graphs if graph.cached]
    if cached:
        graphs = f"{count_of(len(cached), 'graph')} out of a cache ({', '.join(cached[:4])})"
        yield (
            f"The {run} run took {graphs}: "
            "no IR, no fusion and no kernels are recorded of them. Record with 'run --fresh'."
        )
    for process in recording.processes:
        if process.stopped:
            yield f"The {run} recording stopped before the end: {process.stopped}."
        if process.views_off:
            yield f"In the {run} run views were off: {'; '.join(process.views_off)}."
