"""Recordings of many kernels: recorded events of a real compile, again and again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def multiply(recording: Path, folder: Path, *, compiles: int, kernels: int) -> Path:
    """A copy in which compile 0/0 happens `compiles` times, with each kernel `kernels` times.

    Copies of a kernel have names of their own and share their code; all else is as recorded.
    """
    shutil.copytree(recording, folder)
    for stream in (folder / "streams").iterdir():
        events = [json.loads(line) for line in stream.read_text("utf-8").splitlines()]
        many = [_line(event) for event in _multiplied(events, compiles, kernels)]
        stream.write_text("".join(f"{line}\n" for line in many), "utf-8")
    return folder


def _line(event: Event) -> str:
    return json.dumps(event, separators=(",", ":"))  # As a program writes it.


def _multiplied(events: list[Event], compiles: int, kernels: int) -> Iterator[Event]:
    places = [place for place, event in enumerate(events) if _is_of_compile(event)]
    first, last = (places[0], places[-1] + 1) if places else (len(events), len(events))
    again = [event for event in events[first:last] if _is_of_compile(event)]
    copies = (_renamed(event, n) for n in range(1, compiles) for event in again)
    number = 0
    for event in (*events[:last], *copies, *events[last:]):
        for one in _kernels(event, kernels):
            yield {**one, "n": number, "t": events[0]["t"] + number * 1e-4}
            number += 1


def _is_of_compile(event: Event) -> bool:
    return "0/0" in f"{event.get('compile', '')} {event.get('graph', '')}"


def _renamed(event: Event, number: int) -> Event:
    keys = [key for key in ("compile", "graph") if key in event]
    return {**event, **{key: event[key].replace("0/0", f"{number}/0") for key in keys}}


def _kernels(event: Event, kernels: int) -> Iterator[Event]:
    yield event
    if event["kind"] == "kernel" and event["language"] != "extern":
        yield from ({**event, "name": f"{event['name']}_{n}"} for n in range(1, kernels))
