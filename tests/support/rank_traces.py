"""The traces of a thousand ranks, made of the recorded trace of one, with faults planted in some.

The recorded one is of rank 0 of four (gloo, torch 2.13): tests/data/recorded_ranks/README.md.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from inductoscope.analysis.ranks.decisions import reads_record

TRACE = Path(__file__).resolve().parents[1] / "data" / "recorded_ranks" / "rank_0.trace.log.gz"

# A record: its line, and the payload below it.
Trace = tuple[str, ...]
Plant = Callable[[Trace], Trace]

_KEY = re.compile(r'\] \{"(\w+)": (?:\{"name": "([^"]+)")?')
_CLOCK = re.compile(r"^V(\d{4}) (\d\d)(:\d\d:\d\d\.\d+)", re.MULTILINE)
_STAMP = re.compile(r'"ts": (\d+)')
_CACHED = "fx_graph_cache_miss"


def kind_of(record: str) -> str:
    """The key of a record, or the name of an artifact."""
    found = _KEY.search(record)
    return (found[2] or found[1]) if found else ""


def recorded() -> Trace:
    """The records that tell a decision or a time; the others only make the files larger."""
    text = gzip.decompress(TRACE.read_bytes()).decode()
    records = re.split(r"\n(?!\t)", text.rstrip("\n"))
    return tuple(r for r in records if reads_record(kind_of(r)))


def of_rank(trace: Trace, rank: int) -> Trace:
    """The same trace as this rank writes it, on a device and in a process of its own."""
    return tuple(
        record.replace('"rank": 0,', f'"rank": {rank},').replace("]cpu", f"]cuda:{rank % 8}")
        for record in trace
    )


def write(folder: Path, rank: int, trace: Trace) -> Path:
    path = folder / f"dedicated_log_torch_trace_rank_{rank}_x{rank:04d}.log"
    path.write_text("\n".join(of_rank(trace, rank)) + "\n")
    return path


# --- faults ---------------------------------------------------------------------------------------


def replaced(kinds: Sequence[str], old: str, new: str) -> Plant:
    """Another text in records of these kinds."""

    def plant(trace: Trace) -> Trace:
        changed = tuple(r.replace(old, new) if kind_of(r) in kinds else r for r in trace)
        assert changed != trace, f"there is no {old!r} in {kinds}"
        return changed

    return plant


def with_swapped_collectives(trace: Trace) -> Trace:
    """The first two collectives that Inductor compiles, in the other order."""

    def swap(record: str) -> str:
        lines = record.split("\n")
        sent = [
            n
            for n, line in enumerate(lines)
            if re.search(r"_c10d_functional\.all_\w+\.default\(", line)
        ]
        if kind_of(record) == "inductor_post_grad_graph" and len(sent) > 1:
            lines[sent[0]], lines[sent[1]] = lines[sent[1]], lines[sent[0]]
        return "\n".join(lines)

    changed = tuple(map(swap, trace))
    assert changed != trace
    return changed


FAILED_GUARD = "tensor 'x' size mismatch at index 0. expected 8, actual 12"


def with_failed_guard(trace: Trace) -> Trace:
    """The function is compiled a second time, since a size has changed."""
    start = next(record for record in trace if kind_of(record) == "dynamo_start")
    again = start.replace('"frame_compile_id": 0', '"frame_compile_id": 1')
    head = re.sub(
        r'\{"dynamo_start": .*?\}\]\}', '{"artifact": {"name": "recompile_reasons"}', again
    )
    return (*trace, f'{head}\n\t"0/0: {FAILED_GUARD}"', again)


def with_another_compile(trace: Trace) -> Trace:
    """One more function is compiled."""
    start = next(record for record in trace if kind_of(record) == "dynamo_start")
    return (*trace, start.replace('"frame_id": 0', '"frame_id": 1').replace("loss_of", "evaluate"))


def from_cache(trace: Trace) -> Trace:
    """The trace of the same rank when another one has compiled the graph before."""
    return tuple(record.replace(_CACHED, "fx_graph_cache_hit") for record in trace)


def cut_inside(phase: str) -> Plant:
    """The log ends inside this phase."""

    def plant(trace: Trace) -> Trace:
        for number, record in enumerate(trace):
            if f'"name": "{phase}"' in record and '"ph": "B"' in record:
                return trace[: number + 1]
        raise AssertionError(f"there is no phase {phase}")

    return plant


def slower(phase: str, seconds: float) -> Plant:
    """So many seconds pass between the beginning of this phase and what follows."""

    def plant(trace: Trace) -> Trace:
        begun, changed = False, []
        for record in trace:
            changed.append(_shifted(record, seconds) if begun else record)
            begun = begun or (f'"name": "{phase}"' in record and '"ph": "B"' in record)
        assert begun
        return tuple(changed)

    return plant


def _shifted(record: str, seconds: float) -> str:
    return _STAMP.sub(lambda found: f'"ts": {int(int(found[1]) + seconds * 1e6)}', record)


def with_clock_off(hours: int) -> Plant:
    """Another host's clock."""

    def later(found: re.Match[str]) -> str:
        return f"V{found[1]} {(int(found[2]) + hours) % 24:02d}{found[3]}"

    return lambda trace: tuple(_CLOCK.sub(later, _shifted(r, hours * 3600)) for r in trace)
