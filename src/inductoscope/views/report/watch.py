"""Stalls as data and as text: for the live watch of `run`, and for `attach`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from inductoscope.hangs.choices.analysis import Analysis
from inductoscope.hangs.watch.live import Killed
from inductoscope.hangs.watch.stall import Resumed, Stall
from inductoscope.torch_facts import stages
from inductoscope.views.report.terminal import BAD, FAINT, GOOD, HEADING, WARN, Printer

View = dict[str, Any]

_FRAMES_SHOWN = 8
_PROCESSES_SHOWN = 8


def print_event(
    printer: Printer, event: Stall | Resumed | Killed, choices: Analysis | None = None
) -> None:
    """Print an event of the live watch; `choices` are those that a stalled program awaits."""
    if isinstance(event, Stall):
        print_stall(printer, asdict(event))
        for line in choices.lines if choices is not None else ():
            printer.line(line, indent=2)
    elif isinstance(event, Resumed):
        printer.line(
            f"inductoscope: stall {event.stall.number} is over after {event.after:.0f} s "
            f"({event.what})",
            style=GOOD,
        )
    else:
        style = WARN if event.ended.pids else FAINT
        printer.line(f"inductoscope: {_ended_text(asdict(event.ended))}", style=style)
        if event.ended.pids:
            printer.line("the result follows when the program continues", indent=2)


def print_stall(printer: Printer, view: View) -> None:
    slow = view["judgement"]["moves"]
    word = "slow" if slow else "stall"
    rank = f", rank {view['rank']}" if view["rank"] else ""
    printer.line(
        f"inductoscope: {word} {view['number']}: no progress for {view['seconds']:.0f} s "
        f"(pid {view['pid']}{rank})",
        style=WARN if slow else BAD,
    )
    print_facts(printer, view)


def print_facts(printer: Printer, view: View) -> None:
    """Print the details of a stall, after its first line."""
    judgement = view["judgement"]
    printer.line(judgement["title"], style=HEADING, indent=2)
    printer.pairs(_facts(view))
    for evidence in judgement["evidence"]:
        printer.pair(judgement["confidence"], evidence)
    _print_processes(printer, view["processes"])
    _print_locks(printer, view)
    _print_stack(printer, view)
    printer.pairs({"next": judgement["advice"]})


def _facts(view: View) -> dict[str, str]:
    detail = f" ({view['detail']})" if view["detail"] else ""
    choices = ", ".join(view["choices"][:6])
    more = len(view["choices"]) - 6
    return {
        "kind": view["judgement"]["kind"],
        "stage": f"{view['stage']}{detail}",
        "compile": " of ".join(filter(None, (view["compile"], view["function"]))),
        "source": view["source"],
        "kernel": view["kernel"],
        "choices": f"{choices} and {more} more" if more > 0 else choices,
        "last lowered": view["last_node"] if view["stage"] == stages.LOWERING else "",
        "moves": view["judgement"]["moves"],
    }


def _print_processes(printer: Printer, processes: list[View]) -> None:
    for process in processes[:_PROCESSES_SHOWN]:
        state = {"T": "stopped", "t": "traced", "Z": "dead"}.get(process["state"], "")
        doing = state or process["doing"]
        printer.pair(f"pid {process['pid']}", f"{process['role']} {process['name']}: {doing}")
    if len(processes) > _PROCESSES_SHOWN:
        printer.line(f"and {len(processes) - _PROCESSES_SHOWN} more processes", indent=2)


def _print_locks(printer: Printer, view: View) -> None:
    pids = {process["pid"] for process in view["processes"]}
    for lock in view["locks"]:
        if lock["waiters"] or lock["tries"] > 1 or lock["holder"] in pids:
            printer.pair("lock", f"{lock['path'] or 'a file'}, held by pid {lock['holder']}")


def _print_stack(printer: Printer, view: View) -> None:
    """Print the stack of the stuck process, else of the program, innermost call first."""
    wanted = view["judgement"]["pid"]
    stacks = sorted(view["stacks"], key=lambda stacks: stacks["pid"] != wanted)
    if not stacks:
        return
    first = stacks[0]
    if first["source"] == "none":
        printer.pair("stack", first["missing"])
        return
    main = [thread for thread in first["threads"] if thread["name"] == "MainThread"]
    thread = (main or first["threads"])[0]
    printer.pair("stack", f"pid {first['pid']}, thread {thread['name']}, from {first['source']}")
    for frame in thread["frames"][:_FRAMES_SHOWN]:
        place = "/".join(frame["file"].split("/")[-3:])
        printer.line(f"{frame['function']} ({place}:{frame['line']})", style=FAINT, indent=4)
    left = len(thread["frames"]) - _FRAMES_SHOWN
    if left > 0:
        printer.line(f"and {left} more calls", style=FAINT, indent=4)


def print_attached(printer: Printer, view: View) -> None:
    stall = view["stall"]
    if view["moves"]:
        printer.line(f"pid {view['pid']} is making progress: {view['moves']}", style=GOOD)
    else:
        printer.line(
            f"pid {view['pid']} has made no progress for {stall['seconds']:.0f} s", style=BAD
        )
    print_facts(printer, stall)
    for missing in view["missing"]:
        printer.pair("not seen", missing)
    if view["ended"] is not None:
        printer.line(_ended_text(view["ended"]), style=WARN)


def _ended_text(ended: View) -> str:
    pairs = zip(ended["names"], ended["pids"], strict=True)
    what = ", ".join(f"{name} (pid {pid})" for name, pid in pairs)
    return f"ended {what}" if what else ended["problem"] or "nothing was ended"
