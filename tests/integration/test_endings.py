"""What every command says in every ending: a few a day, `make endings` tries them all.

INDUCTOSCOPE_SAMPLE_DATE=2026-11-16 brings a day's sample back.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from battery.endings.catalogue import ENDINGS
from battery.endings.ending import COMMANDS, DOCTOR, ProgramEnding
from battery.endings.trial import first_line, try_ending

from support.samples import of_the_day

pytestmark = pytest.mark.usefixtures("python_as_it_is")

OTHERS = tuple(name for name in COMMANDS if name != DOCTOR)
READ = of_the_day([ending for ending in ENDINGS if set(ending.said) & set(OTHERS)], 2)
EXAMINED = of_the_day([ending for ending in ENDINGS if DOCTOR in ending.said], 1)


@pytest.mark.spread
@pytest.mark.parametrize("ending", READ, ids=lambda ending: ending.name)
def test_the_first_line_says_what_happened(ending: ProgramEnding, tmp_path: Path) -> None:
    heard = list(try_ending(ending, tmp_path, OTHERS))
    assert heard
    assert [one for one in heard if not one.is_right] == []


@pytest.mark.spread
@pytest.mark.parametrize("ending", EXAMINED, ids=lambda ending: ending.name)
def test_the_doctor_says_what_happened(ending: ProgramEnding, tmp_path: Path) -> None:
    (heard,) = try_ending(ending, tmp_path, (DOCTOR,))
    assert heard.is_right, heard


def test_the_first_line_is_the_tools_own_with_the_lines_that_it_goes_on_in() -> None:
    printed = (
        "hi\nTraceback …\nclean: Nothing found: 1 call of 1\ncompiled graph.\n\n  stage  none\n"
    )
    assert first_line(printed) == "clean: Nothing found: 1 call of 1 compiled graph."
