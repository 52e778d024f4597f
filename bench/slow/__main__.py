"""The tool on slow programs whose cause is known: make bench-slow.

Each program is given to the tool as a user would: `doctor`, or `profile --advise`. An answer is
right if what it says is the cause names the truth. The gain of its first advice is predicted before
the program is run with it; beside that stands what it saved when it was tried.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from battery.workplace import workplace
from bench.slow.table import ADVISE, PROGRAMS, SlowProgram

_PROGRAMS = Path(__file__).with_name("programs")
# How far the gain may be from what was predicted.
GOAL = 0.2
_SECONDS = 1500.0


@dataclass(frozen=True)
class Answer:
    """The tool's answer about one program."""

    name: str
    said: str
    is_right: bool
    advice: str
    predicted: float | None
    measured: float | None
    seconds: float

    @property
    def apart(self) -> float | None:
        """How far the gain is from what was predicted; None where either is not known."""
        if self.predicted is None or self.measured is None or not self.predicted:
            return None
        return self.measured / self.predicted - 1


def ask(program: SlowProgram, folder: Path) -> Answer:
    """Start the tool as a user would."""
    begun = time.monotonic()
    path = folder / f"{program.name}.json"
    command = [sys.executable, "-m", "inductoscope", *program.command.split()]
    script = str(_PROGRAMS / f"{program.name}.py")
    place = ["--json", str(path), "--output", str(folder / program.name)]
    with (folder / f"{program.name}.txt").open("w") as output:
        subprocess.run(
            [*command, *place, script],
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=_SECONDS,
        )
    said = json.loads(path.read_text("utf-8")) if path.exists() else {}
    read = _advised if program.command == ADVISE else _judged
    cause, advice, predicted, measured = read(said)
    is_right = bool(cause) and all(word in cause for word in program.named)
    seconds = time.monotonic() - begun
    return Answer(program.name, cause, is_right, advice, predicted, measured, seconds)


def _advised(said: Mapping[str, Any]) -> tuple[str, str, float | None, float | None]:
    first = next(iter(said.get("advice", ())), None)
    if first is None:
        return "", "", None, None
    cause = f"{first['why']}: {first['change']}"
    return cause, first["change"], first["seconds_predicted"], first["seconds_saved"]


def _judged(said: Mapping[str, Any]) -> tuple[str, str, float | None, float | None]:
    if said.get("verdict") != "slow":
        return "", "", None, None
    culprit = " ".join(str(value) for value in said["culprit"].values() if value)
    cause = f"{said['summary']} ({said['stage']}; {culprit})"
    found = said["workaround"] or {}
    return cause, found.get("text", ""), found.get("predicted"), found.get("saved")


def print_answer(answer: Answer, program: SlowProgram) -> None:
    """One program."""
    print(f"{answer.name:14} {'right' if answer.is_right else 'WRONG'} {answer.seconds:5.0f} s")
    print(f"    truth   {program.truth} ({program.origin})")
    print(f"    said    {answer.said or 'nothing'}")
    if answer.advice:
        apart = "" if answer.apart is None else f": {answer.apart:+.0%}, goal {GOAL:.0%}"
        numbers = f"predicted {_text(answer.predicted)}, measured {_text(answer.measured)}{apart}"
        print(f"    advice  {answer.advice}\n    gain    {numbers}", flush=True)


def _text(seconds: float | None) -> str:
    return "nothing" if seconds is None else f"{seconds:.3g} s"


def main() -> None:
    """Ask about every program, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="names of programs, with commas")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--output", type=Path, help="keeps what the tool printed and found")
    given = parser.parse_args()
    names = given.only.split(",") if given.only else [program.name for program in PROGRAMS]
    answers = []
    with workplace("bench-slow", given.output) as folder:
        folder.mkdir(parents=True, exist_ok=True)
        for program in PROGRAMS:
            if program.name in names:
                answers.append(ask(program, folder))
                print_answer(answers[-1], program)
    right = sum(answer.is_right for answer in answers)
    near = sum(answer.apart is not None and abs(answer.apart) <= GOAL for answer in answers)
    print(f"{right} of {len(answers)} causes named, {near} gains within {GOAL:.0%}")
    if given.json:
        given.json.parent.mkdir(exist_ok=True)
        given.json.write_text(json.dumps([asdict(each) for each in answers], indent=1), "utf-8")


if __name__ == "__main__":
    main()
