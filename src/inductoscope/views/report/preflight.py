"""The result of `inductoscope preflight` as data and as text."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Any

from inductoscope.analysis.ranks.report import ranks_text
from inductoscope.preflight.prediction import Preflight
from inductoscope.preflight.rank_files import HANG, MISMATCH, Prediction
from inductoscope.views.report.ranks import print_ranks, ranks_view
from inductoscope.views.report.terminal import BAD, FAINT, GOOD, WARN, Printer
from inductoscope.wording import count_of

View = dict[str, Any]

_NO_DISTRIBUTED = (
    "The program made no process group, so it does not use torch.distributed: its ranks do not "
    "wait for each other. What they compile was compared all the same."
)
_MESSAGES = {
    HANG: "ranks send and receive messages that do not meet",
    MISMATCH: "a message is received with another size or type than it is sent with",
}
# Verdicts that are neither clean nor certainly a fault.
_MILD = ("ranks differ", "nothing compared")
_MOST_SHOWN = 8
_TAIL_LINES = 12


def preflight_view(found: Preflight) -> View:
    """Return all results as data; the terminal shows a part of them."""
    verdict, headline = _verdict(found)
    return {
        "schema": 1,
        "verdict": verdict,
        "headline": headline,
        "command": list(found.job.command),
        "world": found.job.world,
        "ranks_run": list(found.job.ranks),
        "target": found.job.target,
        "distributed": found.uses_distributed,
        "backend": next((one.backend for one in found.files if one.backend), ""),
        "predictions": [_prediction(one) for one in found.predictions],
        "runs": [{**asdict(one.run), "collectives": one.calls} for one in found.files],
        "ranks": ranks_view(found.report),
        "notes": [*found.notes, *_about_groups(found)],
        "limits": list(found.limits),
        "folder": str(found.job.folder),
    }


def _prediction(prediction: Prediction) -> View:
    return {
        "kind": prediction.kind,
        "decision": prediction.decision,
        "confidence": "likely",
        "how": "called as these ranks"
        if prediction.was_called
        else "in graphs that these ranks compiled",
        "sides": [{"ranks": list(side.ranks), "call": side.text} for side in prediction.sides],
    }


def _verdict(found: Preflight) -> tuple[str, str]:
    """Return the verdict and its headline."""
    runs = count_of(len(found.files), "rank")
    if found.predictions:
        first = found.predictions[0]
        return f"{first.kind} predicted", _predicted(first)
    if found.could_not_check:
        compared = "only what they did before" if found.report.comparison.decisions else "nothing"
        text = f"the program failed as every rank ({runs}), so {compared} could be compared"
        return "failed", text
    if found.failed:
        failed = ranks_text(run.rank for run in found.failed)
        return "some ranks fail", f"the program fails as {failed}"
    if found.has_nothing_to_compare:
        return "nothing compared", f"none of {runs} compiled anything or called a collective"
    if found.differs:
        text = "ranks compile different graphs; nothing shows that their collectives clash"
        return "ranks differ", text
    messages = "; their messages meet" if any(one.messages for one in found.files) else ""
    return "clean", f"{runs} compile the same and call the same collectives{messages}"


def _predicted(first: Prediction) -> str:
    if first.is_message:
        return _MESSAGES[first.kind]
    if first.kind == HANG:
        return "ranks of one process group do not call the same collectives"
    return "ranks call the same collective with different sizes or types"


# --- terminal -------------------------------------------------------------------------------------


def print_preflight(printer: Printer, view: View, *, kept: bool) -> None:
    clean = view["verdict"] == "clean"
    style = GOOD if clean else WARN if view["verdict"] in _MILD else BAD
    printer.line(f"{view['verdict']}: {view['headline']}", style=style)
    printer.pair("command", shlex.join(view["command"]))
    target = f", for {view['target']}" if view["target"] else ""
    printer.pair("ranks", f"{len(view['ranks_run'])} of {view['world']}{target}")
    for prediction in view["predictions"][:_MOST_SHOWN]:
        _print_prediction(printer, prediction)
    _print_failure(printer, view)
    printer.line()
    print_ranks(printer, view["ranks"])
    for note in view["notes"]:
        printer.pair("note", note)
    for limit in view["limits"]:
        printer.line(limit, indent=2, style=FAINT)
    if kept:
        printer.pair("kept in", view["folder"])


def _print_prediction(printer: Printer, prediction: View) -> None:
    printer.pair(prediction["kind"], prediction["decision"])
    for side in prediction["sides"][:_MOST_SHOWN]:
        printer.pair("", f"{ranks_text(side['ranks'])}: {side['call']}")
    printer.pair(prediction["confidence"], f"{prediction['how']}, compared call by call")


def _about_groups(found: Preflight) -> list[str]:
    """Note a missing process group, unless a failed rank might have created one later."""
    return [] if found.uses_distributed or found.failed else [_NO_DISTRIBUTED]


def _print_failure(printer: Printer, view: View) -> None:
    """Print the last output of the first rank that failed."""
    failed = next((run for run in view["runs"] if run["exit_code"] != 0), None)
    if failed is None:
        return
    last = failed["output"].splitlines()[-_TAIL_LINES:]
    what = "printed last:" if last else "printed nothing"
    printer.pair("failed", f"rank {failed['rank']} {what}")
    printer.code("\n".join(last), indent=4)
    printer.pair(
        "",
        "If it needs the result of a collective, that is a limit of preflight: nothing is sent.",
    )
