"""Source code for functions of torch that the program has replaced."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import takewhile
from types import FunctionType, ModuleType
from typing import Any

from inductoscope.doctor.finding import ReplacedPart
from inductoscope.errors import ToolFailure
from inductoscope.inside.repro.failure_script import REPLACE
from inductoscope.inside.repro.source_text import PLAIN, SourceParts
from inductoscope.inside.search.program_state import settings_with_code
from inductoscope.inside.search.stack_samples import file_of, function_name
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.frames import is_users

# The packages of the compiler, in which replaced functions are looked for.
_COMPILER = tuple(f"torch.{part}" for part in ("_dynamo", "_functorch", "_inductor", "fx"))

_LOWERING = "torch._inductor.lowering"
_REGISTER = "torch._inductor.lowering.register_lowering"
_POINTWISE = "torch._inductor.lowering.make_pointwise"
_PROMOTION = "torch._inductor.lowering.ELEMENTWISE_TYPE_PROMOTION_KIND"
_TABLES = (
    "torch._inductor.lowering.lowerings",
    "torch._inductor.decomposition.decompositions",
)


def replaced_functions_text(functions: Sequence[str]) -> str:
    """Return code that installs the program's own functions again; empty if there are none.

    `functions` are written 'name (file:line)'. Raises `ToolFailure` if one cannot be copied.
    """
    own = {name for name in functions if is_users(file_of(name))}
    if not own:
        return ""
    found = {**dict(_replacements(own)), **dict(_in_tables(own))}
    parts = _WithOriginals(found)
    lines = [*add_own_passes(parts), *_add_replaced(found, parts)]
    if not lines:
        raise ToolFailure(f"the program's own {min(own)} is part of the compiler, unknown how")
    # Passes are part of what may be slow: plain graphs are timed without them.
    put_in_place = "\n    ".join([f"def {REPLACE}():", *lines])
    return "\n\n\n".join([parts.text, put_in_place])


def replaced_parts_text(parts: Sequence[ReplacedPart]) -> tuple[str, str]:
    """Return code that puts these functions into torch's tables, and why not if that fails.

    A script is tried without this code as well, because the functions may not be at fault.
    """
    names = {part.function for part in parts}
    found = dict(_in_tables(names))
    missing = names - {function_name(each.__code__) for each in found.values()}
    try:
        if missing:
            raise ToolFailure("the function is a closure")
        if not found:
            return "", ""
        held = _WithOriginals(found)
        lines = _add_replaced(found, held)
        return "\n\n\n".join([held.text, "\n".join(lines)]), ""
    except ToolFailure as error:
        return "", f"a script cannot hold {', '.join(sorted(names))}: {error}"


def check_tuned_operators(module: Any) -> None:
    """Raise `ToolFailure` if Inductor tunes variants of an operator that the program registered.

    The variants are closures of torch's around functions of the program: no script can hold them.
    """
    registered = sys.modules[_LOWERING].user_lowerings
    names = [str(node.target) for node in module.graph.nodes if node.target in registered]
    if names:
        raise ToolFailure(
            f"the program has registered variants of {names[0]} with "
            "register_custom_op_autotuning, and a script cannot hold that registration; without "
            "it nothing is timed, and nothing fails"
        )


def _add_replaced(found: dict[str, FunctionType], parts: SourceParts) -> list[str]:
    """Add these functions; return the statements that install them."""
    parts.imports.update(f"import {place.partition(':')[0]}" for place in found)
    return [
        _putting_in_place(place, function, parts.add_function(function))
        for place, function in found.items()
    ]


def _putting_in_place(place: str, own: FunctionType, name: str) -> str:
    """Return the statement that installs a function the way the program did."""
    target, operation = place.replace(":", "."), place.partition("[")[2].rstrip("]")
    table = _table(target.partition("[")[0]) if operation else {}
    value = next((v for key, v in table.items() if f"torch.ops.{key}" == operation), None)
    options = _as_registered(value, own)
    function = _as_pointwise(value, own, name)
    if options is None:
        return f"{target} = {function}"
    return f"{_REGISTER}({operation}, {options})({function})"


def _as_pointwise(value: Any, own: FunctionType, name: str) -> str:
    """Return a call of `make_pointwise` if the program used it; otherwise the function."""
    around = takewhile(lambda layer: layer is not own, layers(value))
    given = next(filter(None, map(made_pointwise, around)), None)
    if given is None:
        return name
    usual = inspect.signature(sys.modules[_LOWERING].make_pointwise).parameters
    options = {
        key: each
        for key, each in given.items()
        if key in usual and key != "fn" and each is not usual[key].default
    }
    if not all(isinstance(each, PLAIN) for each in options.values()):
        raise ToolFailure(f"it is given {', '.join(sorted(options))}")
    return f"{_POINTWISE}({', '.join([name, *(f'{k}={v!r}' for k, v in options.items())])})"


def _as_registered(value: Any, own: FunctionType) -> str | None:
    """Return the arguments of `register_lowering` for the program's function, as text."""
    for layer in takewhile(lambda layer: layer is not own, layers(value)):
        told = told_by_torch(layer, {"type_promotion_kind"})
        if told is not None:
            kind = told["type_promotion_kind"]
            named = f"{_PROMOTION}.{kind.name}" if kind else None
            return (
                f"broadcast={told['broadcast']}, type_promotion_kind={named}, "
                f"convert_input_to_bool={told['convert_input_to_bool']}"
            )
    return None


class _WithOriginals(SourceParts):
    """Source parts of a program that keeps the original of a replaced function by name."""

    def __init__(self, found: dict[str, FunctionType]) -> None:
        super().__init__()
        self._places = found

    def _add(self, name: str, value: Any) -> None:
        # A lowering may read another one from a table of torch's.
        table = next((place for place in _TABLES if _table(place) is value), "")
        place = table or _place_of_original(value, self._places)
        if table:
            self.imports.add(f"import {table.rpartition('.')[0]}")
        if place:
            self._add_value(f"{name} = {place}")
        else:
            super()._add(name, value)


def _table(place: str) -> Any:
    module, _, name = place.rpartition(".")
    return getattr(sys.modules.get(module), name, {})


def _place_of_original(value: Any, places: dict[str, FunctionType]) -> str:
    """Return where a function of torch was before it was replaced; empty if unknown."""
    inner = inspect.unwrap(value) if callable(value) else value
    if not isinstance(inner, FunctionType) or is_users(inner.__code__.co_filename):
        return ""
    named = f"{inner.__module__}:{inner.__qualname__}"
    if named in places:
        return named.replace(":", ".")
    # A table entry has no name, so this is a guess, which a run of the script confirms.
    in_tables = [place for place in places if place.endswith("]")]
    is_named = getattr(sys.modules.get(inner.__module__), inner.__name__, None) is value
    return in_tables[0].replace(":", ".") if in_tables and not is_named else ""


def _in_tables(own: set[str]) -> Iterator[tuple[str, FunctionType]]:
    """Yield table entries for lowerings and decompositions that the program has replaced."""
    for place in _TABLES:
        module, _, table = place.rpartition(".")
        for operation, value in list(_table(place).items()):
            function = _own_function(value, own)
            if function is not None:
                yield f"{module}:{table}[torch.ops.{operation}]", function


def _replacements(own: set[str]) -> Iterator[tuple[str, FunctionType]]:
    """Yield places in torch that hold a function of the program: 'module:Class.name'."""
    for name, module in list(sys.modules.items()):
        if not name.startswith(_COMPILER) or not isinstance(module, ModuleType):
            continue
        members = list(vars(module).items())
        kinds = [(key, v) for key, v in members if isinstance(v, type) and v.__module__ == name]
        for prefix, owner in [("", module), *((f"{key}.", kind) for key, kind in kinds)]:
            for attribute, value in list(vars(owner).items()):
                function = _own_function(value, own)
                if function is not None:
                    yield f"{name}:{prefix}{attribute}", function


def _own_function(value: Any, own: set[str]) -> FunctionType | None:
    """Return the program's function at a place, inside any wrappers."""
    for layer in layers(value):
        is_plain = isinstance(layer, FunctionType) and not layer.__closure__
        if is_plain and function_name(layer.__code__) in own:
            return layer  # type: ignore[no-any-return]
    return None


# --- the program's own passes over graphs ---------------------------------------------------------


def own_passes_text() -> str:
    """Return definitions and settings of the program's own passes; empty if there are none.

    Raises `ToolFailure` if one cannot be copied.
    """
    parts = SourceParts()
    lines = add_own_passes(parts)
    return "\n\n\n".join([parts.text, "\n".join(lines)]) if lines else ""


def add_own_passes(parts: SourceParts) -> list[str]:
    """Add the definitions of the program's passes; return the statements that set them."""
    settings = settings_with_code()
    if settings:
        parts.imports.add("import torch._inductor.config")
    return [f"torch._inductor.config.{name} = {_added(v, parts)}" for name, v in settings.items()]


def _added(value: Any, parts: SourceParts) -> str:
    """Add the definition of a pass; return the expression for the pass."""
    if isinstance(value, FunctionType):
        return parts.add_function(value)
    if vars(value):
        raise ToolFailure(f"the program's pass {type(value).__name__} has a state of its own")
    parts.add_class(type(value))
    return f"{type(value).__name__}()"


# --- decompositions and lowerings in use that are not torch's own ---------------------------------


def replaced_parts(operations: Sequence[str]) -> list[ReplacedPart]:
    """Return the operations whose decomposition or lowering is code of the program."""
    from torch._inductor.decomposition import decompositions
    from torch._inductor.lowering import lowerings

    found = []
    for kind, table in ((stages.DECOMPOSITION, decompositions), (stages.LOWERING, lowerings)):
        by_name = {str(key): function for key, function in table.items()}
        for operation in dict.fromkeys(operations):
            codes = [getattr(each, "__code__", None) for each in layers(by_name.get(operation))]
            own = [code for code in codes if code is not None and is_users(code.co_filename)]
            found += [ReplacedPart(kind, operation, function_name(code)) for code in own[:1]]
    return found


def layers(function: Any) -> Iterator[Any]:
    """Yield a decomposition or lowering and the functions that it wraps.

    torch wraps the program's functions, and the program may wrap torch's.
    """
    while callable(function) and not isinstance(function, type):
        yield function
        given = made_pointwise(function) or {}
        function = inspect.getattr_static(function, "__wrapped__", given.get("fn"))


def made_pointwise(function: Any) -> Mapping[str, Any] | None:
    """Return the arguments of `make_pointwise` for this lowering; None if it has another origin."""
    return told_by_torch(function, {"fn", "override_return_dtype"})


def told_by_torch(function: Any, names: Set[str]) -> Mapping[str, Any] | None:
    """Return the closure variables of one of torch's lowering functions, if it has these names.

    A program may have a copy of such a function, which is its own code.
    """
    if not isinstance(function, FunctionType) or not names <= {*function.__code__.co_freevars}:
        return None
    if function.__globals__.get("__name__") != _LOWERING:
        return None
    return inspect.getclosurevars(function).nonlocals
