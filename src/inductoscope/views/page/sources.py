"""What the browser needs to link the panes of one graph, collected without counting a line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from inductoscope.model.codeless import why_codeless
from inductoscope.model.counts import LIBRARY
from inductoscope.model.entities import Kernel, Recording
from inductoscope.model.join import GraphJoin, captured_digest, final_graph, numbers_by_step
from inductoscope.model.schedule import ScheduledNode
from inductoscope.views.page.chunk_contract import LineNumber, PaneKernel
from inductoscope.views.page.panes import aot_digest
from inductoscope.views.page.source_contract import (
    OF_NOTHING,
    GraphSources,
    RecordedPayload,
    SourceCall,
    SourceKernel,
    SourceText,
)
from inductoscope.views.page.stage_panes import FROM_GRAPHS, TITLES, Pane, StagePanes
from inductoscope.vocabulary.frames import library_folders

Steps = Mapping[str, tuple[str, ...]]


def graph_digests(join: GraphJoin) -> dict[str, str]:
    """By pane: the graph of torch.fx in it, where one was recorded."""
    found = {
        "dynamo": captured_digest(join.compile),
        "aot": aot_digest(join.compile, join.graph.phase),
        "post-grad": final_graph(join.compile, join.graph),
    }
    return {pane: digest for pane, digest in found.items() if digest}


def chunk_of(digest: str) -> str:
    """The chunk that holds a graph of torch.fx."""
    return f"fx-{digest}"


def recorded(recording: Recording, digest: str) -> RecordedPayload:
    """A payload as it is; null where it is missing."""
    return RecordedPayload(recording.payload(digest) or "null")


def sources(
    join: GraphJoin,
    stages: StagePanes,
    kernels: tuple[PaneKernel, ...],
    missing: Mapping[str, str],
) -> GraphSources:
    """The sources of a graph's panes."""
    before = [leaf for item in join.before for leaf in item.leaves]
    return GraphSources(
        titles=TITLES,
        graphs={pane: chunk_of(digest) for pane, digest in graph_digests(join).items()},
        texts={
            name: _text(pane, stages.language(name))
            for name, pane in stages.panes.items()
            if name not in FROM_GRAPHS
        },
        missing=missing,
        wrapper_line=stages.wrapper.first_line,
        kernels=kernels,
        called=tuple(_called(join, stages)),
        calls=tuple(_calls(join, stages)),
        computed=join.computed,
        origins={leaf.name: leaf.origins for leaf in before},
        steps={leaf.name: _steps(join, leaf) for item in join.after for leaf in item.leaves},
        bodyless=tuple(leaf.name for leaf in before if not leaf.body),
        no_code=dict(_no_code(join)),
        library_files=library_folders(),
    )


def _text(pane: Pane, language: str) -> SourceText:
    return SourceText(
        language=language,
        text="\n".join(pane.lines),
        keys=tuple(str(keys[0]) if keys else OF_NOTHING for keys, _ in pane.blocks),
        counts=tuple(count for _, count in pane.blocks),
    )


def _called(join: GraphJoin, stages: StagePanes) -> Iterator[SourceKernel]:
    by_digest: dict[str, list[int]] = {}
    by_call: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for place, (kernel, _, _) in enumerate(stages.kernels):
        by_digest.setdefault(kernel.digest, []).append(place)
        by_call.setdefault((kernel.name, kernel.nodes), []).append(place)
    for kernel in join.graph.kernels:
        yield SourceKernel(
            nodes=kernel.nodes,
            library=kernel.language == LIBRARY,
            texts=tuple(by_digest.get(kernel.digest, ())),
            own=tuple(by_call.get((kernel.name, kernel.nodes), ())),
            numbered=_numbered(join, kernel),
        )


def _numbered(join: GraphJoin, kernel: Kernel) -> dict[str, dict[str, tuple[int, ...]]]:
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    text = "" if kernel.numbered else join.text(kernel.digest)
    for (node, operation), numbers in numbers_by_step(kernel, text).items():
        found.setdefault(node, {})[operation] = tuple(numbers)
    return found


def _calls(join: GraphJoin, stages: StagePanes) -> Iterator[SourceCall]:
    places = {id(kernel): place for place, kernel in enumerate(join.graph.kernels)}
    for at, kernels in stages.wrapper.kernels.items():
        for kernel in kernels:
            yield SourceCall(LineNumber(at + 1), places[id(kernel)])


def _steps(join: GraphJoin, leaf: ScheduledNode) -> Steps:
    """As recorded, or found by what the lines compute where the recording is too old to say."""
    if leaf.computes or not leaf.body or join.final is None:
        return leaf.computes
    nodes = filter(None, map(join.final.node, join.computed.get(leaf.name, ())))
    found = {node.name: join.steps(node, [leaf]).get(leaf.name, ()) for node in nodes}
    return {name: tuple(step.name for step in steps) for name, steps in found.items() if steps}


def _no_code(join: GraphJoin) -> Iterator[tuple[str, str]]:
    for node in join.final.calls if join.final else ():
        why = why_codeless(join, node)
        if why:
            yield node.name, why
