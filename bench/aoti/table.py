"""Measurements, as the table in docs/aoti.md."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.aoti.guide import GuideRun, Trail
from bench.aoti.tool import Examined

BEGIN, END = "<!-- measured: make bench-aoti -->", "<!-- end -->"
GOAL = 1 / 3


@dataclass(frozen=True)
class Row:
    """One fault, examined both ways."""

    fault: str
    guide: Trail
    tool: Examined
    guide_is_right: bool
    tool_is_right: bool
    # What the tool says of the package where there is no program.
    package: str = ""

    @property
    def guide_seconds(self) -> float:
        return sum(run.seconds for run in self.guide.runs)

    @property
    def guide_cpu_seconds(self) -> float:
        return sum(run.cpu_seconds for run in self.guide.runs)


def write_rows(rows: list[Row], path: Path) -> None:
    """After every fault, so that an interruption loses one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1))


def read_rows(path: Path) -> list[Row]:
    """Earlier measurements; none if there is no such file."""
    if not path.exists():
        return []
    return [_row(data) for data in json.loads(path.read_text())]


def _row(data: dict[str, object]) -> Row:
    guide, tool = data.pop("guide"), data.pop("tool")
    assert isinstance(guide, dict)
    assert isinstance(tool, dict)
    runs = tuple(GuideRun(**run) for run in guide.pop("runs"))
    return Row(guide=Trail(runs, **guide), tool=Examined(**tool), **data)  # type: ignore[arg-type]


def markdown(rows: list[Row]) -> str:
    """The table, and whether the goal is met."""
    lines = [
        "| fault | guide: runs, seconds (processor) | names | inductoscope: runs + candidates, "
        "seconds (processor) | names |",
        "|---|---|---|---|---|",
        *(_line(row) for row in rows),
        "",
        *_sums(rows),
    ]
    return "\n".join(lines)


def _line(row: Row) -> str:
    guide, tool = row.guide, row.tool
    by_hand = f"{len(guide.runs)}, {row.guide_seconds:.0f} ({row.guide_cpu_seconds:.0f})"
    by_tool = f"{tool.executions} + {tool.candidates}, {tool.seconds:.0f} ({tool.cpu_seconds:.0f})"
    return (
        f"| {row.fault} | {by_hand} | {_named(guide.named, row.guide_is_right)} "
        f"| {by_tool} | {_named(tool.named, row.tool_is_right)} |"
    )


def _named(named: str, is_right: bool) -> str:
    if not named:
        return "nothing"
    text = f"`{named}`" if "_" in named else named
    return text if is_right else f"{text}, **wrong**"


def _sums(rows: list[Row]) -> list[str]:
    by_hand = sum(len(row.guide.runs) for row in rows)
    fewest = sum(row.guide.fewest_runs for row in rows)
    by_tool = sum(row.tool.executions for row in rows)
    right = sum(row.guide_is_right for row in rows), sum(row.tool_is_right for row in rows)
    cpu = sum(row.guide_cpu_seconds for row in rows), sum(row.tool.cpu_seconds for row in rows)
    candidates = sum(row.tool.candidates for row in rows)
    met, met_at_once = ("met" if by_tool <= GOAL * runs else "missed" for runs in (by_hand, fewest))
    missed = [row.fault for row in rows if row.tool.executions > GOAL * len(row.guide.runs)]
    slower = [row.fault for row in rows if row.tool.cpu_seconds > row.guide_cpu_seconds]
    return [
        f"The program runs {by_hand} times by hand and {by_tool} times under the tool "
        f"({_percent(by_tool, by_hand)}); the tool also compiles {candidates} candidates.",
        f"Someone who prints the values of every kernel at once needs {fewest} runs by hand, of "
        f"which {by_tool} are {_percent(by_tool, fewest)}.",
        f"The goal, at most a third of the runs by hand, is {met} in all against the guide as it "
        f"is written, and {met_at_once} against printing everything at once. Fault by fault, it is "
        "missed for: "
        f"{', '.join(missed) or 'none'}.",
        "The guide is right about "
        f"{right[0]} of {len(rows)}, the tool about {right[1]}; they take {cpu[0]:.0f} and "
        f"{cpu[1]:.0f} seconds of processor time.",
        f"The tool takes longer, in processor time, for: {', '.join(slower) or 'none of them'}.",
    ]


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "0%"


def put_into(document: Path, text: str) -> None:
    """Replace what the document says between the markers."""
    whole = document.read_text("utf-8")
    before, rest = whole.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    document.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", "utf-8")
