"""Compares one graph stage by stage."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence

from inductoscope.analysis.diff.entities import StageComparison
from inductoscope.analysis.diff.materials import NAMED_BY_OTHERS, STAGES, Material
from inductoscope.analysis.diff.missing import why_missing, why_unnamed
from inductoscope.analysis.diff.side import Side
from inductoscope.vocabulary.counting import count_of

_LONGEST_DIFF = 1000  # lines

# What to do, and the ranges of lines in both that it is done with.
Change = tuple[str, int, int, int, int]


def compare_stages(first: Side, second: Side) -> Iterator[StageComparison]:
    """Every stage that at least one of the runs went through, in the compiler's order."""
    for stage, extract in STAGES.items():
        one, other = extract(first), extract(second)
        unnamed = why_unnamed(first, second) if stage in NAMED_BY_OTHERS else ""
        if one is not None and other is not None:
            yield _compared(stage, one, other, unnamed)
        elif one is not None:
            why = why_missing(second, stage, run="second")
            yield StageComparison(stage, "not compared", why=why)
        elif other is not None:
            why = why_missing(first, stage, run="first")
            yield StageComparison(stage, "not compared", why=why)


def _compared(stage: str, one: Material, other: Material, unnamed: str) -> StageComparison:
    """`unnamed`: why names cannot be told from each other, so that a difference may be theirs."""
    if one.canonical == other.canonical:
        same = one.lines == other.lines
        return StageComparison(stage, "same" if same else "renamed")
    operations = _operations(one, other)
    if unnamed and not operations:
        return StageComparison(stage, "not compared", why=unnamed)
    return StageComparison(
        stage,
        "different",
        detail=operations or _first_line(one, other),
        diff=unified(one, other),
    )


def _operations(one: Material, other: Material) -> str:
    """Operations that only one of two graphs has."""
    ours, theirs = Counter(one.operations), Counter(other.operations)
    only = [("only in the first", ours - theirs), ("only in the second", theirs - ours)]
    return "; ".join(f"{where}: {_counted(names)}" for where, names in only if names)


def _counted(names: Counter[str]) -> str:
    shown = [f"{name} ({n} times)" if n > 1 else name for name, n in names.most_common(4)]
    return ", ".join(shown) + (", …" if len(names) > 4 else "")


def _first_line(one: Material, other: Material) -> str:
    """The first line that is not the same, as both runs wrote it."""
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
    """The lines that changed under canonical names, as each run wrote them.

    Comparing canonical lines keeps a renumbering from marking everything that follows.
    """
    lines = ["--- first", "+++ second"]
    for group in _changes(one.canonical, other.canonical):
        start, end = group[0], group[-1]
        lines.append(
            f"@@ -{start[1] + 1},{end[2] - start[1]} +{start[3] + 1},{end[4] - start[3]} @@"
        )
        for tag, a, b, c, d in group:
            if tag == "equal":
                lines += [f" {line}" for line in one.lines[a:b]]
                continue
            lines += [f"-{line}" for line in one.lines[a:b]]
            lines += [f"+{line}" for line in other.lines[c:d]]
    more = len(lines) - _LONGEST_DIFF
    return "\n".join(lines[:_LONGEST_DIFF]) + (
        f"\n… {count_of(more, 'more line')}" if more > 0 else ""
    )


def _changes(one: Sequence[str], other: Sequence[str]) -> Iterator[list[Change]]:
    """Groups of changes with two lines around each.

    Matching takes time with the product of both lengths, so what both begin with is left out, and
    of what follows only so much is looked at as can be shown.
    """
    start = max(0, _first_change(one, other) - 2)
    ends = min(len(one), start + _LONGEST_DIFF), min(len(other), start + _LONGEST_DIFF)
    parts = one[start : ends[0]], other[start : ends[1]]
    matcher = difflib.SequenceMatcher(None, *parts, autojunk=False)
    for group in matcher.get_grouped_opcodes(2):
        yield [(t, a + start, b + start, c + start, d + start) for t, a, b, c, d in group]
