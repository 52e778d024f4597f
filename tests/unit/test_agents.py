"""Tools offered to agents: tools made of commands, results that are cut, and the skill."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import click
import pytest
from mcp.shared.exceptions import MCPError

from inductoscope.agents.calling import CallEnd
from inductoscope.agents.command_tools import OFFERED, CommandTool
from inductoscope.agents.results import KeptResults, at_pointer, cut, size_of
from inductoscope.agents.server import AgentServer, listed, read_address
from inductoscope.agents.skill import procedures
from inductoscope.analysis.rules import RULES
from inductoscope.cli import COMMANDS
from inductoscope.errors import UsageError
from inductoscope.verdicts import VERDICTS
from inductoscope.views.explain import STAGES
from support.examples import inductoscope
from support.json_schema import schema_of

NOT_OFFERED = {"serve", "completion", "mcp", "skill"}


def tool(name: str) -> CommandTool:
    (offered,) = (one for one in OFFERED if one.name == name)
    command = importlib.import_module(f"inductoscope.cli.commands.{offered.words[0]}").command
    for word in offered.words[1:]:
        command = command.commands[word]
    return CommandTool(offered, command)


TOOLS = [tool(one.name) for one in OFFERED]
every_tool = pytest.mark.parametrize("one", TOOLS, ids=lambda one: one.name)


# --- tools ----------------------------------------------------------------------------------------


def test_every_command_is_offered_or_left_out_on_purpose() -> None:
    assert {one.offered.words[0] for one in TOOLS} == set(COMMANDS) - NOT_OFFERED
    assert len({one.name for one in TOOLS}) == len(TOOLS)


# Parameters with which a command reads what is there, and does nothing else. One that executes
# code, writes a file or talks to another machine does not belong here.
ONLY_READ = {
    *("recording", "first", "second", "paths", "words", "folder"),
    *("stage", "op", "source", "kernel", "form", "compile", "graph", "why", "outcome"),
    *("sort", "limit", "bandwidth", "cores", "world", "flags"),
}


def test_a_tool_that_reads_only_does_so_whatever_its_arguments_are() -> None:
    for one in TOOLS:
        if one.offered.effect == "reads":
            assert set(one.schema["properties"]) <= ONLY_READ, one.name
            with pytest.raises(UsageError, match="has no parameter"):
                one.words({"python": "x", "to": "y", "try": True}, "out.json")


def test_what_a_command_does_besides_reading_is_a_tool_of_its_own() -> None:
    for name, acting in {
        "bounds": {"try", "sizes", "timeout"},
        "fusion": {"try", "timeout"},
        "show": {"target", "runnable", "to"},
        "logs": {"filter", "page", "executor", "any_worker"},
        "env": {"python"},
    }.items():
        reads, acts = tool(name), tool(f"{name}_and_act")
        assert (reads.offered.effect, acts.offered.effect) == ("reads", "runs")
        assert set(acts.parameters) - set(reads.parameters) == acting
        assert f"Like `{name}`, with more parameters: " in acts.description


@every_tool
def test_a_tool_says_what_its_command_says(one: CommandTool) -> None:
    assert one.description.startswith((one.command.help or "").split("\n")[0])
    assert "\b" not in one.description
    assert all(entry["description"] for entry in one.schema["properties"].values())
    assert "json" not in one.schema["properties"]


def test_types_defaults_and_limits_are_those_of_the_options() -> None:
    found = tool("doctor").schema["properties"]
    assert found["calls"] == {
        "type": "integer",
        "default": 8,
        "description": "Check the first N calls of each compiled graph, and more if that takes "
        "little time.",
    }
    assert found["proofs"]["minimum"] == 1
    assert found["overhead"]["exclusiveMinimum"] == 0.0
    assert found["quick"]["type"] == "boolean"
    assert found["words"]["items"] == {"type": "string"}
    assert tool("fusion").schema["properties"]["outcome"]["enum"] == ["fused", "refused", "never"]
    why = tool("fusion").schema["properties"]["why"]
    assert (why["minItems"], why["maxItems"]) == (2, 2)
    assert tool("attach").schema["required"] == ["pid"]


def some_value(entry: dict[str, Any]) -> Any:
    """A value that the schema allows, of the kind that is easily mistaken for an option."""
    if entry["type"] == "boolean":
        return True
    if entry["type"] in ("integer", "number"):
        return entry.get("minimum", entry.get("exclusiveMinimum", 1)) + 1
    if entry["type"] == "array":
        return [some_value(entry["items"])] * entry.get("minItems", 2)
    return entry["enum"][-1] if "enum" in entry else "-x --json=y z"


def as_typed(value: Any) -> Any:
    """Paths and numbers as the words that they came from."""
    return [*map(as_typed, value)] if isinstance(value, (list, tuple)) else str(value).rstrip(".0")


@every_tool
def test_the_command_line_means_what_was_given(one: CommandTool, tmp_path: Any) -> None:
    """Whatever the values are, click finds each of them where it was meant."""
    given = {name: some_value(entry) for name, entry in one.schema["properties"].items()}
    for name, parameter in one.parameters.items():
        # Folders that have to exist.
        if isinstance(parameter.type, click.Path) and parameter.type.exists:
            given[name] = str(tmp_path)
        if name in ("stage", "form", "target") or parameter.callback is not None:
            given.pop(name)
    del given["folder"]
    words = one.words(given, str(tmp_path / "out.json"))
    assert tuple(words[: len(one.offered.words)]) == one.offered.words
    with one.command.make_context(one.name, words[len(one.offered.words) :]) as context:
        for name, parameter in one.parameters.items():
            if name in given:
                assert as_typed(context.params[parameter.name or ""]) == as_typed(given[name])
        assert context.params["json_path"] == str(tmp_path / "out.json")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"wrods": []}, "run has no parameter 'wrods'. Did you mean 'words'?"),
        ({"json": "x"}, "run has no parameter 'json'."),
        ({"words": "train.py"}, "words is a list of words, not 'train.py'."),
        ({"words": [{}]}, "words takes text without NUL characters or a number, not {}."),
        ({"words": [True]}, "words takes text without NUL characters or a number, not True."),
        ({"stall": [1]}, "stall is one value, not [1]."),
        ({"fresh": 1}, "fresh is true or false, not 1."),
    ],
)
def test_arguments_that_cannot_be(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        tool("run").words(given, "out.json")


def test_a_list_of_the_wrong_length() -> None:
    with pytest.raises(UsageError, match="why is a list of 2 words, not of 1"):
        tool("fusion").words({"why": ["relu"]}, "out.json")


# --- how a call ended -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ended", "is_result", "problem"),
    [
        (CallEnd(0, {"schema": 1}, "", ""), True, ""),
        (CallEnd(1, {"partial": True}, "", ""), True, ""),
        (CallEnd(-11, {"partial": False}, "", ""), True, ""),
        (CallEnd(-9, {"partial": True}, "", ""), False, "SIGKILL ended the command"),
        (CallEnd(2, None, "[ 0.1 s] x\ninductoscope: no\nway\n", ""), False, "no\nway"),
        (CallEnd(2, None, "Usage: x\n\nError: bad value\n", ""), False, "bad value"),
        (CallEnd(3, None, "", ""), False, "exit code 3 and said nothing"),
    ],
)
def test_exit_codes_and_files_say_whether_there_is_an_answer(
    ended: CallEnd, is_result: bool, problem: str
) -> None:
    assert ended.is_result is is_result
    assert is_result or problem in ended.problem


# --- large results --------------------------------------------------------------------------------


def test_what_is_small_stays_whole_beside_what_is_cut() -> None:
    rows = [{"number": number, "text": "x" * 50} for number in range(1000)]
    data = {"summary": "short", "rows": rows, "source": "y" * 20_000, "none": None}
    shown, cuts = cut(data, 10_000)
    assert size_of(shown) <= 10_500
    assert list(shown) == list(data)
    assert (shown["summary"], shown["none"]) == ("short", None)
    assert shown["rows"] == rows[: len(shown["rows"])]
    assert len(shown["rows"]) > 20
    assert {(one["pointer"], one["of"], one["unit"]) for one in cuts} == {
        ("/rows", 1000, "items"),
        ("/source", 20_000, "characters"),
    }


def test_the_first_item_of_a_list_is_cut_rather_than_left_out() -> None:
    shown, cuts = cut([{"text": "x" * 1000}, "more"], 200)
    assert len(shown) == 1
    assert shown[0]["text"].startswith("xxx")
    assert [one["pointer"] for one in cuts] == ["/0/text", ""]


def test_a_pointer_names_a_part() -> None:
    data = {"a/b": [{"c": 1}], "d~": 2}
    assert at_pointer(data, "") == data
    assert at_pointer(data, "/a~1b/0/c") == 1
    assert at_pointer(data, "/d~0") == 2


@pytest.mark.parametrize(
    ("pointer", "said"),
    [
        ("rows", "A JSON Pointer begins with /"),
        ("/rows/9", "There is no '9' in /rows. It has 1 items, from 0 on."),
        ("/rows/x", "There is no 'x' in /rows."),
        ("/row", "There is no 'row' in the result. It has: rows."),
        ("/rows/0/deep/er", "There is no 'deep' in /rows/0. It has no parts."),
    ],
)
def test_a_pointer_to_nothing(pointer: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        at_pointer({"rows": ["x"]}, pointer)


def test_a_part_is_asked_for_by_known_parameters(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="more has no parameter 'strat'"):
        KeptResults(tmp_path).more({"result": 1, "strat": 50})


# --- recordings as resources ----------------------------------------------------------------------


def test_a_name_that_may_be_meant_is_told_in_plain_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(name: str, given: Any) -> dict[str, Any]:
        return {"recordings": [{"path": "/r/20260101-train\udce9"}]}

    server = AgentServer([], tmp_path, "", tmp_path)
    monkeypatch.setattr(server, "_answer_of", answer)
    asked = SimpleNamespace(uri="inductoscope://recordings/20260101-train")
    with pytest.raises(MCPError) as raised:
        anyio.run(server._read_resource, None, asked)
    assert "Did you mean '20260101-train\\udce9'?" in str(raised.value)


def test_a_name_with_anything_in_it_gets_an_address_and_back() -> None:
    (one,) = listed({"recordings": [{"path": "/r/a b%2F?\x1b", "command": None}]}).values()
    assert read_address(one.uri) == ("a b%2F?\x1b", "")
    assert read_address(f"{one.uri}/verdict")[1] == "verdict"
    assert "\x1b" not in one.uri + one.name
    # A folder whose name is not UTF-8.
    (one,) = listed({"recordings": [{"path": "/r/caf\udce9", "command": None}]}).values()
    assert read_address(one.uri) == ("caf\udce9", "")
    assert one.name == "caf\\udce9"


# --- the skill ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def text() -> str:
    return inductoscope("skill").stdout


def test_the_skill_begins_with_its_name_and_when_to_use_it(text: str) -> None:
    _, front, _ = text.split("---\n", 2)
    (name, description) = front.splitlines()
    assert name == "name: inductoscope"
    told = json.loads(description.removeprefix("description: "))
    assert len(told) <= 1024
    for word in ("wrong results", "NaN", "crashes", "hangs", "compile errors", "slowness"):
        assert word in told


def test_the_skill_has_every_word_that_the_json_may_use(text: str) -> None:
    words = [stage.name for stage in STAGES] + [verdict.name for verdict in VERDICTS]
    words += [rule.__name__ for rule in RULES]
    for word in (*words, *COMMANDS, "pool-deadlock"):
        assert f"| `{word}` |" in text


def test_the_skill_says_of_everything_that_executes_code_to_ask_first(text: str) -> None:
    (rule,) = re.findall(r"^7\. .*?(?=^\S|\Z)", text, re.M | re.S)
    for one in TOOLS:
        if any((parameter.metavar or "").startswith("SCRIPT") for parameter in one.command.params):
            assert f"`{one.name}`" in rule
    for typed in ("aoti --inputs", "bounds --try", "--sizes", "fusion --try", "env --python"):
        assert f"`{typed}`" in rule


PROCEDURES = procedures()
every_procedure = pytest.mark.parametrize("name", PROCEDURES)


def commands_of(text: str) -> list[str]:
    """Commands of a procedure; the first of them writes the JSON that it reads."""
    return re.findall(r"^    (inductoscope .*?)  # ", text, re.M)


def test_every_command_that_finds_something_out_is_in_a_procedure() -> None:
    typed = {line.split()[1] for text in PROCEDURES.values() for line in commands_of(text)}
    assert {one.offered.words[0] for one in TOOLS} - typed == {
        *("report", "export", "recordings", "explain")
    }


@every_procedure
def test_a_procedure_names_commands_that_the_tool_accepts(name: str) -> None:
    values = {"FOLDER": ".", "FILE": "kernel.py", "DIR": "out"}
    for line in commands_of(PROCEDURES[name]):
        _, typed, *words = [values.get(word, word) for word in shlex.split(line)]
        command = importlib.import_module(f"inductoscope.cli.commands.{typed}").command
        with command.make_context(typed, words):
            pass


@every_procedure
def test_a_procedure_reads_fields_that_the_command_writes(name: str) -> None:
    text = PROCEDURES[name]
    (command,) = re.findall(r"^Read in the JSON of `(\w+)`:", text, re.M)
    listed = text.partition("Read in the JSON of")[2].partition("\n\n")[2].partition("\n\n")[0]
    fields = re.findall(r"^- `([^`]+)`: ", listed, re.M)
    assert fields
    for path in fields:
        assert any(has_field(shape, path) for shape in shapes(command)), path


def shapes(command: str) -> list[dict[str, Any]]:
    schema = schema_of(command)
    return [schema, *schema.get("anyOf", ())]


def has_field(schema: dict[str, Any], path: str) -> bool:
    for part in path.split("."):
        # Where it may be absent, null comes first.
        schema = {**schema, **schema.get("anyOf", [{}])[-1]}
        name = part.removesuffix("[]")
        if name not in schema.get("properties", {}):
            return False
        schema = schema["properties"][name]
        if part.endswith("[]"):
            if schema.get("type") != "array":
                return False
            schema = schema.get("items", {})
    return True


def test_links_of_the_skill_lead_to_its_procedures(text: str) -> None:
    headings = {
        re.sub(r"[^\w -]", "", line[3:].lower()).replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("## ")
    }
    links = re.findall(r"\]\(#([^)]+)\)", text)
    assert len(links) == len(PROCEDURES)
    assert set(links) <= headings


# --- without the package --------------------------------------------------------------------------


def test_without_the_mcp_package_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['mcp'] = sys.modules['mcp_types'] = None\n"
        "sys.argv = ['inductoscope', 'mcp']\n"
        "from inductoscope.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 3
    assert "pip install 'mcp>=2'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
