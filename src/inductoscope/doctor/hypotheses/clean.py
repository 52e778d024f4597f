"""Nothing is wrong.

When it applies: The program ended well, and no compiled graph is known to be wrong.

What it runs: The program without the tool, unless it takes long.

What it concludes: Clean, unless the program fails without the tool.

How sure: Proven if every call could be compared, likely if some could not, unknown if none could.
"""

from __future__ import annotations

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.common_verdicts import nothing_found, what_was_not_checked
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.verdict import Verdict


def _applies(case: ProgramCase) -> bool:
    return case.ends_well


def _examine(case: ProgramCase) -> Verdict | None:
    result = nothing_found(case)
    if case.recording.compiles:
        result.not_checked = what_was_not_checked(case)
    if case.takes_long:
        result.not_checked.append(
            f"the program without the tool: the first run took {case.first.ending.seconds:.0f} s"
        )
        return result
    plain = case.runs.without_tool_once()
    if plain.failed:
        return None
    well = "the program also ends well without the tool"
    late = "without the tool the program did not end in time"
    result.add(well if plain.ending.exit_code == 0 else late, "one run")
    return result


HYPOTHESIS = Hypothesis(_applies, _examine)
