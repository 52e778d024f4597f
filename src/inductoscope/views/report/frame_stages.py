"""Views of what Dynamo decided about frames: breaks, guards, recompiles, caches, errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from inductoscope.model.entities import Compile, Recording
from inductoscope.packages.recorded import recorded_package
from inductoscope.views.report.package_facts import facts_of_inputs
from inductoscope.views.report.sections import Section
from inductoscope.vocabulary.counting import count_of
from inductoscope.vocabulary.frames import arrows


def breaks(recording: Recording, compiles: Iterable[Compile]) -> Iterator[Section]:
    """Graph breaks, with torch's own explanation."""
    for compile_ in compiles:
        for item in compile_.breaks:
            yield Section(
                f"{compile_.id} graph break in {compile_.function}",
                {"source": item.source, "code": item.code, "stack": arrows(item.stack)},
                item.reason,
            )
        for error in compile_.errors:
            if error.swallowed:
                yield Section(
                    f"{compile_.id} {compile_.function} runs in eager",
                    {"source": error.source or compile_.place, "exception": error.type},
                    error.message,
                )


def guards(recording: Recording, compiles: Iterable[Compile]) -> Iterator[Section]:
    """What has to hold for a compiled frame to be used again, and for the inputs of a package."""
    for compile_ in compiles:
        found = recording.data(compile_.guards)
        if isinstance(found, list):
            yield Section(
                f"{compile_.id} {compile_.function}: {count_of(compile_.guard_count, 'guard')}",
                {"source": compile_.place},
                "\n".join(_guard_lines(found)),
            )
        package = recorded_package(recording, compile_)
        if package is not None:
            count = count_of(package.guards.count, "demand")
            inputs = count_of(len(package.guards.inputs), "input")
            yield Section(
                f"{compile_.id} {compile_.function}: {count} on {inputs}",
                {
                    "source": compile_.place,
                    **facts_of_inputs(package),
                    "sizes": [
                        f"{each.name} = {each.expression}" for each in package.guards.symbols
                    ],
                    "checked": "only with AOTI_RUNTIME_CHECK_INPUTS=1",
                },
            )


def _guard_lines(items: list[object]) -> Iterator[str]:
    for item in items:
        if not isinstance(item, dict):
            continue
        place = f"   # {item['place']}" if item.get("place") else ""
        yield f"{item.get('kind', '?')}({item.get('source', '')}){place}"
        code = item.get("code")
        if isinstance(code, list):
            yield from (f"    {line}" for line in code)


def recompiles(recording: Recording, compiles: Iterable[Compile]) -> Iterator[Section]:
    """Frames that were compiled again, with the guard that failed."""
    for compile_ in compiles:
        if compile_.recompile is not None:
            yield Section(
                f"{compile_.id} {compile_.function} was recompiled",
                {"source": compile_.place, "limit_reached": compile_.recompile.limit},
                "\n".join(compile_.recompile.reasons),
            )


def cache(recording: Recording, compiles: Iterable[Compile]) -> Iterator[Section]:
    """Look-ups in torch's caches."""
    for compile_ in compiles:
        for lookup in compile_.caches:
            facts = {"key": lookup.key, "reason": lookup.reason}
            if lookup.outcome == "hit":
                facts["next"] = "inductoscope run --fresh recompiles everything, in a private cache"
            yield Section(f"{compile_.id} {lookup.cache} cache: {lookup.outcome}", facts)


def errors(recording: Recording, compiles: Iterable[Compile]) -> Iterator[Section]:
    """Exceptions that left the compiler, with the stage that raised them."""
    for compile_ in compiles:
        for error in compile_.errors:
            outcome = "swallowed, the frame runs in eager" if error.swallowed else "raised"
            yield Section(
                f"{compile_.id} {error.type} in stage {error.stage}: {outcome}",
                {
                    "at": error.detail,
                    "graph": error.graph,
                    "source": error.source,
                    "causes": list(error.causes),
                    "raised_in": list(error.raised_in),
                },
                recording.payload(error.traceback) or error.message,
            )
