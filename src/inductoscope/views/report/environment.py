"""The result of `inductoscope env` as data and on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from inductoscope.torch_facts import stages
from inductoscope.torch_facts.log_lines import PatternCheck
from inductoscope.version import __version__
from inductoscope.views.env.collection import (
    NEWEST_TORCH,
    OLDEST_TORCH,
    Environment,
    FlagCheck,
    NameCheck,
)
from inductoscope.views.env.flags import ARTIFACT, PHASES, SETTING, VARIABLE
from inductoscope.views.report.terminal import BAD, FAINT, GOOD, WARN, Printer
from inductoscope.wording import bytes_text

View = dict[str, Any]

_HEADINGS = {
    VARIABLE: "Environment variables",
    ARTIFACT: "Names for TORCH_LOGS",
    SETTING: "Keys of torch._inductor.config",
}


def environment_view(environment: Environment, *, flags: bool) -> View:
    """Return the environment as data; the table of flags only on request."""
    torch, found = environment.torch, asdict(environment)
    view: View = {
        **{name: found[name] for name in ("machine", "compiler", "ptxas", "cache", "notes")},
        "inductoscope": __version__,
        "python": {"path": environment.python, "version": environment.python_version},
        "torch": None if torch is None else {**found["torch"], "supported": torch.supported},
        "problem": _problem(environment),
        "names": [_name_view(check) for check in environment.names],
        "patterns": [_pattern_view(check) for check in environment.patterns],
        "missing": [_missing_text(check) for check in environment.missing],
    }
    if flags:
        view["phases"] = PHASES
        view["flags"] = [{**check.pop("flag"), **check} for check in found["flags"]]
    return view


def _problem(environment: Environment) -> View | None:
    python, problem = environment.python, environment.problem
    if problem is None:
        return None
    step = f"or see the whole error with: {python} -c 'import torch'"
    if "No module named 'torch'" in problem:
        step = f"or install torch {OLDEST_TORCH} to {NEWEST_TORCH} in this one."
    return {
        "what": f"torch cannot be imported in {python}: {problem}",
        "next": f"Name the Python that runs your script with --python PATH, {step}",
    }


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


def _missing_text(check: NameCheck | PatternCheck | FlagCheck) -> str:
    if isinstance(check, NameCheck):
        is_shared = check.stage == stages.NO_STAGE
        off = f"What needs {check.name}" if is_shared else f"Part of the {check.stage} view"
        return f"{off} is off: {check.reason}."
    if isinstance(check, FlagCheck):
        commands = ", ".join(check.flag.set_by)
        return f"{check.flag.name}, which '{commands}' sets, is unknown to this torch."
    pattern = check.pattern
    if check.nearest is not None:
        what = f"is gone; the nearest is '{check.nearest}' ({check.level}, line {check.line})"
    elif check.level is not None:
        what = f"is now written at {check.level}, not {pattern.level} (line {check.line})"
    else:
        what = "is gone, and nothing similar replaced it"
    return f"Log line '{pattern.text}' of {pattern.module} {what}."


# --- on a terminal --------------------------------------------------------------------------------

_STYLES = {"found": GOOD, "missing": BAD, "level changed": BAD}


def print_environment(printer: Printer, view: View) -> None:
    for label, told in _summary(view):
        printer.pair(label, told, indent=0)
    if view["torch"] is not None:
        _print_names(printer, view["names"])
        _print_patterns(printer, view["patterns"])
    for kind, heading in _HEADINGS.items() if "flags" in view else ():
        printer.line()
        printer.heading(heading)
        for flag in view["flags"]:
            if flag["kind"] == kind:
                _print_flag(printer, flag)
    if "flags" in view:
        printer.line()
        printer.heading("When a flag takes effect")
        for phase, meaning in view["phases"].items():
            printer.pair(phase, meaning, width=17)
    printer.line()
    for text in view["notes"]:
        printer.line(f"Unknown: {text}", style=WARN)
    for text in view["missing"]:
        printer.line(text, style=BAD)
    if view["problem"] is not None:
        printer.line(view["problem"]["what"], style=BAD)
        printer.line(view["problem"]["next"])
    elif not view["missing"]:
        printer.line("Nothing that inductoscope needs is missing.", style=GOOD)


def _summary(view: View) -> Iterator[tuple[str, str]]:
    python, machine, torch, cache = (view[key] for key in ("python", "machine", "torch", "cache"))
    yield "inductoscope", view["inductoscope"]
    yield "Python", f"{python['version'] or 'unknown'}\n{python['path']}"
    yield "system", machine["system"]
    isa = f", torch uses {torch['isa']}" if torch and torch["isa"] else ""
    yield "CPU", f"{machine['cpu']}, {machine['cores']} cores{isa}"
    if torch is None:
        yield "torch", "none"
    else:
        warning = "" if torch["supported"] else f"; not one of {OLDEST_TORCH} to {NEWEST_TORCH}"
        yield "torch", f"{torch['version']} (git {(torch['git'] or 'unknown')[:10]}){warning}"
        builds = [f"{key.upper()} {torch[key]}" for key in ("cuda", "hip") if torch[key]]
        yield "built for", ", ".join(builds) or "CPU"
        yield "Triton", torch["triton"] or "none"
        yield "devices", "\n".join(map(_device_text, torch["devices"])) or "CPU only"
    for name, key, missing in (
        ("C++ compiler", "compiler", "none; C++ kernels need one"),
        ("ptxas", "ptxas", "none"),
    ):
        tool = view[key]
        yield name, f"{tool['version'] or 'does not start'}\n{tool['path']}" if tool else missing
    if cache is not None:
        owner = "private" if cache["private"] else "shared by all runs of this user"
        yield "cache folder", f"{cache['path']}\n{owner}"


def _device_text(device: View) -> str:
    memory = bytes_text(device["memory"]) if device["memory"] else None
    details = ", ".join(filter(None, (device["architecture"], memory)))
    return f"{device['kind']}:{device['index']} {device['name']}" + f" ({details})" * bool(details)


def _print_counts(printer: Printer, title: str, checks: list[View]) -> None:
    counts = Counter(check["state"] for check in checks)
    printer.line()
    printer.heading(f"{title}: " + ", ".join(f"{n} {state}" for state, n in counts.items()))


def _print_names(printer: Printer, checks: list[View]) -> None:
    _print_counts(printer, "Private torch names", checks)
    for stage in dict.fromkeys(check["stage"] for check in checks):
        printer.line(stage, indent=2)
        for check in checks:
            if check["stage"] == stage:
                printer.line(check["name"], indent=4, style=_STYLES.get(check["state"], FAINT))
                if check["reason"]:
                    printer.line(f"{check['state']}: {check['reason']}", indent=8)


def _print_patterns(printer: Printer, checks: list[View]) -> None:
    _print_counts(printer, "Log lines of torch", checks)
    for check in checks:
        printer.line(check["text"], indent=4, style=_STYLES.get(check["state"], FAINT))
        place = f"{check['level_now']}, {check['module']}:{check['line']}"
        printer.line(place if check["state"] == "found" else check["state"], indent=8)


def _print_flag(printer: Printer, flag: View) -> None:
    value = "not set" if flag["value"] is None else flag["value"]
    if not flag["known"]:
        unknown = "unknown to this torch"
        value = unknown if flag["value"] is None else f"{value}, but {unknown}"
    printer.line(f"{flag['name']}  [{value}]", indent=4, style=GOOD if flag["known"] else BAD)
    printer.line(f"{flag['purpose']}; acts at {flag['acts']}", indent=8)
    printer.line("; ".join(_flag_details(flag)), indent=8, style=FAINT)
    if flag["note"]:
        printer.line(flag["note"], indent=8, style=WARN)


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
