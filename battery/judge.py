"""Compares a verdict with the truth."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from battery.fault import CLEAN, Fault

# Kinds whose fault can be shown by a script of a few nodes.
PROVABLE = ("wrong-result", "nan", "crash", "compile-error", "hang")


@dataclass(frozen=True)
class Result:
    """One line of the battery's file of results."""

    name: str
    kind: str
    stage: str
    said_kind: str
    said_stage: str
    said_summary: str
    kind_right: bool
    stage_right: bool
    culprit_right: bool
    verified: bool
    nodes: int | None
    seconds: float

    @property
    def named(self) -> bool:
        return self.kind_right and self.stage_right and self.culprit_right

    @property
    def provable(self) -> bool:
        return self.kind in PROVABLE

    @property
    def minimised(self) -> bool:
        """Few enough nodes to read at a glance."""
        return self.verified and self.nodes is not None and self.nodes <= SMALL

    def as_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


# Nodes of a reproducer that count as minimal: the faults need one to three.
SMALL = 4


def judge(
    fault: Fault, verdict: dict[str, Any] | None, seconds: float, why_none: str = ""
) -> Result:
    """A missing verdict is a miss that says why there was none."""
    found = verdict or {}
    truth = fault.truth
    repro = found.get("repro") or {}
    kind, stage = str(found.get("verdict", "no verdict")), str(found.get("stage", ""))
    text = json.dumps(found, ensure_ascii=False)
    names = truth.culprit_names
    return Result(
        name=fault.name,
        kind=truth.kind,
        stage=truth.stage,
        said_kind=kind,
        said_stage=stage,
        said_summary=str(found.get("summary", why_none)),
        kind_right=kind == truth.kind,
        # Nothing was found in a healthy program, so that there is no stage to name.
        stage_right=stage in truth.stages if truth.kind != CLEAN else kind == CLEAN,
        culprit_right=bool(found) and (not names or any(occurs(name, text) for name in names)),
        verified=repro.get("verified") is True,
        nodes=repro.get("nodes") if isinstance(repro.get("nodes"), int) else None,
        seconds=round(seconds, 1),
    )


def occurs(name: str, text: str) -> bool:
    """Anywhere and in any case; a short name only as a word, for `sin` is also in `using`."""
    pattern = re.escape(name)
    if len(name) <= SHORT:
        pattern = rf"(?<![a-z0-9]){pattern}(?![a-z0-9])"
    return re.search(pattern, text, re.IGNORECASE) is not None


SHORT = 4
