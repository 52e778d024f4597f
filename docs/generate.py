"""Writes the parts of the docs that follow from the code.

    python docs/generate.py            rewrites them
    python docs/generate.py --check    exits with 1 if one is out of date

A generated part stands between two markers, which name its generator and its arguments:

    <!-- generated: options doctor -->
    ...
    <!-- end -->

To add a generator, write a function that returns Markdown and list it in GENERATORS.
"""

from __future__ import annotations

import copy
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
from coverage_table import coverage, coverage_flags
from guide_pages import left_out, ran, script

from inductoscope.agents.skill import procedures
from inductoscope.cli import COMMANDS
from inductoscope.recording.events import KINDS, Event

ROOT = Path(__file__).resolve().parents[1]
FILES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))

_PART = re.compile(r"(<!-- generated: ([^\n]+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def command_called(name: str) -> click.Command:
    """The click command called `name`."""
    found = importlib.import_module(f"inductoscope.cli.commands.{name}").command
    assert isinstance(found, click.Command)
    return found


def commands() -> str:
    """One line per command: its arguments and what it does."""
    rows = (
        f"| `{name}{_arguments(command)}` | {command.get_short_help_str(200).rstrip('.')} |"
        for name in COMMANDS
        for command in [command_called(name)]
    )
    return "\n".join(["| command | what it does |", "|---|---|", *rows])


def options(name: str) -> str:
    """The options of one command, with those of the commands in it."""
    found = command_called(name)
    rows = [_option(param) for param in found.params if isinstance(param, click.Option)]
    for inner in found.commands.values() if isinstance(found, click.Group) else ():
        rows += [
            _option(param, f"{inner.name} ")
            for param in inner.params
            if isinstance(param, click.Option)
        ]
    return "\n".join(["| option | what it does |", "|---|---|", *rows])


def reference() -> str:
    """Output of `inductoscope COMMAND --help`, for every command and those in it."""
    parts = []
    for name in COMMANDS:
        found = command_called(name)
        parts += [f"## {name}", "", _help(found, f"inductoscope {name}"), ""]
        for inner in found.commands.values() if isinstance(found, click.Group) else ():
            called = f"{name} {inner.name}"
            parts += [f"### {called}", "", _help(inner, f"inductoscope {called}"), ""]
    return "\n".join(parts).rstrip()


def _help(command: click.Command, called: str) -> str:
    # A command remembers under which names its help was first asked for in this process.
    fresh = copy.copy(command)
    fresh.__dict__["_help_option"] = None
    names = ["-h", "--help"]  # As the whole tool has them.
    context = click.Context(fresh, info_name=called, terminal_width=80, help_option_names=names)
    return f"```text\n{fresh.get_help(context)}\n```"


def _arguments(command: click.Command) -> str:
    if isinstance(command, click.Group):
        return _cell(f" [{'|'.join(command.commands)}]")
    context = click.Context(command)
    arguments = (param for param in command.params if isinstance(param, click.Argument))
    return "".join(f" {_cell(param.make_metavar(context))}" for param in arguments)


def _option(option: click.Option, before: str = "") -> str:
    # The help has its default in brackets where it is not a value.
    text, _, told = (option.help or "").partition("  [default: ")
    default = told.rstrip("]") or (f"{option.default:g}" if _is_number(option) else option.default)
    shown = option.show_default or told
    value = _cell(f" {_value(option)}") if not option.is_flag else ""
    names = ", ".join(sorted(option.opts, key=len))
    return f"| `{before}{names}{value}` | {text}{f' Default: {default}.' if shown else ''} |"


def _is_number(option: click.Option) -> bool:
    return isinstance(option.default, (int, float)) and not isinstance(option.default, bool)


def _value(option: click.Option) -> str:
    if option.metavar:
        return option.metavar
    if isinstance(option.type, click.Choice):
        return "|".join(map(str, option.type.choices))
    return (option.type.name if option.type else "value").upper()


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def output(lines: str, *words: str) -> str:
    """Output of a command in 80 columns, as far as LINES, such as 1-12,20-22, says.

    The command reads what is kept under tests/data, so that it prints the same everywhere.
    """
    printed = _printed(*words)
    shown, last = [f"$ inductoscope {' '.join(words)}"], 0
    for first, end in (map(int, part.split("-")) for part in lines.split(",")):
        shown += [left_out(first - last - 1)] if first - last > 1 else []
        shown += printed[first - 1 : end]
        last = end
    shown += [left_out(len(printed) - last)] if last < len(printed) else []
    return "\n".join(f"    {line}".rstrip() for line in shown)


def procedure(*words: str) -> str:
    """One procedure of the skill, by its name."""
    found = procedures()[" ".join(words)]
    return "\n".join(f"    {line}".rstrip() for line in found.splitlines())


def _printed(*words: str) -> list[str]:
    # A path of the same length on every machine, since a long one takes another line.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        (Path(folder) / "tests").symlink_to(ROOT / "tests")
        done = subprocess.run(
            [sys.executable, "-m", "inductoscope", *words],
            cwd=folder,
            env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    return done.stdout.rstrip().splitlines()


def events() -> str:
    """Every kind of event: its fields, and when it is written."""
    rows = (
        f"| `{kind}` | {', '.join(item.name for item in fields(event))} | {_one_line(event)} |"
        for kind, event in KINDS.items()
    )
    return "\n".join(["| kind | fields | written when |", "|---|---|---|", *rows])


def _one_line(event: type[Event]) -> str:
    return " ".join((event.__doc__ or "").split())


def schemas() -> str:
    """The keys of what each command prints with --json; those that may be absent in italics."""
    rows = (
        f"| [`{path.stem}`](schemas/{path.name}) | {shape['title']} | {_keys(shape)} |"
        for path in sorted((ROOT / "docs" / "schemas").glob("*.json"))
        for described in [json.loads(path.read_text("utf-8"))]
        for shape in described.get("anyOf", [described])
    )
    return "\n".join(["| command | what it prints | keys |", "|---|---|---|", *rows])


def _keys(shape: dict[str, Any]) -> str:
    always = shape["required"]
    return ", ".join(f"`{key}`" if key in always else f"*`{key}`*" for key in shape["properties"])


# Name of a generator, as markers spell it, and the function that writes the part.
GENERATORS: dict[str, Callable[..., str]] = {
    "commands": commands,
    "options": options,
    "output": output,
    "procedure": procedure,
    "events": events,
    "schemas": schemas,
    "reference": reference,
    "script": script,
    "ran": ran,
    "coverage": coverage,
    "coverage_flags": coverage_flags,
}


def regenerated(text: str) -> str:
    """The text of a document with all its generated parts made anew."""

    def part(match: re.Match[str]) -> str:
        name, *arguments = match[2].split()
        return f"{match[1]}\n{GENERATORS[name](*arguments)}\n\n{match[3]}"

    return _PART.sub(part, text)


def main() -> int:
    """Rewrite what is out of date, or with --check only name it."""
    stale = [path for path in FILES if regenerated(path.read_text("utf-8")) != path.read_text()]
    for path in stale:
        print(f"{path.relative_to(ROOT)} is out of date")
        if "--check" not in sys.argv:
            path.write_text(regenerated(path.read_text("utf-8")), "utf-8")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
