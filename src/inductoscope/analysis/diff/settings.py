"""Settings of the compiler that differ: config modules, torch.compile's arguments, marked sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from inductoscope.analysis.diff.entities import Fact
from inductoscope.model.entities import Compile
from inductoscope.model.settings import Settings

_DEFAULT = "the default"
_PLAIN_CALL = "torch.compile without arguments"

Pairs = Iterable[tuple[Compile, Compile]]


def different_settings(pairs: Pairs) -> tuple[Fact, ...]:
    """What the compiles of the same functions were told differently; each fact once."""
    found = (fact for one, other in pairs for fact in _facts(one, other))
    return tuple(dict.fromkeys(found))


def are_recorded(compiles: Iterable[Compile]) -> bool:
    """Whether a run says what it was compiled with; earlier versions did not record it."""
    return any(compile_.settings is not None for compile_ in compiles)


def _facts(one: Compile, other: Compile) -> Iterator[Fact]:
    ours, theirs = one.settings, other.settings
    if ours is None or theirs is None:
        return
    for name in dict.fromkeys((*ours.config, *theirs.config)):
        first, second = ours.config.get(name, _DEFAULT), theirs.config.get(name, _DEFAULT)
        if first != second:
            yield Fact(name, first, second)
    if ours.arguments != theirs.arguments:
        yield Fact(
            _place("the call for", one), ours.call or _PLAIN_CALL, theirs.call or _PLAIN_CALL
        )
    if set(ours.marked) != set(theirs.marked):
        yield Fact(_place("marked sizes of", one), _marks(ours), _marks(theirs))


def _marks(settings: Settings) -> str:
    return ", ".join(settings.marked) or "none"


def _place(what: str, compile_: Compile) -> str:
    place = f" ({PurePosixPath(compile_.place).name})" if compile_.place else ""
    return f"{what} {compile_.function or 'a frame'}{place}"


def likely_cause(settings: tuple[Fact, ...], surroundings: tuple[Fact, ...]) -> str:
    """The settings named as the cause, in a sentence; how sure depends on what else differs."""
    if not settings:
        return ""
    changes = "; ".join(
        f"{fact.name}: {fact.first} in the first run, {fact.second} in the second"
        for fact in settings[:3]
    )
    more = f"; and {len(settings) - 3} more below" if len(settings) > 3 else ""
    if surroundings:
        names = ", ".join(fact.name for fact in surroundings[:4])
        return f"Possible cause, a setting: {changes}{more}. {names} differ too."
    noun = "setting that differs" if len(settings) == 1 else "settings that differ"
    return f"Likely cause, the only {noun}: {changes}{more}."
