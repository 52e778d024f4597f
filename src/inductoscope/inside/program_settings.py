"""Settings of the compiler as the program has them: what differs from torch's defaults.

Three places set them: torch's config modules, the arguments of torch.compile, and marks on tensors.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from inductoscope.torch_facts import stages

CONFIGS = ("torch._dynamo.config", "torch._functorch.config", "torch._inductor.config")
_LONGEST = 200
_MODES = ("max-autotune", "max-autotune-no-cudagraphs", "reduce-overhead")
# torch changes these by itself while it traces for torch.compile(dynamic=…).
_SET_FOR_DYNAMIC = {
    "torch._dynamo.config.assume_static_by_default",
    "torch._dynamo.config.automatic_dynamic_shapes",
}
# Settings that inductoscope itself has changed in this process.
_OWN: set[str] = set()


def set_by_the_tool(*names: str) -> None:
    """Exclude settings with these full names from those of the program."""
    _OWN.update(names)


def changed_settings(module: str) -> dict[str, Any]:
    """Return the settings of one of the `CONFIGS` that differ from their defaults, by name."""
    config: Any = sys.modules.get(module)
    found = {}
    for name in getattr(config, "_config", ()):
        with contextlib.suppress(Exception):
            holder, held_as = _holder(config, name)
            if f"{module}.{name}" not in _OWN and not holder._is_default(held_as):
                found[name] = getattr(config, name)
    return found


def _holder(config: Any, name: str) -> tuple[Any, str]:
    """Return the module and the name under which a setting is stored, resolving aliases."""
    place, _, held_as = (getattr(config._config[name], "alias", None) or "").rpartition(".")
    return (sys.modules[place], held_as) if place else (config, name)


def config_texts(*, dynamic_given: bool) -> dict[str, str]:
    """Return all settings that differ from torch's defaults as text, by their full names."""
    not_the_programs = _SET_FOR_DYNAMIC if dynamic_given else set()
    found = {}
    for module in CONFIGS:
        for name, value in changed_settings(module).items():
            full_name, text = f"{module}.{name}", described(value)
            # torch itself changes some settings temporarily.
            if full_name not in not_the_programs and text != _default(module, name):
                found[full_name] = text
    return found


def default_texts(names: Iterable[str]) -> dict[str, str]:
    """Return torch's default values of settings with these full names, as text."""
    return {
        name: _default(module, name.removeprefix(f"{module}."))
        for name in names
        for module in CONFIGS
        if name.startswith(f"{module}.")
    }


def _default(module: str, name: str) -> str:
    holder, held_as = _holder(sys.modules[module], name)
    return described(holder._config[held_as].default)


def described(value: Any) -> str:
    """Return a value as Python source; objects by name, because addresses differ between runs."""
    if isinstance(value, (bool, int, float, str, type(None))):
        return repr(value)[:_LONGEST]
    if isinstance(value, Mapping):
        inner = ", ".join(f"{described(k)}: {described(v)}" for k, v in value.items())
        return f"{{{inner}}}"[:_LONGEST]
    if isinstance(value, (list, tuple, set, frozenset)):
        items = [described(item) for item in value]
        inner = ", ".join(sorted(items) if isinstance(value, (set, frozenset)) else items)
        return f"[{inner}]"[:_LONGEST]
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"[:_LONGEST]


# --- torch.compile --------------------------------------------------------------------------------


def backend_of(output: Any) -> Any:
    """Unwrap the backend from Dynamo's wrappers. `output` is Dynamo's OutputGraph."""
    inner = output.compiler_fn
    for _ in range(4):
        inner = getattr(inner, "_torchdynamo_orig_backend", None) or getattr(
            inner, "_torchdynamo_orig_callable", inner
        )
        # The optimizer of DistributedDataParallel splits a graph, and has the backend compile it.
        inner = getattr(getattr(inner, "__self__", None), "backend_compile_fn", inner)
    return inner


def compile_arguments(backend: Any, *, fullgraph: bool) -> dict[str, str]:
    """Return the non-default arguments of torch.compile, from the `backend` made with them."""
    found: dict[str, str] = {}
    name = getattr(backend, "compiler_name", "") or getattr(backend, "__name__", "")
    if name and name != stages.INDUCTOR:
        found["backend"] = described(name)
    options = {str(k): v for k, v in (getattr(backend, "config", None) or {}).items()}
    dynamic = getattr(backend, "dynamic", None)
    mode = _mode(options, dynamic)
    if mode:
        found["mode"] = described(mode)
    rest = {k: v for k, v in options.items() if k not in _options_of(mode, dynamic)}
    if rest:
        found["options"] = described(rest)
    if dynamic is not None:
        found["dynamic"] = described(dynamic)
    if fullgraph:
        found["fullgraph"] = "True"
    return found


def _mode(options: Mapping[str, Any], dynamic: bool | None) -> str:
    """Infer the mode from its options, which torch keeps instead: the one with the most matches."""
    found = [
        (len(own), mode)
        for mode in _MODES
        if (own := _options_of(mode, dynamic)) and own.items() <= options.items()
    ]
    return max(found)[1] if found else ""


def _options_of(mode: str, dynamic: bool | None) -> dict[str, Any]:
    with contextlib.suppress(Exception):
        list_mode_options = sys.modules["torch._inductor"].list_mode_options
        return dict(list_mode_options(mode, dynamic)) if mode else {}
    return {}


# --- marks on tensors -----------------------------------------------------------------------------


@dataclass(frozen=True)
class MarkedSize:
    """One dimension of an input of the graph, and the function of torch that marked it."""

    input: str
    dimension: int
    function: str
    least: int | None = None
    most: int | None = None

    @property
    def bounds(self) -> dict[str, int]:
        """The bounds as keyword arguments of that function."""
        given = {"min": self.least, "max": self.most}
        return {name: bound for name, bound in given.items() if bound is not None}

    def __str__(self) -> str:
        bounds = "".join(f", {name}={bound}" for name, bound in self.bounds.items())
        return f"{self.function}({self.input}, {self.dimension}{bounds})"


def marks_of(name: str, value: Any) -> Iterator[MarkedSize]:
    """Yield the sizes of a tensor that the program has marked as dynamic or unbacked."""
    ranges = {item.dim: item for item in getattr(value, "_dynamo_dynamic_range", ())}
    for dimension in sorted(getattr(value, "_dynamo_dynamic_indices", ())):
        least = getattr(ranges.get(dimension), "min", None)
        most = getattr(ranges.get(dimension), "max", None)
        yield MarkedSize(name, dimension, "mark_dynamic", least, most)
    bounds = getattr(value, "_dynamo_unbacked_bounds", {})
    for dimension in sorted(getattr(value, "_dynamo_unbacked_indices", ())):
        yield MarkedSize(name, dimension, "mark_unbacked", *bounds.get(dimension, ()))
    for dimension in sorted(getattr(value, "_dynamo_weak_dynamic_indices", ())):
        yield MarkedSize(name, dimension, "maybe_mark_dynamic")


def static_marks_of(name: str, value: Any) -> Iterator[MarkedSize]:
    """Yield the sizes of a tensor that the program has marked as static."""
    for dimension in sorted(getattr(value, "_dynamo_static_indices", ())):
        yield MarkedSize(name, dimension, "mark_static")
