"""What each stage of the compiler does, when to look at it, and which symptoms live there.

The texts are data, in the order of the compiler: one entry per stage in `STAGES`. Findings and
stalls are not here: the docstrings of their rules explain them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from inductoscope.errors import UsageError
from inductoscope.views.explain.entities import StageEntry, Topic, TorchSwitch
from inductoscope.views.explain.frontend import FRONTEND
from inductoscope.views.explain.graphs import GRAPHS
from inductoscope.views.explain.inductor import INDUCTOR_STAGES
from inductoscope.views.explain.output import OUTPUT
from inductoscope.views.explain.topics import CONFIDENCES, VERDICTS, VIEWS

__all__ = [
    "CONFIDENCES",
    "STAGES",
    "VERDICTS",
    "VIEWS",
    "StageEntry",
    "Topic",
    "TorchSwitch",
    "find_stage",
    "nearest",
    "one_line",
    "stage_summary",
    "stages_by_symptom",
]

STAGES: tuple[StageEntry, ...] = (*FRONTEND, *GRAPHS, *INDUCTOR_STAGES, *OUTPUT)

# Words too common to tell symptoms apart.
_COMMON = {"a", "an", "the", "is", "are", "in", "of", "and", "or", "to", "it", "with", "my", "on"}


def find_stage(name: str) -> StageEntry | None:
    """The stage with this name or alias."""
    wanted = name.strip().lower().replace("_", "-")
    by_name = (stage for stage in STAGES if stage.name == wanted)
    by_alias = (stage for stage in STAGES if wanted in stage.aliases)
    return next(by_name, None) or next(by_alias, None)


def stage_summary(name: str) -> str:
    """One or two sentences about a stage; empty if there is no such stage."""
    stage = find_stage(name)
    return stage.summary if stage else ""


def one_line(stage: str) -> str:
    """The line above a stage's view; empty if there is no such stage."""
    summary = stage_summary(stage)
    return f"{summary} More: 'inductoscope explain {stage}'." if summary else ""


def stages_by_symptom(words: Iterable[str]) -> list[tuple[StageEntry, tuple[str, ...]]]:
    """Stages whose symptoms contain the words, best match first, with those symptoms."""
    wanted = {_stem(word) for text in words for word in _words(text)}
    if not wanted:
        raise UsageError("Describe a symptom in words, for example 'wrong gradient'.")
    found = []
    for stage in STAGES:
        texts = [
            (text, _matches(wanted, text)) for text in (*stage.symptoms, *stage.look_here_when)
        ]
        best = max((count for _, count in texts), default=0)
        if best:
            shown = tuple(text for text, count in texts if count == best)
            found.append((best, sum(count for _, count in texts), stage, shown))
    most = max((best for best, *_ in found), default=0)
    ranked = sorted(found, key=lambda item: (-item[0], -item[1]))
    return [(stage, shown) for best, _, stage, shown in ranked if best == most]


def _matches(wanted: set[str], text: str) -> int:
    return len(wanted & {_stem(word) for word in _words(text)})


def _words(text: str) -> list[str]:
    return [word for word in re.findall(r"[a-z0-9+-]+", text.lower()) if word not in _COMMON]


def _stem(word: str) -> str:
    """Just enough to match 'hangs' with 'hang', and 'fused' with 'fusion'."""
    for ending in ("ing", "ion", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Known names similar to `name`, best match first."""
    return difflib.get_close_matches(name.lower(), list(known), n=3, cutoff=0.5)
