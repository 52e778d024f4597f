"""The result of `inductoscope env`, as plain data and on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from inductoscope.torch_facts import stages
from inductoscope.torch_facts.log_lines import PatternCheck
from inductoscope.version import __version__
from inductoscope.views.env import (
    Environment,
    FlagCheck,
    FlagKind,
    FlagPhase,
    NameCheck,
    Torch,
)
from inductoscope.views.env.collection import NEWEST_TORCH, OLDEST_TORCH

View = dict[str, Any]

_INDENT = 4

_HEADINGS = {
    FlagKind.VARIABLE: "Environment variables",
    FlagKind.ARTIFACT: "Names for TORCH_LOGS",
    FlagKind.SETTING: "Keys of torch._inductor.config",
}


def environment_view(environment: Environment, *, flags: bool) -> View:
    """Everything that was found, ready for JSON; the table of flags only on request."""
    view: View = {
        "schema": 1,
        "inductoscope": __version__,
        "python": {"path": environment.python, "version": environment.python_version},
        "machine": asdict(environment.machine),
        "torch": _torch_view(environment.torch),
        "compiler": _optional(environment.compiler),
        "ptxas": _optional(environment.ptxas),
        "cache": _optional(environment.cache),
        "problem": _problem(environment),
        "names": [_name_view(check) for check in environment.names],
        "patterns": [_pattern_view(check) for check in environment.patterns],
        "missing": [_missing_text(check) for check in environment.missing],
        "notes": list(environment.notes),
    }
    if flags:
        view["phases"] = {phase.value: phase.meaning for phase in FlagPhase}
        view["flags"] = [_flag_view(check) for check in environment.flags]
    return view


def _optional(found: Any) -> View | None:
    return None if found is None else asdict(found)


def _torch_view(torch: Torch | None) -> View | None:
    if torch is None:
        return None
    devices = [asdict(device) for device in torch.devices]
    return {**asdict(torch), "devices": devices, "supported": torch.supported}


def _problem(environment: Environment) -> View | None:
    if environment.problem is None:
        return None
    return {
        "what": f"torch cannot be imported in {environment.python}: {environment.problem}",
        "next": _next_step(environment.python, environment.problem),
    }


def _next_step(python: str, problem: str) -> str:
    other = "Name the Python that runs your script with --python PATH"
    if "No module named 'torch'" in problem:
        return f"{other}, or install torch {OLDEST_TORCH} to {NEWEST_TORCH} in this one."
    return f"{other}, or see the whole error with: {python} -c 'import torch'"


def _name_view(check: NameCheck) -> View:
    absent = f"{check.absent} is not installed" if check.absent else "missing"
    return {
        "stage": check.stage,
        "name": check.name,
        "state": "found" if check.found else absent,
        "reason": check.reason,
    }


def _pattern_view(check: PatternCheck) -> View:
    return {
        **asdict(check.pattern),
        "description": check.pattern.meaning.value if check.pattern.meaning else "",
        "state": check.presence.value,
        "line": check.line,
        "level_now": check.level,
        "nearest": check.nearest,
    }


def _flag_view(check: FlagCheck) -> View:
    return {
        **asdict(check.flag),
        "kind": check.flag.kind.value,
        "acts": check.flag.acts.value,
        "set_by": list(check.flag.set_by),
        "known": check.known,
        "how": check.how,
        "value": check.value,
        "config_value": check.config_value,
    }


def _missing_text(check: NameCheck | PatternCheck | FlagCheck) -> str:
    if isinstance(check, NameCheck):
        return f"{_what_is_off(check)} is off: {check.reason}."
    if isinstance(check, PatternCheck):
        return _missing_pattern_text(check)
    commands = ", ".join(check.flag.set_by)
    return f"{check.flag.name}, which '{commands}' sets, is unknown to this torch."


def _what_is_off(check: NameCheck) -> str:
    if check.stage == stages.NO_STAGE:
        return f"What needs {check.name}"
    return f"Part of the {check.stage} view"


def _missing_pattern_text(check: PatternCheck) -> str:
    pattern = check.pattern
    if check.nearest is not None:
        what = f"is gone; the nearest is '{check.nearest}' ({check.level}, line {check.line})"
    elif check.level is not None:
        what = f"is now written at {check.level}, not {pattern.level} (line {check.line})"
    else:
        what = "is gone, and nothing similar replaced it"
    return f"Log line '{pattern.text}' of {pattern.module} {what}."


# --- on a terminal --------------------------------------------------------------------------------


def render_environment(view: View, console: Console) -> None:
    """Print `view`, readable at 80 columns."""
    for part in _parts(view):
        console.print(part)


def _parts(view: View) -> Iterator[RenderableType]:
    yield _pairs(_summary(view))
    if view["torch"] is not None:
        yield from _checks("Private torch names", view["names"], _name_lines(view["names"]))
        yield from _checks("Log lines of torch", view["patterns"], _pattern_lines(view["patterns"]))
    if view.get("flags"):
        yield from _flag_lines(view)
    yield ""
    yield from (Text(f"Unknown: {text}", style="yellow") for text in view["notes"])
    yield from (Text(text, style="red") for text in view["missing"])
    if view["problem"] is not None:
        yield Text(view["problem"]["what"], style="red")
        yield Text(view["problem"]["next"])
    elif not view["missing"]:
        yield Text("Nothing that inductoscope needs is missing.", style="green")


def _pairs(rows: Iterable[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in rows:
        table.add_row(Text(label, style="bold"), Text(text))
    return table


def _summary(view: View) -> Iterator[tuple[str, str]]:
    python, cache = view["python"], view["cache"]
    yield "inductoscope", view["inductoscope"]
    yield "Python", f"{python['version'] or 'unknown'}\n{python['path']}"
    yield "system", view["machine"]["system"]
    yield "CPU", _cpu_text(view)
    yield from _torch_rows(view["torch"])
    yield "C++ compiler", _tool_text(view["compiler"], missing="none; C++ kernels need one")
    yield "ptxas", _tool_text(view["ptxas"], missing="none")
    if cache is not None:
        owner = "private" if cache["private"] else "shared by all runs of this user"
        yield "cache folder", f"{cache['path']}\n{owner}"


def _cpu_text(view: View) -> str:
    machine, torch = view["machine"], view["torch"]
    isa = f", torch uses {torch['isa']}" if torch and torch["isa"] else ""
    return f"{machine['cpu']}, {machine['cores']} cores{isa}"


def _torch_rows(torch: View | None) -> Iterator[tuple[str, str]]:
    if torch is None:
        yield "torch", "none"
        return
    warning = "" if torch["supported"] else f"; not one of {OLDEST_TORCH} to {NEWEST_TORCH}"
    yield "torch", f"{torch['version']} (git {(torch['git'] or 'unknown')[:10]}){warning}"
    builds = [f"{name} {torch[key]}" for name, key in _BUILDS.items() if torch[key]]
    yield "built for", ", ".join(builds) or "CPU"
    yield "Triton", torch["triton"] or "none"
    yield "devices", "\n".join(map(_device_text, torch["devices"])) or "CPU only"


_BUILDS = {"CUDA": "cuda", "HIP": "hip"}


def _device_text(device: View) -> str:
    memory = f"{device['memory'] / 2**30:.0f} GiB" if device["memory"] else None
    details = ", ".join(text for text in (device["architecture"], memory) if text)
    return f"{device['kind']}:{device['index']} {device['name']}" + f" ({details})" * bool(details)


def _tool_text(tool: View | None, *, missing: str) -> str:
    if tool is None:
        return missing
    return f"{tool['version'] or 'does not start'}\n{tool['path']}"


def _checks(
    title: str, checks: list[View], lines: Iterable[RenderableType]
) -> Iterator[RenderableType]:
    counts = Counter(check["state"] for check in checks)
    yield ""
    yield Text(f"{title}: " + ", ".join(f"{n} {state}" for state, n in counts.items()), "bold")
    yield from lines


def _name_lines(checks: list[View]) -> Iterator[RenderableType]:
    for stage in dict.fromkeys(check["stage"] for check in checks):
        yield Text(f"  {stage}")
        for check in checks:
            if check["stage"] == stage:
                yield _indented(check["name"], style=_style(check["state"]))
                if check["reason"]:
                    yield _indented(f"{check['state']}: {check['reason']}", depth=2)


def _pattern_lines(checks: list[View]) -> Iterator[RenderableType]:
    for check in checks:
        yield _indented(check["text"], style=_style(check["state"]))
        place = f"{check['level_now']}, {check['module']}:{check['line']}"
        yield _indented(place if check["state"] == "found" else check["state"], depth=2)


def _style(state: str) -> str:
    return {"found": "green", "missing": "red", "level changed": "red"}.get(state, "dim")


def _flag_lines(view: View) -> Iterator[RenderableType]:
    for kind, heading in _HEADINGS.items():
        yield ""
        yield Text(heading, style="bold")
        for flag in view["flags"]:
            if flag["kind"] == kind.value:
                yield from _one_flag(flag)
    yield ""
    yield Text("When a flag takes effect", style="bold")
    yield Padding(_pairs(view["phases"].items()), (0, 0, 0, _INDENT // 2))


def _one_flag(flag: View) -> Iterator[RenderableType]:
    yield _indented(f"{flag['name']}  [{_value_text(flag)}]", style=_flag_style(flag))
    yield _indented(f"{flag['purpose']}; acts at {flag['acts']}", depth=2)
    yield _indented("; ".join(_flag_details(flag)), style="dim", depth=2)
    if flag["note"]:
        yield _indented(flag["note"], style="yellow", depth=2)


def _value_text(flag: View) -> str:
    value = "not set" if flag["value"] is None else str(flag["value"])
    if flag["known"]:
        return value
    unknown = "unknown to this torch"
    return unknown if flag["value"] is None else f"{value}, but {unknown}"


def _flag_style(flag: View) -> str:
    return "green" if flag["known"] else "red"


def _flag_details(flag: View) -> Iterator[str]:
    yield flag["how"]
    if flag["known"] and flag["example"]:
        yield f"for example {flag['example']}"
    if flag["known"] and flag["config_key"]:
        yield f"sets {flag['config_key']}, now {flag['config_value'] or 'unknown'}"
    if flag["replaced_by"]:
        yield f"use {flag['replaced_by']} instead"
    if flag["set_by"]:
        yield f"set by {', '.join(flag['set_by'])}"


def _indented(text: str, *, style: str = "", depth: int = 1) -> RenderableType:
    return Padding(
        Text(text, style=style, overflow="fold"), (0, 0, 0, _INDENT * depth), expand=False
    )
