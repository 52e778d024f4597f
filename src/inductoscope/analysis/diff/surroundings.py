"""What differs about the runs themselves: versions, settings, targets, what each lacks."""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.analysis.diff.entities import Fact
from inductoscope.model.entities import Process, Recording
from inductoscope.recording.values import members, texts
from inductoscope.vocabulary.counting import count_of

# Where things lie says nothing about what the compiler does.
_PLACES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_TRACE", "TMPDIR")


def surroundings(first: Recording, second: Recording) -> tuple[Fact, ...]:
    """Facts that are not the same in both runs."""
    one, other = dict(_facts(first)), dict(_facts(second))
    names = dict.fromkeys((*one, *other))
    found = (Fact(name, one.get(name, "not set"), other.get(name, "not set")) for name in names)
    return tuple(fact for fact in found if fact.first != fact.second)


def _facts(recording: Recording) -> Iterator[tuple[str, str]]:
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
    """A GPU that was compiled for without being there."""
    target = recording.manifest.get("target")
    name = members(target).get("name") if isinstance(target, dict) else target
    return str(name or "the machine's own")


def _devices(recording: Recording) -> list[str]:
    languages = {k.language for graph in recording.graphs for k in graph.kernels}
    return sorted({"C++": "cpu", "Triton": "gpu"}[name] for name in languages & {"C++", "Triton"})


def notes(recording: Recording, run: str) -> Iterator[str]:
    """What of a recording cannot be compared, and why."""
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
