"""Recordings of one small graph whose schedule is written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductoscope.analysis.fusion import LedgerRow, ledger
from inductoscope.model.fold import load
from support.examples import write_recording

# What the payload with a hand-written schedule is called.
NODES = "aa" + 30 * "1"


def node(name: str, reads: str, **more: Any) -> dict[str, Any]:
    """A scheduler node opN that writes bufN."""
    made = f"buf{name.removeprefix('op')}"
    users = more.pop("users", "OUTPUT").split()
    size = [str(n) for n in more.pop("size", [1024])]
    buffer = {"name": made, "users": users, "dtype": "torch.float32", "size": size, "stride": ["1"]}
    return {
        "name": name, "class": "SchedulerNode", "ir": "ComputedBuffer", "device": "cpu",
        "reads": reads.split(), "writes": [made], "buffers": [buffer], "origins": [f"x_{name}"],
        **more,
    }  # fmt: skip


def graph(
    folder: Path,
    nodes: list[dict[str, Any]],
    *events: dict[str, Any],
    more: Mapping[str, str] | None = None,
) -> Path:
    """A recording of one graph with these nodes, in which this was decided about fusion."""
    common = {"graph": "0/0 inference", "round": 1}
    return write_recording(
        folder,
        {"kind": "compile-start", "compile": "0/0"},
        {"kind": "scheduler", "graph": "0/0 inference", "when": "before", "payload": NODES},
        *({**common, **event} for event in events),
        {"kind": "fusion-round", **common, "before": len(nodes), "after": len(nodes)},
        payloads={NODES: nodes, **(more or {})},
    )


def refused(first: str, second: str, reason: str, **more: Any) -> dict[str, Any]:
    names = {"first": first, "second": second}
    return {"kind": "fusion-pair", **names, "possible": False, "reasons": [reason], **more}


def only_row(path: Path) -> LedgerRow:
    (row,) = ledger(load(path))
    return row
