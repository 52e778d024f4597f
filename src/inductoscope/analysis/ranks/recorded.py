"""The ranks of a recording: the decisions of each process that has a rank."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

from inductoscope.analysis.ranks.decisions import DecisionFold, RankLog, RankProgress
from inductoscope.analysis.ranks.report import RankPlace, RankReport, report_on
from inductoscope.model.entities import Compile, Process, Recording, UncaughtException
from inductoscope.model.fx import FxNode, describe_value, read_graph
from inductoscope.torch_facts import stages

# The trace records with the same content.
_GRAPHS = {
    stages.DYNAMO: "dynamo_output_graph",
    "aot-joint": "aot_joint_graph",
    "aot-forward": "aot_forward_graph",
    "aot-backward": "aot_backward_graph",
    "aot-inference": "aot_inference_graph",
    "post-grad": "inductor_post_grad_graph",
}
_CACHES = {"FX graph": "fx_graph_cache", "AOTAutograd": "aotautograd_cache"}
_MOST_TEXTS = 256
_Texts = Callable[[str], str]


def ranks_of(recording: Recording) -> RankReport | None:
    """Return the report on a recording's ranks, made once; None if it has fewer than two."""
    return recording.once("ranks", (), lambda: _ranks_of(recording))


def _ranks_of(recording: Recording) -> RankReport | None:
    by_process: dict[str, list[Compile]] = defaultdict(list)
    for compile_ in recording.compiles:
        by_process[compile_.process].append(compile_)
    processes: dict[int, Process] = {}
    for process in recording.processes:
        if process.rank.isdecimal() and process.torch:
            known = processes.get(int(process.rank))
            # Workers of a rank, such as compile workers, report the same rank.
            if known is None or len(by_process[process.stream]) > len(by_process[known.stream]):
                processes[int(process.rank)] = process
    if len(processes) < 2:
        return None
    texts = _texts(recording)

    def fold_of(process: Process, *, keeps_lines: bool = False) -> DecisionFold:
        fold = DecisionFold()
        fold.keeps_lines = keeps_lines
        for compile_ in by_process[process.stream]:
            _take(fold, compile_, recording, texts)
        return fold

    def lines_of(log: RankLog, key: tuple[str, str]) -> list[str]:
        return fold_of(processes[log.rank], keeps_lines=True).lines.get(key, [])

    logs = [
        _rank_log(rank, process, fold_of(process)) for rank, process in sorted(processes.items())
    ]
    places = list(_places(processes))
    return report_on(logs, places, lines_of)


def _rank_log(rank: int, process: Process, fold: DecisionFold) -> RankLog:
    progress = RankProgress.AT_REST
    if process.ended and not _fatal(process):
        progress = RankProgress.ENDED
    elif process.unfinished:
        progress = RankProgress.BUSY
    return RankLog(
        rank=rank,
        decisions=fold.decisions,
        stage_seconds=fold.clock.stage_seconds,
        progress=progress,
        form="recording",
        files=(process.stream,),
    )


def _take(fold: DecisionFold, compile_: Compile, recording: Recording, texts: _Texts) -> None:
    """Pass a compile to the fold in the order in which a trace has it."""
    if compile_.recompile is not None:
        fold.take("recompile_reasons", compile_.id, "", json.dumps(compile_.recompile.reasons))
    fold.begin(compile_.id.partition("_")[0], f"{compile_.function} {_place(compile_)}")
    for graph in compile_.graphs:
        if graph.stage in _GRAPHS:
            fold.take(_GRAPHS[graph.stage], compile_.id, "", texts(graph.payload))
    for lookup in compile_.caches:
        name = _CACHES.get(lookup.cache)
        if name:
            key = json.dumps({"key": lookup.key}) if lookup.key else ""
            fold.take(f"{name}_{lookup.outcome}", compile_.id, "", key)
    for inner in compile_.inductor:
        taken = [f"{tune.operation}: {tune.taken}" for tune in inner.autotunes if tune.taken]
        fold.take_choices(compile_.id, taken)
        if inner.wrapper:
            fold.take("inductor_output_code", compile_.id, "", recording.payload(inner.wrapper))
    if compile_.guards:
        fold.take("dynamo_cpp_guards_str", compile_.id, "", _guards(recording, compile_))
    for stage, seconds in compile_.stage_seconds.items():
        fold.clock.add(stage, seconds)


def _place(compile_: Compile) -> str:
    return f"{Path(compile_.file).name}:{compile_.line}" if compile_.file else "?"


def _guards(recording: Recording, compile_: Compile) -> str:
    data = recording.data(compile_.guards)
    guards = data if isinstance(data, list) else []
    return "\n".join(
        " ".join(str(guard.get(part, "")) for part in ("source", "kind", "code"))
        for guard in guards
        if isinstance(guard, dict)
    )


# --- graphs as torch prints them ------------------------------------------------------------------


def _texts(recording: Recording) -> _Texts:
    """Return the text of a graph from a cache: ranks share most of their graphs."""

    @lru_cache(maxsize=_MOST_TEXTS)
    def text(digest: str) -> str:
        graph = read_graph(recording, digest)
        return "\n".join(map(_printed, graph.nodes)) if graph is not None else ""

    return text


def _printed(node: FxNode) -> str:
    kind = describe_value(node.value).replace('"', "'")
    if node.op == "placeholder":
        return f'{node.name}: "{kind}"'
    arguments = node.args.removeprefix("(").removesuffix(")")
    if node.op == "output":
        inside = arguments.removesuffix(",").removeprefix("(").removesuffix(")")
        return f"return ({inside})"
    if node.kwargs:
        arguments = ", ".join(filter(None, (arguments, node.kwargs)))
    target = node.target if node.op != "call_function" or "." not in node.target else _op(node)
    return f'{node.name}: "{kind}" = {target}({arguments})'


def _op(node: FxNode) -> str:
    is_operator = not node.target.startswith(("torch.", "operator."))
    return f"torch.ops.{node.target}" if is_operator else node.target


# --- where each is --------------------------------------------------------------------------------


def _places(processes: dict[int, Process]) -> Iterator[RankPlace]:
    for rank, process in sorted(processes.items()):
        fatal = _fatal(process)
        if fatal:
            first = fatal[0]
            title = f"an exception ended it: {first.type}: {first.message}"[:200]
            yield RankPlace(rank, "error", title, True, "proven")
        elif process.unfinished:
            stage = process.unfinished[-1]
            title = "it never left this stage"
            yield RankPlace(rank, "compile", title, True, "likely", stage.stage, stage.compile)
        elif process.ended:
            yield RankPlace(rank, "ended", "the program ended", False, "proven")
        else:
            title = "outside the compiler when it was last heard of"
            yield RankPlace(rank, "outside", title, False, "likely")


def _fatal(process: Process) -> list[UncaughtException]:
    """Return exceptions that ended the process, not just a thread of it."""
    return [one for one in process.uncaught if not one.thread]
