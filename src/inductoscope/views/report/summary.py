"""The summary of a recording: compiles, times and findings."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from inductoscope.analysis.fusion.ledger import FUSED, REFUSED, count_outcomes
from inductoscope.analysis.ranks.recorded import ranks_of
from inductoscope.analysis.rules import ENDINGS, UNCOMPILED
from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Compile, Recording
from inductoscope.model.kernels import calls_by_name, count_kernels, generated, libraries_from_cache
from inductoscope.model.stored_recordings import running_streams
from inductoscope.model.target import recording_target
from inductoscope.packages.package import count_guards
from inductoscope.recording.events import Settings
from inductoscope.recording.layout import signal_name
from inductoscope.recording.values import texts
from inductoscope.recording.verdict_file import stored_verdict
from inductoscope.torch_facts.frames import arrows
from inductoscope.views.report.terminal import BAD, FAINT, GOOD, WARN, Printer
from inductoscope.wording import count_of

View = dict[str, Any]


def summary_view(recording: Recording, findings: list[Finding]) -> View:
    return {
        "recording": recording.path,
        "command": list(texts(recording.manifest.get("command"))),
        "state": _state(recording),
        "headline": _headline(recording, findings),
        "verdict": _verdict(recording),
        "ending": None if recording.ending is None else asdict(recording.ending),
        "torch": torch_version(recording),
        "processes": [_process(process) for process in recording.processes],
        "compiles": [_compile(recording, compile_) for compile_ in recording.compiles],
        "totals": _totals(recording),
        "stage_seconds": _stage_seconds(recording),
        "findings": [asdict(finding) for finding in findings],
        "ranks": _ranks(recording),
        "damage": [list(item) for item in recording.damage],
        "unknown_events": dict(recording.unknown_events),
    }


def _verdict(recording: Recording) -> View | None:
    if not stored_verdict(Path(recording.path)):
        return None
    # This imports the whole doctor, which most recordings do not need.
    from inductoscope.views.report.verdict import stored_verdict_view

    return stored_verdict_view(recording)


def _ranks(recording: Recording) -> View | None:
    ranks = ranks_of(recording)
    if ranks is None:
        return None
    from inductoscope.views.report.ranks import ranks_view

    return ranks_view(ranks)


def torch_version(recording: Recording) -> str:
    """Return the recorded version of torch; empty if it was not imported."""
    versions = [str(p.torch.get("version")) for p in recording.processes if p.torch]
    return versions[0] if versions else ""


def _process(process: Any) -> View:
    found = asdict(process)
    found.pop("stream")
    return found


def _compile(recording: Recording, compile_: Compile) -> View:
    return {
        "id": compile_.id,
        "process": compile_.process,
        "function": compile_.function,
        "flow": compile_.flow,
        "resumed": compile_.resumed,
        "source": compile_.place,
        "outcome": compile_.outcome,
        "reason": compile_.reason,
        "seconds": compile_.seconds,
        "stage_seconds": dict(compile_.stage_seconds),
        "graph_breaks": len(compile_.breaks),
        "recompile": compile_.is_recompile,
        "guards": count_guards(recording, compile_),
        "caches": [asdict(lookup) for lookup in compile_.caches],
        "errors": len(compile_.errors),
        "settings": None if compile_.settings is None else asdict(compile_.settings),
        "graphs": [
            {
                "key": graph.key,
                "phase": graph.phase,
                "cached": graph.cached,
                "finished": graph.finished,
                "lowered_nodes": len(graph.lowered),
                "fusions": len(graph.fusions),
                "kernels": [kernel.name for kernel in generated(graph)],
                "calls": calls_by_name(graph),
            }
            for graph in compile_.inductor
        ],
    }


def _totals(recording: Recording) -> View:
    graphs = recording.graphs
    kernels, pairs = count_kernels(graphs), count_outcomes(recording)
    lookups = Counter(
        f"{lookup.cache} {lookup.outcome}" for c in recording.compiles for lookup in c.caches
    )
    from_cache = sum(libraries_from_cache(recording, c) for c in recording.compiles)
    if from_cache:
        lookups["C++ binary hit"] = from_cache
    triton = Counter(native.cache_hit for native in recording.natives if native.tool == "triton")
    lookups.update({"Triton hit": triton[True], "Triton miss": triton[False]})
    lookups = +lookups  # Zero counts are omitted.
    return {
        "compiles": len(recording.compiles),
        "graphs": len(graphs),
        "graphs_from_cache": sum(graph.cached for graph in graphs),
        "kernels": dict(kernels.defined),
        "kernel_calls": kernels.calls,
        "library_calls": kernels.library_calls,
        "fusions": sum(len(graph.fusions) for graph in graphs),
        "pairs_fused": pairs[FUSED],
        "pairs_refused": pairs[REFUSED],
        "graph_breaks": sum(len(compile_.breaks) for compile_ in recording.compiles),
        "recompiles": sum(compile_.is_recompile for compile_ in recording.compiles),
        "recompiles_refused": sum(
            bool(c.recompile and c.recompile.limit) for c in recording.compiles
        ),
        "passes_that_changed_a_graph": sum(len(c.passes) for c in recording.compiles),
        "native_compiles": len(recording.natives),
        "cache_lookups": dict(lookups),
    }


def _stage_seconds(recording: Recording) -> dict[str, float]:
    total: Counter[str] = Counter()
    for compile_ in recording.compiles:
        total.update(compile_.stage_seconds)
    return {stage: round(seconds, 3) for stage, seconds in total.most_common()}


# --- terminal -------------------------------------------------------------------------------------


def print_summary(printer: Printer, view: View) -> None:
    totals = view["totals"]
    if view["verdict"]:
        from inductoscope.views.report.verdict import print_stored_verdict

        print_stored_verdict(printer, view["recording"])
    printer.heading(f"inductoscope: {view['headline']}")
    ended = view["state"].partition("the program ended ")[2]
    said = view["headline"].startswith(view["state"])
    caches = (f"{name} {count}" for name, count in totals["cache_lookups"].items())
    printer.pairs(
        {
            "ended": "" if said else ended,
            "torch": view["torch"],
            "compiles": _compile_words(view),
            "kernels": _kernel_words(totals),
            "seconds": _seconds_words(view),
            "caches": ", ".join(caches),
            "recording": view["recording"],
        }
    )
    if view["ranks"] is not None:
        from inductoscope.views.report.ranks import print_ranks

        print_ranks(printer, view["ranks"])
    ended_well = view["ending"] is None or not view["ending"]["exit_code"]
    print_findings(printer, view["findings"], is_success=ended_well and not view["verdict"])


def _state(recording: Recording) -> str:
    ending = recording.ending
    if recording.manifest.get("inside"):
        return "recorded from inside the program"
    if recording.manifest.get("recompiled_from") and ending is not None:
        target = recording_target(recording) or "other settings"
        return f"recorded graphs, compiled for {target} in {ending.seconds:.1f} s"
    if ending is None:
        running = running_streams(Path(recording.path))
        if running is None:
            return "the program is still running, or its end was not recorded"
        return "the program is still running" if running else "the program's end was not recorded"
    if ending.by_tool:
        return f"the doctor ended the program after {ending.seconds:.1f} s: {ending.by_tool}"
    how = f"exit code {ending.exit_code}"
    if ending.signal:
        how = f"signal {ending.signal} ({signal_name(ending.signal)})"
    return f"the program ended with {how} after {ending.seconds:.1f} s"


def _headline(recording: Recording, findings: list[Finding]) -> str:
    """Return the summary's headline: the cause of the program's end, if a rule found it."""
    endings = [finding.title for finding in findings if finding.rule in ENDINGS]
    if not any(finding.is_problem for finding in findings if finding.rule in ENDINGS):
        # A user who stops a hanging program knows that it was stopped: the stall comes first.
        endings = [f.title for f in findings if f.rule == "stall" and f.is_problem] + endings
    if not endings or (recording.ending is not None and recording.ending.exit_code == 0):
        endings = [finding.title for finding in findings if finding.rule in UNCOMPILED]
    if not endings:
        state = _state(recording)
        is_over = recording.ending is not None and not recording.compiles
        return f"{state}; no compile was recorded" if is_over else state
    return f"{endings[0][0].lower()}{endings[0][1:]}"


def _compile_words(view: View) -> str:
    totals = view["totals"]
    outcomes = Counter(compile_["outcome"] for compile_ in view["compiles"])
    words = [f"{count} {outcome}" for outcome, count in outcomes.items()] or ["none"]
    words.append(count_of(totals["graphs"], "Inductor graph"))
    words.append(count_of(totals["graph_breaks"], "graph break"))
    words.append(count_of(totals["recompiles"], "recompile"))
    if totals["recompiles_refused"]:
        words[-1] += f" ({totals['recompiles_refused']} more refused)"
    return ", ".join(words)


def _kernel_words(totals: View) -> str:
    cached = totals["graphs_from_cache"]
    told = f"none generated for {count_of(cached, 'graph')} from a cache" if cached else ""
    if not totals["kernels"] and not totals["library_calls"]:
        return told
    words = [f"{count} {language}" for language, count in totals["kernels"].items()] or ["none"]
    if totals["kernels"] and totals["kernel_calls"] != sum(totals["kernels"].values()):
        words[-1] += f" at {count_of(totals['kernel_calls'], 'call site')}"
    if totals["library_calls"]:
        words.append(count_of(totals["library_calls"], "library call site"))
    pairs = f"{count_of(totals['pairs_fused'], 'pair')} fused, {totals['pairs_refused']} refused"
    return "; ".join(filter(None, (", ".join(words), pairs, told)))


def _seconds_words(view: View) -> str:
    """Return the seconds of all stages; several processes together may take more than the run."""
    seconds = view["stage_seconds"].items()
    words = ", ".join(f"{stage} {value:.2f}" for stage, value in seconds if value >= 0.005)
    processes = len({compile_["process"] for compile_ in view["compiles"]})
    return f"{words} ({processes} processes together)" if words and processes > 1 else words


def print_findings(printer: Printer, findings: list[View], *, is_success: bool = True) -> None:
    """Print the findings: problems first, then notes; a failed program is not called clean."""
    if is_success and not any(finding["is_problem"] for finding in findings):
        printer.line("no problem found ('inductoscope doctor' also checks the results)", style=GOOD)
    for number, finding in enumerate(findings, start=1):
        kind = "problem" if finding["is_problem"] else "note"
        style = BAD if finding["is_problem"] else WARN
        printer.line(f"{number}. {kind}: {finding['title']}", style=style)
        stack = finding["stack"]
        about = {
            "where": finding["source"],
            "": finding["code"],
            "stack": arrows(stack) if len(stack) > 1 else "",
        }
        printer.pairs(about, indent=3)
        for evidence in finding["evidence"][:6]:
            printer.pair(finding["confidence"], evidence, indent=3)
        printer.pairs({"next": finding["advice"]}, indent=3)


def print_compiles(printer: Printer, view: View) -> None:
    """Print one paragraph per compile: place, time, graphs and kernels."""
    for compile_ in view["compiles"]:
        name = compile_["function"] or "?"
        if compile_["resumed"]:
            name = f"rest of {compile_['resumed']}"
        printer.line()
        flow = f" ({compile_['flow']})" if compile_["flow"] else ""
        printer.heading(f"compile {compile_['id']}: {name}{flow} — {compile_['outcome']}")
        printer.pair("source", compile_["source"])
        total = "not finished" if not compile_["seconds"] else f"{compile_['seconds']:.2f}"
        printer.pair("seconds", f"{total}  ({_top(compile_['stage_seconds'])})")
        printer.pairs({"reason": compile_["reason"]})
        for number, line in enumerate(_settings_lines(compile_["settings"])):
            printer.pair("" if number else "settings", line)
        hits = [c["cache"] for c in compile_["caches"] if c["outcome"] == "hit"]
        if hits:
            printer.pair("cache", f"hit: {', '.join(hits)}; use --fresh to see the stages")
        for graph in compile_["graphs"]:
            _print_graph(printer, graph)


def _settings_lines(settings: View | None) -> tuple[str, ...]:
    return Settings(**settings).lines if settings else ()


def _top(seconds: dict[str, float]) -> str:
    most = sorted(seconds.items(), key=lambda item: -item[1])[:4]
    return ", ".join(f"{stage} {value:.2f}" for stage, value in most)


def _lowered(graph: View) -> str:
    return f"{count_of(graph['lowered_nodes'], 'node')} lowered"


def _print_graph(printer: Printer, graph: View) -> None:
    if graph["cached"]:
        state = "from the cache, no kernels generated"
    elif graph["finished"]:
        state = f"{_lowered(graph)}, {count_of(graph['fusions'], 'fusion')}"
    else:
        state = f"not finished, {_lowered(graph)}"
    printer.pair(graph["phase"], state)
    for name, count in graph["calls"].items():
        sites = f" ({count} call sites)" if count > 1 else ""
        printer.line(f"{name}{sites}", indent=16, style=FAINT)
