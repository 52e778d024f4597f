"""Caches: look-ups, and whether each was a hit or a miss."""

from __future__ import annotations

import re

from inductoscope.inside.observe import Arguments, Keywords, Watching, current_compile_id, watch
from inductoscope.inside.scope import SCOPE
from inductoscope.recording.events import CacheKeyMade, CacheLookup, LibraryWanted
from inductoscope.torch_facts import private_names as hooked
from inductoscope.torch_facts.torch_names import Hook, Wrap

# torch logs a look-up as an instant event with the cache and the outcome in its name.
_LOOKUP = re.compile(r"(fx_graph_cache|autograd_cache)_(\w+)")
_CACHE_NAMES = {"fx_graph_cache": "FX graph", "autograd_cache": "AOTAutograd"}


def _announced(args: Arguments, kwargs: Keywords) -> None:
    name = str(args[0] if args else kwargs.get("event_name"))
    lookup = _LOOKUP.fullmatch(name)
    if lookup is None:
        return
    details = kwargs.get("metadata") or (args[1] if len(args) > 1 else None) or {}
    SCOPE.emit(
        CacheLookup(
            cache=_CACHE_NAMES[lookup[1]],
            outcome=lookup[2],
            compile=current_compile_id(),
            key=details.get("key") or "",
            reason=details.get("cache_bypass_reason") or "",
        )
    )


# Characters of a field that are kept for display; equality is decided by its hash.
_LONGEST_FIELD = 400


def _key_made(args: Arguments, kwargs: Keywords) -> Watching:
    key, fields = yield
    shown = [str(field)[:_LONGEST_FIELD] for field in fields]
    SCOPE.emit(CacheKeyMade(compile=current_compile_id(), key=key, payload=SCOPE.json(shown)))


def _best_config_read(args: Arguments, kwargs: Keywords) -> Watching:
    result = yield
    SCOPE.emit(
        CacheLookup(
            cache="launch configuration",
            outcome="miss" if result is None else "hit",
            compile=current_compile_id(),
        )
    )


def _binary_wanted(args: Arguments, kwargs: Keywords) -> None:
    """Record a request for a C++ library; a compiler event follows unless it is a cache hit."""
    code = args[1] if len(args) > 1 else kwargs["main_code"]
    SCOPE.emit(LibraryWanted(graph=SCOPE.graph, payload=SCOPE.text(str(code).strip())))


HOOKS = (
    Hook(
        stage="caches",
        records="hits and misses of the FX graph and AOTAutograd caches",
        wraps=(Wrap(hooked.INSTANT, watch(_announced)),),
    ),
    Hook(
        stage="caches",
        records="what the keys of the FX graph cache are made of",
        wraps=(Wrap(hooked.COMPILED_FX_GRAPH_HASH, watch(_key_made)),),
    ),
    Hook(
        stage="caches",
        records="hits and misses of the cache of launch configurations",
        wraps=(Wrap(hooked.READ_BEST, watch(_best_config_read)),),
    ),
    Hook(
        stage="caches",
        records="C++ libraries asked for, to tell those that were compiled from those in the cache",
        wraps=(Wrap(hooked.LOAD_ASYNC, watch(_binary_wanted)),),
    ),
)
