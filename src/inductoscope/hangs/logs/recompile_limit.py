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
        title=f"{_functions(program)} compiled until torch reached {limit}; inputs that fit none "
        "of the compiled versions run in eager since then, the others still run compiled",
        program=program.program,
        confidence="proven",
        stage=stages.DYNAMO,
        evidence=(line_evidence(seen),),
        advice=(
            "The lines after it name the guard that failed last",
            "All guards that fail, and what to change: inductoscope run SCRIPT",
        ),
    )


def _functions(program: ProgramFold) -> str:
    """The function that reached it, as the log has it, with its place."""
    places = [f"{name} ({place})" for name, place in program.at_limit.items()]
    if not places:
        return "a function was"
    return f"{places[0]} was" if len(places) == 1 else f"{', '.join(places)} were"
