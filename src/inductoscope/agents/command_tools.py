"""The commands offered to agents as tools: their JSON schemas and command lines."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import click

from inductoscope.errors import UsageError
from inductoscope.wording import did_you_mean

# Options of every command that are for terminals, or that the server sets.
FOR_A_TERMINAL = frozenset({"json", "quiet", "no_pager", "help"})
# The suffix of a tool that has all parameters of its command, including those that act.
ACTING = "_and_act"


@dataclass(frozen=True)
class OfferedCommand:
    words: tuple[str, ...]
    # The strongest effect of the command, whatever its parameters: it reads; it writes files,
    # possibly over others; or it executes code that is not the tool's.
    effect: Literal["reads", "writes", "runs"]
    # Options that make no sense in a call, besides those for a terminal.
    hidden: frozenset[str] = frozenset()
    # Whether the command also prints the program's own output.
    passes_output_on: bool = False
    # Parameters that the read-only tool of the same command lacks, because of their effect.
    acting: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return f"{self.words[0]}{ACTING}" if self.acting else self.words[0]


def _reading_and_acting(
    word: str, acting: frozenset[str], hidden: frozenset[str] = frozenset()
) -> tuple[OfferedCommand, OfferedCommand]:
    """Offer a command as two tools, since clients may let agents read without confirmation."""
    return (
        OfferedCommand((word,), "reads", hidden | acting),
        OfferedCommand((word,), "runs", hidden, acting=acting),
    )


# Not offered: what never ends (serve), what deletes (recordings prune), what sets up a shell or
# an agent (completion, mcp, skill).
OFFERED: tuple[OfferedCommand, ...] = (
    OfferedCommand(("doctor",), "runs"),
    # The JSON has the program's exit code and findings; the tool's own exit code says no more.
    OfferedCommand(("run",), "runs", frozenset({"findings_exit_code"}), passes_output_on=True),
    *_reading_and_acting(
        "show", frozenset({"target", "runnable", "to"}), hidden=frozenset({"list"})
    ),
    # --target compiles the recorded graphs, which executes code.
    OfferedCommand(("report",), "runs"),
    *_reading_and_acting("fusion", frozenset({"try", "timeout"})),
    *_reading_and_acting("bounds", frozenset({"try", "sizes", "timeout"})),
    OfferedCommand(("profile",), "runs", passes_output_on=True),
    OfferedCommand(("diff",), "reads"),
    OfferedCommand(("export",), "writes"),
    OfferedCommand(("recordings", "list"), "reads"),
    OfferedCommand(("explain",), "reads"),
    # `--follow` would wait for a log that may grow endlessly.
    *_reading_and_acting(
        "logs",
        frozenset({"filter", "page", "executor", "any_worker"}),
        hidden=frozenset({"follow", "seconds"}),
    ),
    OfferedCommand(("preflight",), "runs"),
    OfferedCommand(("attach",), "runs"),
    OfferedCommand(("kernel",), "writes"),
    OfferedCommand(("aoti",), "runs"),
    *_reading_and_acting("env", frozenset({"python"})),
)


# --- Parameters of a click command: as a JSON schema, and as words of a command line --------------

# A parameter of every tool, in addition to those of its command.
FOLDER = "folder"
_FOLDER_SCHEMA = {
    "type": "string",
    "description": "Work in this folder, as after cd. Default: the folder of the server.",
}

_NUMBERS = {click.types.IntParamType: "integer", click.types.FloatParamType: "number"}


@dataclass(frozen=True)
class CommandTool:
    """A command with its parameters under the names that agents use."""

    offered: OfferedCommand
    command: click.Command

    @property
    def name(self) -> str:
        return self.offered.name

    @property
    def description(self) -> str:
        """The help text, without click's marks against wrapping."""
        text = inspect.cleandoc(self.command.help or "").replace("\b\n", "")
        if not self.offered.acting:
            return text
        more = ", ".join(name for name in self.parameters if name in self.offered.acting)
        told = f"Like `{self.offered.words[0]}`, with more parameters: {more}."
        return f"{text.splitlines()[0]}\n\n{told} They execute code or write files."

    @property
    def parameters(self) -> dict[str, click.Parameter]:
        named = {parameter_name(one): one for one in self.command.params}
        hidden = FOR_A_TERMINAL | self.offered.hidden
        return {name: one for name, one in named.items() if name not in hidden}

    @property
    def schema(self) -> dict[str, Any]:
        found = self.parameters
        return {
            "type": "object",
            "properties": {
                **{name: _property(one) for name, one in found.items()},
                FOLDER: _FOLDER_SCHEMA,
            },
            "required": [name for name, one in found.items() if one.required],
            "additionalProperties": False,
        }

    def words(self, given: Mapping[str, Any], json_path: str) -> list[str]:
        """Build the command line of a call; the command itself validates the values."""
        found = self.parameters
        for name in given:
            if name not in found and name != FOLDER:
                known = ", ".join([*found, FOLDER])
                raise UsageError(
                    f"{self.name} has no parameter {name!r}.{did_you_mean(name, found)} "
                    f"It has: {known}."
                )
        options, arguments = [f"--json={json_path}"], []
        for name, one in found.items():
            if given.get(name) is None:
                continue
            if isinstance(one, click.Option):
                options += _option(name, one, given[name])
            else:
                arguments += _values(name, one, given[name])
        # Allow values that begin with a dash.
        return [*self.offered.words, *options, "--", *arguments]


def parameter_name(parameter: click.Parameter) -> str:
    """Return a parameter's name for agents: `time_limit` for --time-limit."""
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len).lstrip("-").replace("-", "_")
    return parameter.name or ""


# --- the schema -----------------------------------------------------------------------------------


def _property(parameter: click.Parameter) -> dict[str, Any]:
    found: dict[str, Any]
    if isinstance(parameter, click.Option) and parameter.is_flag:
        found = {"type": "boolean"}
    elif _takes_several(parameter):
        found = {"type": "array", "items": _scalar(parameter.type), **_length(parameter)}
    else:
        found = _scalar(parameter.type)
    default = parameter.default
    if isinstance(default, (bool, int, float, str)):
        found["default"] = default
    return {**found, "description": _description(parameter)}


def _takes_several(parameter: click.Parameter) -> bool:
    return bool(getattr(parameter, "multiple", False)) or parameter.nargs != 1


def _length(parameter: click.Parameter) -> dict[str, int]:
    if parameter.nargs > 1:
        return {"minItems": parameter.nargs, "maxItems": parameter.nargs}
    return {"minItems": 1} if parameter.required else {}


def _scalar(kind: click.ParamType) -> dict[str, Any]:  # type: ignore[type-arg,unused-ignore]
    if isinstance(kind, click.Choice):
        return {"type": "string", "enum": [str(choice) for choice in kind.choices]}
    for known, name in _NUMBERS.items():
        if isinstance(kind, known):
            return {"type": name, **dict(_range(kind))}
    return {"type": "string"}


def _range(kind: Any) -> Iterator[tuple[str, float]]:
    """Yield the JSON Schema limits of click's IntRange or FloatRange; none for a plain number."""
    for end, inclusive, exclusive in (
        ("min", "minimum", "exclusiveMinimum"),
        ("max", "maximum", "exclusiveMaximum"),
    ):
        limit = getattr(kind, end, None)
        if limit is not None:
            yield (exclusive if getattr(kind, f"{end}_open") else inclusive), limit


def _description(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Option):
        return " ".join((parameter.help or "").split())
    said = parameter.metavar or (parameter.name or "").upper()
    return f"{said}, one word per item" if _takes_several(parameter) else said


# --- the command line -----------------------------------------------------------------------------


def _option(name: str, option: click.Option, value: Any) -> list[str]:
    typed = max(option.opts, key=len)
    if option.is_flag:
        if not isinstance(value, bool):
            raise UsageError(f"{name} is true or false, not {value!r}.")
        return [typed] if value else []
    values = _values(name, option, value)
    return [typed, *values] if option.nargs > 1 else [f"{typed}={one}" for one in values]


def _values(name: str, parameter: click.Parameter, value: Any) -> list[str]:
    several = _takes_several(parameter)
    if several is not isinstance(value, list):
        wanted = "a list of words" if several else "one value"
        raise UsageError(f"{name} is {wanted}, not {value!r}.")
    values = value if several else [value]
    if parameter.nargs > 1 and len(values) != parameter.nargs:
        raise UsageError(f"{name} is a list of {parameter.nargs} words, not of {len(values)}.")
    for one in values:
        if isinstance(one, bool) or not isinstance(one, (str, int, float)) or "\0" in str(one):
            raise UsageError(f"{name} takes text without NUL characters or a number, not {one!r}.")
    return [*map(str, values)]
