"""Recordings of captured graphs, written by hand: what a program would have left, with no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.examples import write_recording

Node = dict[str, Any]


def tensor(*shape: int, dtype: str = "float32", **more: Any) -> dict[str, Any]:
    """A dense tensor on the CPU, as a recording describes it."""
    stride, strides = 1, []
    for size in reversed(shape):
        strides.insert(0, stride)
        stride *= size
    about = {"shape": list(shape), "dtype": f"torch.{dtype}", "device": "cpu", "stride": strides}
    return {**about, **more}


def placeholder(name: str, value: Mapping[str, Any]) -> Node:
    return {"name": name, "op": "placeholder", "target": f"L_{name}_", "value": dict(value)}


def call(name: str, target: str, arguments: str, **more: Any) -> Node:
    return {"name": name, "op": "call_function", "target": target, "args": arguments, **more}


def output(names: str) -> Node:
    return {"name": "output", "op": "output", "target": "output", "args": f"(({names},),)"}


def captured(
    folder: Path,
    graphs: Mapping[str, list[Node]],
    *,
    reason: str = "",
    more: Sequence[Mapping[str, Any]] = (),
    manifest: Mapping[str, Any] | None = None,
    **code: str,
) -> Path:
    """A recording in which Dynamo captured these graphs; the name of each is its function.

    `reason` says why none was compiled; `more` are further events.
    """
    end = {"outcome": "skipped" if reason else "compiled", "reason": reason, "seconds": 1.0}
    events: list[dict[str, Any]] = []
    payloads: dict[str, Any] = {}
    for number, (function, nodes) in enumerate(graphs.items()):
        compile_id, digest = f"{number}/0", f"{number:032x}"
        payloads[digest] = {
            "nodes": [{"stack": 0, **node} for node in nodes],
            "stacks": [f'  File "/scripts/model.py", line {number + 3}, in {function}\n    …\n'],
            "code": code.get(function, ""),
            "attributes": {},
        }
        where = {"function": function, "file": "/scripts/model.py", "line": number + 2}
        events += [
            {"kind": "compile-start", "compile": compile_id, **where},
            {"kind": "graph", "stage": "dynamo", "compile": compile_id, "payload": digest},
            {"kind": "compile-end", "compile": compile_id, **end},
        ]
    return write_recording(folder, *events, *more, payloads=payloads, manifest=manifest)
