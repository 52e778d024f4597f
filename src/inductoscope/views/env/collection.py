"""Collects what `inductoscope env` reports, as data."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inductoscope.capture.hooks import HOOKS
from inductoscope.views.env.declared import declared_names
from inductoscope.views.env.flag import Flag, FlagKind
from inductoscope.views.env.flags import FLAGS
from inductoscope.views.env.interpreter import Question, ask
from inductoscope.views.env.machine import (
    Cache,
    Machine,
    Tool,
    find_cache,
    find_tool,
    read_machine,
)
from inductoscope.views.env.sources import find_variables
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.log_lines import PATTERNS, PatternCheck, check_pattern, release
from inductoscope.vocabulary.stage_lookup import stage_of_module
from inductoscope.vocabulary.torch_names import TorchName

OLDEST_TORCH, NEWEST_TORCH = "2.11", "2.15"


@dataclass(frozen=True)
class Device:
    """One accelerator that torch can use."""

    kind: str
    index: int
    name: str
    architecture: str | None
    memory: int | None


@dataclass(frozen=True)
class Torch:
    """The installed torch and what belongs to it."""

    version: str
    git: str | None
    cuda: str | None
    hip: str | None
    root: str
    triton: str | None
    isa: str | None
    devices: tuple[Device, ...]

    @property
    def supported(self) -> bool:
        """Whether inductoscope supports this version."""
        return release(OLDEST_TORCH) <= release(self.version) <= release(NEWEST_TORCH)

    @property
    def builds(self) -> tuple[str, ...]:
        """The kinds of device besides the CPU that this torch was built for."""
        return tuple(name for name, value in (("CUDA", self.cuda), ("HIP", self.hip)) if value)


@dataclass(frozen=True)
class NameCheck:
    """One private torch name that inductoscope uses."""

    stage: str
    name: str
    found: bool
    reason: str | None  # why it was not found
    absent: str | None  # the optional package, such as Triton, that is not installed

    @property
    def ok(self) -> bool:
        return self.found or self.absent is not None


@dataclass(frozen=True)
class FlagCheck:
    """One flag, checked against the installed torch."""

    flag: Flag
    known: bool
    how: str  # how this was established
    value: str | None  # now; None where it is not set or not known
    config_value: str | None = None  # of a variable: the value of its config key now

    @property
    def ok(self) -> bool:
        """Only a flag that we set and torch does not know is a failure."""
        return self.known or not self.flag.set_by


@dataclass(frozen=True)
class Environment:
    """What was found. Without torch, `problem` says why, and the checks are empty."""

    python: str
    python_version: str | None
    machine: Machine
    compiler: Tool | None
    ptxas: Tool | None
    cache: Cache | None
    problem: str | None = None
    torch: Torch | None = None
    names: tuple[NameCheck, ...] = ()
    patterns: tuple[PatternCheck, ...] = ()
    flags: tuple[FlagCheck, ...] = ()
    notes: tuple[str, ...] = ()  # what could not be determined, and why

    @property
    def missing(self) -> tuple[NameCheck | PatternCheck | FlagCheck, ...]:
        """What we rely on and this torch lacks."""
        checks: tuple[NameCheck | PatternCheck | FlagCheck, ...] = (
            *self.names,
            *self.patterns,
            *self.flags,
        )
        return tuple(check for check in checks if not check.ok)


def collect_environment(python: str) -> Environment:
    """Ask the torch of `python`, and look at the machine."""
    needed = _needed_names()
    answer = ask(
        python,
        Question(
            names=[(name.module, name.attribute) for name in needed],
            settings=[flag.setting for flag in FLAGS if flag.setting],
            artifacts=[flag.name for flag in _of_kind(FlagKind.ARTIFACT)],
        ),
    )
    torch = _torch(answer)
    triton = answer.get("triton") or {}
    return Environment(
        python=python,
        python_version=(answer.get("python") or {}).get("version"),
        machine=read_machine(),
        compiler=find_tool(answer.get("compilers") or [os.environ.get("CXX", "g++")]),
        ptxas=find_tool([path for path in (triton.get("ptxas"), "ptxas") if path]),
        cache=find_cache(answer.get("default_cache")),
        problem=answer.get("problem"),
        torch=torch,
        names=_names(needed, answer) if torch else (),
        patterns=_patterns(torch) if torch else (),
        flags=_flags(torch, answer) if torch else (),
        notes=tuple(answer.get("notes") or ()),
    )


def _needed_names() -> dict[TorchName, str]:
    """Each name once, with the stage of the first hook that needs it, or else of its module."""
    needed: dict[TorchName, str] = {}
    for hook in HOOKS:
        for name in hook.names:
            needed.setdefault(name, hook.stage)
    for name in declared_names():
        needed.setdefault(name, _stage_of(name))
    return needed


def _stage_of(name: TorchName) -> str:
    stage = stage_of_module(name.module.replace(".", "/"))
    return stages.NO_STAGE if stage == stages.USER else stage


def _of_kind(kind: FlagKind) -> list[Flag]:
    return [flag for flag in FLAGS if flag.kind is kind]


def _torch(answer: dict[str, Any]) -> Torch | None:
    torch = answer.get("torch")
    if torch is None:
        return None
    return Torch(
        **torch,
        triton=(answer["triton"] or {}).get("version"),
        isa=answer["isa"],
        devices=tuple(Device(**device) for device in answer["devices"] or ()),
    )


def _names(needed: Mapping[TorchName, str], answer: dict[str, Any]) -> tuple[NameCheck, ...]:
    return tuple(
        NameCheck(
            stage=stage,
            name=str(name),
            found=reply["found"],
            reason=reply["reason"],
            absent=reply.get("absent"),
        )
        for (name, stage), reply in zip(needed.items(), answer["names"], strict=True)
    )


def _patterns(torch: Torch) -> tuple[PatternCheck, ...]:
    folder = Path(torch.root).parent
    sources = {pattern.module: _source(folder / pattern.module) for pattern in PATTERNS}
    return tuple(
        check_pattern(pattern, sources[pattern.module], version=torch.version)
        for pattern in PATTERNS
    )


def _source(path: Path) -> str:
    """The text of a torch module; empty if the module is gone."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _flags(torch: Torch, answer: dict[str, Any]) -> tuple[FlagCheck, ...]:
    variables = find_variables(
        Path(torch.root), [flag.name for flag in _of_kind(FlagKind.VARIABLE)]
    )
    settings = _by_name([flag for flag in FLAGS if flag.setting], answer["settings"])
    artifacts = _by_name(_of_kind(FlagKind.ARTIFACT), answer["artifacts"])

    def check(flag: Flag) -> FlagCheck:
        if flag.kind is FlagKind.ARTIFACT:
            return _check_artifact(flag, artifacts.get(flag.name, _UNKNOWN))
        setting = settings.get(flag.name, _UNKNOWN)
        if flag.kind is FlagKind.SETTING:
            return _check_setting(flag, setting)
        how = variables.get(flag.name) or _not_found(flag, torch)
        return _check_variable(flag, how, setting, known=flag.name in variables)

    return tuple(check(flag) for flag in FLAGS)


_UNKNOWN: dict[str, Any] = {"known": False, "how": None, "value": None}


def _by_name(
    flags: Sequence[Flag], replies: Sequence[dict[str, Any]] | None
) -> dict[str, dict[str, Any]]:
    """The replies by flag; none if torch could not be asked."""
    return {flag.name: reply for flag, reply in zip(flags, replies or (), strict=False)}


def _check_variable(flag: Flag, how: str, setting: dict[str, Any], *, known: bool) -> FlagCheck:
    value = os.environ.get(flag.name)
    return FlagCheck(flag, known=known, how=how, value=value, config_value=setting["value"])


def _not_found(flag: Flag, torch: Torch) -> str:
    if flag.needs is not None and flag.needs not in torch.builds:
        return f"not found: this torch is built without {flag.needs}"
    if flag.since is not None and release(torch.version) < release(flag.since):
        return f"not found: new in torch {flag.since}"
    return "not found"


def _check_setting(flag: Flag, reply: dict[str, Any]) -> FlagCheck:
    module = flag.setting[0] if flag.setting else ""
    how = f"key of {module}" if reply["known"] else "not found"
    return FlagCheck(flag, known=reply["known"], how=how, value=reply["value"])


def _check_artifact(flag: Flag, reply: dict[str, Any]) -> FlagCheck:
    how = reply["how"] or "not found"
    return FlagCheck(flag, known=reply["known"], how=how, value=reply["value"])
