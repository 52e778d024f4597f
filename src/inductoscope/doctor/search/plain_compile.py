"""The plainest way to compile a candidate: with torch.compile and a Python wrapper.

A failure that shows there too is searched for there: a C++ wrapper costs seconds for every
candidate, and while it is made Inductor runs the kernels, with inputs that it makes up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from inductoscope.doctor.search.candidate import Candidate
from inductoscope.vocabulary.flows import CPP_WRAPPER, JUST_IN_TIME

TORCH_NAMES = {"torch._inductor.config": ("cpp_wrapper",)}

_SETTING = "cpp_wrapper"


def special_flow(candidate: Candidate) -> str:
    """How it reaches Inductor, if that is not the plainest way."""
    return candidate.flow or (CPP_WRAPPER if _has_cpp_wrapper(candidate) else JUST_IN_TIME)


def compiled_plainly(candidate: Candidate) -> Candidate:
    """The same graph with torch.compile and a Python wrapper."""
    found = replace(candidate, flow=JUST_IN_TIME, constants=frozenset())
    if not _has_cpp_wrapper(candidate):
        return found
    options = _without_setting(candidate.options)
    return replace(found, options=options, config={**candidate.config, _SETTING: False})


def compiled_like(candidate: Candidate, other: Candidate) -> Candidate:
    """The candidate on the way that the other one takes."""
    plain = compiled_plainly(candidate)
    return replace(
        plain,
        flow=other.flow,
        config={**_without_setting(plain.config), **_only_setting(other.config)},
        options={**plain.options, **_only_setting(other.options)},
    )


def _without_setting(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != _SETTING}


def _only_setting(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {_SETTING: settings[_SETTING]} if _SETTING in settings else {}


def _has_cpp_wrapper(candidate: Candidate) -> bool:
    import torch._inductor.config

    default = candidate.config.get(_SETTING, torch._inductor.config.cpp_wrapper)
    return bool(candidate.options.get(_SETTING, default))
