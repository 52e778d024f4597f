"""Views of Inductor's own stages: IR, scheduler, fusion, loop bodies, kernels, native compile."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from inductoscope.analysis.bounds.kernels import judge_graph
from inductoscope.analysis.fusion.decisions import Consideration, decisions_of
from inductoscope.kernels.assembly import kernel_assembly
from inductoscope.model.entities import (
    Compile,
    InductorGraph,
    Kernel,
    NativeCompile,
    Recording,
)
from inductoscope.model.native import compile_of_kernel
from inductoscope.model.schedule import ScheduledNode, read_schedule
from inductoscope.packages.recorded import package_of_wrapper
from inductoscope.recording.values import texts
from inductoscope.views.report.bounds import facts_of_nodes
from inductoscope.views.report.operation import ir_text, native_view
from inductoscope.views.report.package_facts import facts_of_package
from inductoscope.views.report.sections import Section
from inductoscope.vocabulary.counting import count_of


def _graphs(compiles: Iterable[Compile]) -> Iterator[InductorGraph]:
    for compile_ in compiles:
        yield from compile_.inductor


def ir(recording: Recording, compiles: Iterable[Compile]) -> Iterator[Section]:
    """What each FX node became."""
    for graph in _graphs(compiles):
        for item in graph.lowered:
            nodes = item.ir if isinstance(item.ir, list) else [item.ir]
            yield Section(
                f"{graph.key} {item.node} = {item.target}",
                {
                    "milliseconds": round(item.seconds * 1000, 2),
                    "fell_back_to_eager": "yes" if item.fallback else "",
                    "made": [f"{made.get('name')} ({made.get('class')})" for made in item.made],
                },
                "\n".join(ir_text(node) for node in nodes if isinstance(node, dict)),
            )


def scheduler(recording: Recording, compiles: Iterable[Compile]) -> Iterator[Section]:
    """Nodes and buffers before fusion, then the final order."""
    for graph in _graphs(compiles):
        for node in read_schedule(recording, graph.scheduled_before):
            yield _scheduled(graph, node)
        after = read_schedule(recording, graph.scheduled_after)
        if after:
            yield Section(
                f"{graph.key} order after fusion",
                text="\n".join(
                    f"{number}. {node.kind} {' + '.join(leaf.name for leaf in node.leaves)}"
                    for number, node in enumerate(after, start=1)
                ),
            )


def _scheduled(graph: InductorGraph, node: ScheduledNode) -> Section:
    return Section(
        f"{graph.key} {node.name}: {node.kind}({node.ir})",
        {
            "loops": "" if node.loops == "NoneType" else node.loops,
            "kernel": node.kernel,
            "device": node.device,
            "group": node.group,
            "sizes": [f"({', '.join(size)})" for size in node.sizes],
            "reads": list(node.reads),
            "writes": list(node.writes),
            "unmet": list(node.unmet),
            "buffers": [
                f"{b.name} {b.dtype.removeprefix('torch.')}[{', '.join(b.size)}] "
                f"stride [{', '.join(b.stride)}] of {b.origin or '?'} "
                f"used by {' '.join(b.users) or 'nobody'}"
                for b in node.buffers
            ],
            "origins": list(node.origins),
        },
    )


def fusion(recording: Recording, compiles: Iterable[Compile]) -> Iterator[Section]:
    """Rounds, fusions, and pairs that were refused, with the reason."""
    for graph in _graphs(compiles):
        before = read_schedule(recording, graph.scheduled_before)
        nodes = {leaf.name: leaf for node in before for leaf in node.leaves}
        decisions = decisions_of(graph, nodes)
        for round_ in graph.rounds:
            found = [item for item in decisions if item.round == round_.number]
            fused = [_decision_line(item) for item in found if item.outcome == "fused"]
            others = [_decision_line(item) for item in found if item.outcome != "fused"]
            yield Section(
                f"{graph.key} round {round_.number}: {round_.before} nodes became {round_.after}",
                {"milliseconds": round(round_.seconds * 1000, 2), "pairs_considered": len(others)},
                "\n".join([*fused, *others]).strip(),
            )


def _decision_line(item: Consideration) -> str:
    kind = item.kind
    if item.outcome == "fused" and item.score and "memory_score" in item.score:
        kind += f", {item.score['memory_score']} bytes saved"
    about = f"{item.outcome:8} {item.first} + {item.second}" + (f" ({kind})" if kind else "")
    if item.outcome != "refused":
        return about
    words = item.torch or item.reason or "torch gives no reason"
    return f"{about}: {words}"


# Seconds for the proofs about all loop bodies; `inductoscope bounds` takes its time.
_BOUNDS_SECONDS, _BOUNDS_POINTS = 10.0, 200_000


def loop_body(recording: Recording, compiles: Iterable[Compile]) -> Iterator[Section]:
    """Loop bodies, before fusion and, where fusion changed them, after."""
    until = time.monotonic() + _BOUNDS_SECONDS
    for compile_ in compiles:
        for graph in compile_.inductor:
            judged = judge_graph(recording, compile_, graph, points=_BOUNDS_POINTS, until=until)
            yield from _loop_bodies(recording, graph, facts_of_nodes(judged))


def _loop_bodies(
    recording: Recording, graph: InductorGraph, facts: Mapping[str, dict[str, Any]]
) -> Iterator[Section]:
    before = _bodies(recording, graph.scheduled_before)
    after = _bodies(recording, graph.scheduled_after)
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name, ""), after.get(name, "")
        # The last form is the one that is compiled, and that was judged.
        known = facts.get(name, {})
        if old == new:
            yield Section(f"{graph.key} {name}", known, recording.payload(old))
            continue
        if old:
            first = {} if new else known
            yield Section(f"{graph.key} {name} before fusion", first, recording.payload(old))
        if new:
            yield Section(f"{graph.key} {name} after fusion", known, recording.payload(new))


def _bodies(recording: Recording, digest: str) -> dict[str, str]:
    nodes = read_schedule(recording, digest)
    return {leaf.name: leaf.body for node in nodes for leaf in node.leaves if leaf.body}


def kernel(recording: Recording, compiles: Iterable[Compile]) -> Iterator[Section]:
    """Generated kernels and calls of libraries, with what is inside them."""
    for graph in _graphs(compiles):
        for item in graph.kernels:
            yield kernel_section(recording, graph, item)


def kernel_section(recording: Recording, graph: InductorGraph, item: Kernel) -> Section:
    """One kernel in full."""
    natives = compile_of_kernel(recording, item)
    return Section(
        f"{graph.key} {item.name} ({item.language})",
        {
            "operations": list(item.origins),
            "scheduler_nodes": list(item.nodes),
            "reads": list(item.reads),
            "writes": list(item.writes),
            "compiled": [
                f"{native.tool} {_duration(native)} {native.config} {native.output}".strip()
                for native in natives
            ],
            "forms": list(dict.fromkeys(form for native in natives for form in native.forms)),
        },
        recording.payload(item.digest),
    )


def kernel_form_sections(
    recording: Recording, graph: InductorGraph, item: Kernel, form: str
) -> Iterator[Section]:
    """A Triton kernel on its way to machine code, once per configuration that was compiled."""
    for native in compile_of_kernel(recording, item):
        if form in native.forms:
            yield Section(
                f"{graph.key} {item.name}: {form}",
                {"config": native.config, "output": native.output},
                recording.payload(str(native.forms[form])) or "(missing from the recording)",
            )


def assembly_section(recording: Recording, graph: InductorGraph, item: Kernel) -> Section:
    """The machine code of a C++ kernel, compiled once more, with the lines that it is for."""
    made = kernel_assembly(recording, item)
    return Section(
        f"{graph.key} {item.name}: asm",
        {
            "compiler": made.compiler,
            "flags": list(made.flags),
            "left_out": list(made.left_out),
            "notes": list(made.notes),
        },
        made.numbered,
    )


def _duration(item: NativeCompile) -> str:
    return "not finished" if item.seconds is None else f"{item.seconds:.2f} s"


def memory(recording: Recording, compiles: Iterable[Compile]) -> Iterator[Section]:
    """Which node each buffer came from, and which buffers take over the memory of others."""
    for graph in _graphs(compiles):
        buffers = recording.data(graph.buffers)
        lines = [
            f"{name}: {entry.get('origin') or ' + '.join(texts(entry.get('origins'))) or '?'}"
            for name, entry in (buffers.items() if isinstance(buffers, dict) else ())
            if isinstance(entry, dict)
        ]
        lines += [f"{reuse.new} takes over {reuse.old} ({reuse.how})" for reuse in graph.reuses]
        if lines:
            yield Section(f"{graph.key} buffers", text="\n".join(lines))


def wrapper(recording: Recording, compiles: Iterable[Compile]) -> Iterator[Section]:
    """The generated program that calls the kernels."""
    for graph in _graphs(compiles):
        if graph.wrapper:
            origin = "from the cache" if graph.cached else graph.wrapper_path
            text = recording.payload(graph.wrapper)
            facts = facts_of_package(package_of_wrapper(text))
            yield Section(f"{graph.key} wrapper", {"file": origin, **facts}, text)


def native(recording: Recording, compiles: Iterable[Compile]) -> Iterator[Section]:
    """Every run of g++ and of Triton: command, seconds, exit code, messages."""
    for item in recording.natives:
        facts = {**native_view(item), "passes": dict(item.passes)}
        facts.pop("seconds")
        yield Section(
            f"{item.tool} {item.kernel or item.source}: {_duration(item)}",
            facts,
            recording.payload(item.messages),
        )


def autotune(recording: Recording, compiles: Iterable[Compile]) -> Iterator[Section]:
    """Choices of an operation's implementation, their times and the winner."""
    for graph in _graphs(compiles):
        for search in graph.autotunes:
            lines = []
            for choice in search.choices:
                mark = "*" if choice.name == search.winner else " "
                lines.append(
                    f"{mark} {choice.state:16} {choice.name} {choice.description}".rstrip()
                )
                if choice.error:
                    lines.append(f"    {choice.error.splitlines()[0]}")
            choices = count_of(len(search.choices), "choice")
            yield Section(
                f"{graph.key} autotune {search.operation}: {choices}",
                {"winner": search.winner},
                "\n".join(lines),
            )
