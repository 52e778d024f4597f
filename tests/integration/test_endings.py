"""Every command in every ending: a few a day, `make endings` tries them all.

INDUCTOSCOPE_SAMPLE_DATE=2026-11-16 brings a day's sample back.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from battery.endings import run
from battery.endings.catalogue import ENDINGS
from battery.endings.ending import COMMANDS, EXAMINED, LOOKED_AT, RECORDED, ProgramEnding
from battery.endings.trial import first_line, try_ending

from support.samples import of_the_day

pytestmark = pytest.mark.usefixtures("python_as_it_is")

# A third of an ending a day, each of another one.
THIRDS = [
    pytest.param(ending, commands, id=f"{ending.name} {commands[0]}")
    for place, commands in enumerate((RECORDED, EXAMINED, LOOKED_AT))
    for ending in of_the_day([*ENDINGS[place * 7 :], *ENDINGS[: place * 7]], 1)
]


@pytest.mark.spread
@pytest.mark.parametrize(("ending", "commands"), THIRDS)
def test_the_first_line_says_what_happened(
    ending: ProgramEnding, commands: tuple[str, ...], tmp_path: Path
) -> None:
    heard = list(try_ending(ending, tmp_path, commands))
    assert heard
    assert [one for one in heard if not one.is_right] == []


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.name)
def test_every_command_is_tried_on_every_ending(ending: ProgramEnding) -> None:
    assert {*ending.said} | {*ending.without} == {*COMMANDS}
    assert not {*ending.said} & {*ending.without}
    # What any line matches is not looked at.
    assert [said for said in ending.said.values() if re.search(said.first_line, "x: y")] == []


@pytest.mark.parametrize("words", [["--only", "no-such-ending"], ["--commands", "sohw"]])
def test_names_that_match_nothing_are_an_error(words: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        run.main(words)
    assert left.value.code == 2


def test_the_first_line_is_the_tools_own_with_the_lines_that_it_goes_on_in() -> None:
    printed = (
        "hi\nTraceback …\nclean: Nothing found: 1 call of 1\ncompiled graph.\n\n  stage  none\n"
    )
    assert first_line(printed) == "clean: Nothing found: 1 call of 1 compiled graph."
