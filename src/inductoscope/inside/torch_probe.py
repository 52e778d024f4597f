"""Runs in a child process: reports facts about the torch of one Python.

That Python need not have inductoscope. It must also answer if torch is missing or broken, so the
parts are independent, and a part that fails is named in "notes".
"""

from __future__ import annotations

import difflib
import importlib
import os
import platform
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inductoscope.inside.child import Channel


def describe_torch(channel: Channel, question: dict[str, Any]) -> None:
    channel.say("answer", answer=answer(question))


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Return the answers to the caller's questions, as far as this Python has them."""
    python = {"version": platform.python_version(), "executable": sys.executable}
    try:
        torch: Any = importlib.import_module("torch")
        build = _build(torch)
    except BaseException as error:  # a broken torch can raise anything, SystemExit too
        return {"python": python, "problem": _short(error)}
    notes: list[str] = []

    def part(what: str, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except Exception as error:
            notes.append(f"{what}: {_short(error)}")
            return None

    return {
        "python": python,
        "problem": None,
        "torch": build,
        "triton": part("Triton", _triton),
        "isa": part("CPU", lambda: torch.backends.cpu.get_cpu_capability()),
        "devices": part("devices", lambda: _devices(torch)),
        "compilers": part("C++ compiler", _compilers),
        "default_cache": part("cache folder", _default_cache),
        "names": [_name(module, attribute) for module, attribute in question["names"]],
        "settings": [_setting(module, path) for module, path in question["settings"]],
        "artifacts": part("TORCH_LOGS", lambda: _artifacts(question["artifacts"])),
        "notes": notes,
    }


def _short(error: BaseException) -> str:
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _build(torch: Any) -> dict[str, Any]:
    """Describe the build of torch; fail for a folder that merely happens to be called torch."""
    return {
        "version": str(torch.__version__),
        "git": torch.version.git_version,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "root": os.path.dirname(os.path.abspath(torch.__file__)),
    }


def _triton() -> dict[str, Any] | None:
    try:
        triton: Any = importlib.import_module("triton")
    except ImportError:
        return None
    knobs = getattr(triton, "knobs", None)
    ptxas = getattr(getattr(knobs, "nvidia", None), "ptxas", None)
    return {"version": triton.__version__, "ptxas": getattr(ptxas, "path", None)}


def _devices(torch: Any) -> list[dict[str, Any]]:
    if not torch.accelerator.is_available():
        return []
    kind = torch.accelerator.current_accelerator().type
    module = torch.get_device_module(kind)
    # Not every backend describes its devices.
    describe = getattr(module, "get_device_properties", lambda index: None)
    amd = torch.version.hip is not None
    return [
        {"kind": kind, "index": index, **_device(describe(index), amd=amd)}
        for index in range(torch.accelerator.device_count())
    ]


def _device(properties: Any, *, amd: bool) -> dict[str, Any]:
    return {
        "name": getattr(properties, "name", "unnamed"),
        "architecture": _architecture(properties, amd=amd),
        "memory": getattr(properties, "total_memory", None),
    }


def _architecture(properties: Any, *, amd: bool) -> str | None:
    """Return a device's architecture; the field gcnArchName is meaningful only for AMD."""
    if amd:
        return getattr(properties, "gcnArchName", None)
    if hasattr(properties, "major"):
        return f"compute capability {properties.major}.{properties.minor}"
    return None


def _compilers() -> list[str]:
    """Return the C++ compilers that Inductor tries, in order; its own search may install one."""
    if sys.platform == "win32":
        return [os.environ.get("CXX", "cl")]
    chosen = importlib.import_module("torch._inductor.config").cpp.cxx
    candidates = chosen if isinstance(chosen, (list, tuple)) else [chosen]
    return [candidate for candidate in candidates if candidate]


def _default_cache() -> str:
    module = importlib.import_module("torch._inductor.runtime.cache_dir_utils")
    return str(module.default_cache_dir())


def _name(module: str, attribute: str) -> dict[str, Any]:
    """Check whether a private name exists and, if not, which part of its path is missing."""
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        return {"found": False, "reason": _short(error), "absent": _absent_package(module)}
    except Exception as error:
        return {"found": False, "reason": f"{module} cannot be imported: {_short(error)}"}
    place = module
    for part in filter(None, attribute.split(".")):
        if not _has(found, part):
            return {"found": False, "reason": f"{place} has no {part}{_nearest(part, found)}"}
        found = getattr(found, part)
        place = f"{place}.{part}"
    return {"found": True, "reason": None}


def _has(place: object, part: str) -> bool:
    """Check for an attribute, ignoring the __call__ and __init__ that each class inherits."""
    if isinstance(place, type):
        return any(part in vars(parent) for parent in place.__mro__ if parent is not object)
    return hasattr(place, part)


def _absent_package(module: str) -> str | None:
    """Return the package of a module if it is not torch and is not installed; else None."""
    package = module.partition(".")[0]
    try:
        importlib.import_module(package)
    except ImportError:
        return package
    return None


def _nearest(part: str, place: object) -> str:
    close = difflib.get_close_matches(part, dir(place), n=1)
    return f"; nearest: {close[0]}" if close else ""


def _setting(module: str, path: str) -> dict[str, Any]:
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return {"known": False, "value": None}
    return {"known": True, "value": repr(found)}


def _artifacts(names: list[str]) -> list[dict[str, Any]]:
    internal = importlib.import_module("torch._logging._internal")
    return [_artifact(internal.log_registry, internal.log_state, name) for name in names]


def _artifact(registry: Any, state: Any, name: str) -> dict[str, Any]:
    if registry.is_artifact(name):
        value = "on" if state.is_artifact_enabled(name) else "off"
        return {"known": True, "how": "registered artifact", "value": value}
    if registry.is_log(name):
        loggers = registry.log_alias_to_log_qnames[name]
        levels = dict(state.get_log_level_pairs())
        level = next((levels[logger] for logger in loggers if logger in levels), None)
        return {"known": True, "how": "registered log", "value": _level(level)}
    return {"known": False, "how": None, "value": None}


def _level(level: int | None) -> str:
    logging = importlib.import_module("logging")
    return "off" if level is None else str(logging.getLevelName(level))
