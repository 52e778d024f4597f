"""Explanations of stages, findings, verdicts, views and stalls.

The texts about stages are data, one entry per stage in `STAGES`. The docstrings of rules explain
findings, and the tables of verdicts and kinds of stalls these.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from inductoscope.errors import UsageError
from inductoscope.verdicts import CONFIDENCES, VERDICTS, VerdictDefinition
from inductoscope.views.explain.stages import STAGES, VIEWS, StageEntry

__all__ = [
    "STAGES",
    "StageEntry",
    "Topic",
    "find_stage",
    "one_line",
    "stage_summary",
    "stages_by_symptom",
    "topics",
    "verdicts_by_symptom",
]


@dataclass(frozen=True)
class Topic:
    """Something that has a name and can be explained; stages have more to say than this."""

    kind: str
    name: str
    summary: str
    # Paragraphs by their titles.
    parts: dict[str, str] = field(default_factory=dict)


def topics(kind: str = "") -> list[Topic]:
    """Return everything that can be explained, or all of one kind."""
    return [topic for topic in _every_topic() if kind in ("", topic.kind)]


def _every_topic() -> Iterator[Topic]:
    # `show` explains stages alone, and is not to wait for the rules to be loaded.
    from inductoscope.analysis.rules import RULES
    from inductoscope.hangs.watch.kinds import KINDS

    yield from (Topic("stage", stage.name, stage.summary) for stage in STAGES)
    yield from map(_finding, RULES)
    for kind, known in (("verdict", VERDICTS), ("confidence", CONFIDENCES)):
        for one in known:
            yield Topic(kind, one.name, one.meaning, {"What to do": one.what_to_do})
    for name, summary, what_to_do in VIEWS:
        yield Topic("view", name, summary, {"What to do": what_to_do})
    yield from (Topic("stall", name, kind.summary) for kind in KINDS for name in kind.names)


def _finding(rule: Any) -> Topic:
    text = inspect.getdoc(rule) or ""
    head, *paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
    parts = [part.partition(": ") for part in paragraphs]
    return Topic("finding", rule.__name__, head, {title: text for title, _, text in parts})


# Stop words: they join words, or say where something happened rather than what.
_COMMON = frozenset(
    (
        *("a", "an", "the", "is", "are", "was", "in", "of", "and", "or", "not", "to", "it", "with"),
        *("my", "on", "i", "get", "from", "at", "for", "this", "that", "only", "but"),
        *("after", "before", "when", "while", "during"),
        *("training", "model", "loss", "program", "script", "torch"),
    )
)

# The minimum score of a listed stage, relative to the best match.
_ALMOST = 0.75


def find_stage(name: str) -> StageEntry | None:
    """Find a stage by name or alias; None if there is none."""
    wanted = name.strip().lower().replace("_", "-")
    by_name = (stage for stage in STAGES if stage.name == wanted)
    by_alias = (stage for stage in STAGES if wanted in stage.aliases)
    return next(by_name, None) or next(by_alias, None)


def stage_summary(name: str) -> str:
    stage = find_stage(name)
    return stage.summary if stage else ""


def one_line(stage: str) -> str:
    """Return the line above a stage's view; empty if the stage does not exist."""
    summary = stage_summary(stage)
    return f"{summary} More: 'inductoscope explain {stage}'." if summary else ""


def stages_by_symptom(words: Iterable[str]) -> list[tuple[StageEntry, tuple[str, ...]]]:
    """Find stages whose symptoms contain the words, best match first, with those symptoms."""
    wanted = _stems(" ".join(words))
    if not wanted:
        raise UsageError("Describe a symptom in words, for example 'wrong gradient'.")
    telling = _how_telling(wanted)
    found = []
    for stage in STAGES:
        texts = [
            (text, sum(telling[stem] for stem in wanted & _stems(text))) for text in _of(stage)
        ]
        best = max((score for _, score in texts), default=0.0)
        if best:
            shown = tuple(text for text, score in texts if score == best)
            found.append((best, sum(score for _, score in texts), stage, shown))
    most = max((best for best, *_ in found), default=0.0)
    ranked = sorted(found, key=lambda item: (-item[0], -item[1]))
    return [(stage, shown) for best, _, stage, shown in ranked if best >= _ALMOST * most]


def verdicts_by_symptom(words: Iterable[str]) -> list[VerdictDefinition]:
    """Find verdicts whose whole name is among the words: 'loss is nan' names the verdict nan."""
    wanted = _stems(" ".join(words))
    return [one for one in VERDICTS if _stems(one.name.replace("-", " ")) <= wanted]


def _of(stage: StageEntry) -> tuple[str, ...]:
    return (*stage.symptoms, *stage.look_here_when)


def _how_telling(stems: Iterable[str]) -> dict[str, float]:
    """Weight words by rarity among symptoms, like IDF: 'nan' tells more than 'compile'."""
    texts = [_stems(text) for stage in STAGES for text in _of(stage)]
    found_in = {stem: sum(stem in text for text in texts) for stem in stems}
    return {stem: math.log(1 + len(texts) / max(1, number)) for stem, number in found_in.items()}


def _stems(text: str) -> set[str]:
    words = re.findall(r"[a-z0-9+-]+", text.lower())
    return {_stem(word) for word in words if word not in _COMMON}


def _stem(word: str) -> str:
    """Stem a word just enough to match 'hangs' with 'hang', and 'fused' with 'fusion'."""
    for ending in ("ing", "ion", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word
