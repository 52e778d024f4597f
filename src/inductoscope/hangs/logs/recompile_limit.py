"""The answer for a program in which Dynamo gave up on a function."""

from __future__ import annotations

from inductoscope.hangs.logs.answer import Answer, Kind, line_evidence
from inductoscope.hangs.logs.program import ProgramFold
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.line_meanings import LineMeaning


def recompile_limit(program: ProgramFold) -> Answer | None:
    """Dynamo gave up on a function; nothing else is known to be wrong."""
    seen = program.last_seen.get(LineMeaning.RECOMPILE_LIMIT)
    if seen is None or program.unfinished is not None:
        return None
    limit = seen.text.partition("config.")[2].strip() or "the recompile limit"
    return Answer(
        kind=Kind.RECOMPILE_LIMIT,
        title=f"a function was compiled until torch reached {limit}; inputs that fit none of its "
        "compiled versions run in eager since then, the others still run compiled",
        program=program.program,
        confidence="proven",
        stage=stages.DYNAMO,
        evidence=(line_evidence(seen),),
        advice=(
            "The lines after it name the function and the guard that failed last",
            "All guards that fail, and what to change: inductoscope run SCRIPT",
        ),
    )
