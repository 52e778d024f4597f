"""The result of `inductoscope logs`: an answer per program, stuck choices, differences."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from inductoscope.analysis.ranks.report import RankReport
from inductoscope.hangs.choices.analysis import Analysis, analyses_of
from inductoscope.hangs.choices.causes import Cause
from inductoscope.hangs.choices.suspects import Suspect
from inductoscope.hangs.logs.answers import Answer
from inductoscope.hangs.logs.program import ChoiceState, Group
from inductoscope.hangs.logs.reading import ReadFile
from inductoscope.torch_facts import stages
from inductoscope.views.report.choices_table import choices_table
from inductoscope.views.report.ranks import print_ranks, ranks_view
from inductoscope.views.report.terminal import BAD, FAINT, GOOD, WARN, Printer

View = dict[str, Any]

_MOST_EVIDENCE = 6
_MOST_GROUPS = 8
_MOST_PROGRAMS = 12


def logs_view(
    files: Sequence[ReadFile], answers: Sequence[Answer], report: RankReport | None = None
) -> View:
    """Return all results as data; the terminal shows a part of them."""
    is_problem = any(answer.is_problem for answer in answers)
    return {
        "schema": 1,
        "problem": is_problem or (report is not None and report.is_problem),
        "verdict": answers[0].kind.value if answers else "cannot tell",
        "ranks": None if report is None else ranks_view(report),
        "answers": [_answer(answer) for answer in answers],
        "files": [asdict(file) for file in files],
    }


def _answer(answer: Answer) -> View:
    return {
        "kind": answer.kind.value,
        "title": answer.title,
        "problem": answer.is_problem,
        "confidence": answer.confidence,
        "stage": answer.stage,
        "program": {"text": answer.program.text, **asdict(answer.program)},
        "compile": answer.compile_id,
        "evidence": [asdict(line) for line in answer.evidence],
        "advice": list(answer.advice),
        "command": answer.command,
        "notes": list(answer.notes),
        "groups": [_group(*pair) for pair in zip(answer.groups, analyses_of(answer), strict=True)],
    }


def _group(group: Group, analysis: Analysis) -> View:
    unfinished = group.stuck or group.pending
    return {
        **_fields(group, "operation", "shapes", "announced", "unnamed", "timed_out_after"),
        "compile": group.origin.compile_id,
        "place": group.origin.place,
        "state": group.stage.value,
        "counts": _counts(group),
        "stuck": [_state(s, c) for s, c in zip(unfinished, analysis.stuck, strict=True)],
        "finished": [_state(s, c) for s, c in zip(group.finished, analysis.finished, strict=True)],
        "failed": [_state(state, None) for state in group.failed],
        "queued": [_state(state, None) for state in group.queued],
        "conditions": [
            _fields(condition, "text", "counts", "separates", "decided_by")
            for condition in analysis.conditions
        ],
        "causes": [_cause(cause) for cause in analysis.causes],
        "way_past": None if analysis.filter is None else asdict(analysis.filter),
        "missing_files": list(analysis.missing_files),
    }


def _cause(cause: Cause) -> View:
    return {
        **_fields(cause.rule, "name", "title", "reason", "advice"),
        **_fields(cause, "evidence", "stuck", "of_stuck", "finished", "of_finished"),
    }


def _fields(thing: Any, *names: str) -> View:
    return {name: getattr(thing, name) for name in names}


def _counts(group: Group) -> dict[str, int]:
    return {
        "submitted": len(group.submitted),
        "finished": len(group.finished),
        "failed": len(group.failed),
        "timed out": len(group.timed_out),
        "stuck": len(group.stuck),
        "queued behind them": len(group.queued),
        "pending": len(group.pending),
    }


def _state(state: ChoiceState, suspect: Suspect | None) -> View:
    choice = state.choice
    return {
        **_fields(choice, "kind", "name", "short_name"),
        "configuration": dict(suspect.configuration if suspect else choice.configuration),
        "state": state.progress.value,
        "where": "worker process" if state.to_pool else "thread",
        **_fields(state, "seconds", "message"),
        "lines": [origin.place for origin in state.origins],
    }


# --- terminal -------------------------------------------------------------------------------------


def print_logs(printer: Printer, view: View) -> None:
    """Print the answers: problems first, equal answers of several programs once."""
    if view["ranks"] is not None:
        print_ranks(printer, view["ranks"])
    shown: dict[tuple[str, str], list[View]] = {}
    for answer in view["answers"]:
        shown.setdefault((answer["kind"], answer["title"]), []).append(answer)
    for number, same in enumerate(shown.values()):
        if number == _MOST_PROGRAMS:
            printer.line(f"… and {len(shown) - number} more kinds of answer; --json lists all")
            break
        _print_answer(printer, same)
    _print_damage(printer, view["files"])


def _print_answer(printer: Printer, same: list[View]) -> None:
    answer = same[0]
    style = BAD if answer["problem"] else (GOOD if answer["kind"] == "clean" else WARN)
    printer.line(f"{answer['kind']}: {answer['title']}", style=style)
    printer.pair("program", _programs(same))
    if answer["stage"] != stages.NO_STAGE:
        compile_ = f", compile {answer['compile']}" if answer["compile"] else ""
        printer.pair("stage", f"{answer['stage']}{compile_}")
    for number, evidence in enumerate(answer["evidence"][:_MOST_EVIDENCE]):
        name = answer["confidence"] if number == 0 else ""
        printer.pair(name, f"{_short(evidence['place'])}: {evidence['text']}")
    for group in answer["groups"][-_MOST_GROUPS:]:
        _print_group(printer, group)
    for note in answer["notes"]:
        printer.pair("note", note)
    if answer["command"]:
        printer.pair("next", "Check whether it hangs on its own:")
        printer.code(answer["command"], indent=4)
    for advice in answer["advice"]:
        printer.pair("next", advice)
    ways = [group["way_past"] for group in answer["groups"] if group["way_past"]]
    for way in ways[:1]:
        printer.pair("not tried", f"without {way['condition']} (--filter DIR: snippet and patch):")
        printer.code(way["variable"], indent=4)
    printer.line()


def _programs(same: list[View]) -> str:
    names = [answer["program"]["text"] for answer in same]
    logs = Counter(answer["program"]["log"] for answer in same)
    several = len(logs) > 1
    if several:
        names = [f"{_short(a['program']['log'])}: {a['program']['text']}" for a in same]
    more = f" and {len(names) - 4} more with the same" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more


def _print_group(printer: Printer, group: View) -> None:
    counts = {name: count for name, count in group["counts"].items() if count}
    if not counts:
        return
    what = " ".join(part for part in (group["operation"], group["shapes"]) if part)
    printer.pair("choices", ", ".join(f"{count} {name}" for name, count in counts.items()))
    if what:
        printer.pair("operation", what)
    if group["timed_out_after"] is not None:
        printer.pair("timeout", f"torch gave up after {group['timed_out_after']} s")
    table = choices_table(group["stuck"], group["finished"], printer.width - 2)
    printer.line()
    printer.line(
        "not finished"
        if group["counts"]["stuck"]
        else "submitted; torch does not wait for them yet",
        indent=2,
    )
    for line in table.lines:
        printer.line(line, indent=2)
    if table.same:
        printer.line(f"all of them: {table.same}", indent=2, style=FAINT)
    printer.line()
    _print_contrast(printer, group)


def _print_contrast(printer: Printer, group: View) -> None:
    for condition in group["conditions"]:
        words = "sets them apart" if condition["separates"] else "comes closest"
        printer.pair(words, f"{condition['text']}: {condition['counts']}", width=16)
        if condition["decided_by"]:
            printer.pair("", f"to decide: {condition['decided_by']}", width=16)
    if group["stuck"] and not group["conditions"]:
        why = "no choice finished, so there is nothing to compare with"
        if group["finished"]:
            why = "in the log, their configurations do not differ from the finished ones"
        printer.pair("sets them apart", f"unknown: {why}", width=16)
    for cause in group["causes"][:3]:
        text = f"{cause['title']} ({cause['evidence']}). {cause['reason']}"
        printer.pair("possible cause", text, width=16)
    missing = group["missing_files"]
    if missing:
        printer.pair("kernel files", f"{len(missing)} not on this machine; copy one:", width=16)
        printer.code(f"scp MACHINE:{shlex.quote(missing[0])} .", indent=4)


def _print_damage(printer: Printer, files: list[View]) -> None:
    for file in files:
        for damage in file["damage"]:
            printer.pair("note", f"{_short(file['path'])}: {damage}")


def _short(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]
