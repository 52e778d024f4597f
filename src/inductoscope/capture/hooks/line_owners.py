"""Which operations each line of a loop body belongs to, noted while torch makes the body.

An operation becomes a function that computes one element. It calls the functions of its inputs,
except for inputs that are in memory by then. torch makes a loop body by calling the outermost of
these functions, so a line belongs to the operation whose function is being called. Lines outside of
any function, such as the store, belong to the operation that the buffer was made for.

torch works out constants and indices before it makes a line of them. Such a line belongs to all
operations that went into it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

from inductoscope.capture.observe import Arguments, Keywords, watch
from inductoscope.capture.scope import SCOPE
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.torch_names import Hook, Replacement, TorchName, Wrap

TORCH_NAMES = {
    "torch._inductor.virtualized": ("V.graph", "V.interpreter"),
}

# The names of operations; mostly one.
Owners = tuple[str, ...]

# What torch has made carries its owners along, so that copies of it have them, too.
_OWNERS = "_inductoscope_owners"


class _Calling(threading.local):
    """The operations whose function is being called on this thread."""

    def __init__(self) -> None:
        self.owners: Owners = ()


_calling = _Calling()


def claim(operation: str, result: Any, made: Iterable[Any]) -> None:
    """Note what torch has made for an operation; what it made for an earlier one stays that one's.

    `made` are the nodes that it has put into the list of those to be scheduled.
    """
    if SCOPE.is_timing:
        return
    for item in made:
        setattr(item, _OWNERS, (operation,))
        _claim_function(operation, item)
    for item in result if isinstance(result, (list, tuple)) else (result,):
        _claim_function(operation, item)


def _claim_function(operation: str, box: Any) -> None:
    from torch._inductor.ir import IRNode, Loops

    while isinstance(box, IRNode) and not isinstance(box, Loops):
        box = vars(box).get("data")
    if isinstance(box, Loops) and _OWNERS not in vars(box):
        object.__setattr__(box, _OWNERS, (operation,))
        object.__setattr__(box, "inner_fn", _called_for((operation,))(box.inner_fn))


def _called_for(owners: Owners) -> Replacement:
    """Watches the function of an operation."""

    def before(args: Arguments, kwargs: Keywords) -> Owners:
        return _call_for(owners)

    return watch(before=before, after=_called, failed=_call_failed)


def _call_for(owners: Owners) -> Owners:
    around, _calling.owners = _calling.owners, owners
    return around


def _called(around: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
    _calling.owners = around


def _call_failed(around: Any, error: BaseException) -> None:
    _calling.owners = around


def _line_made(token: Any, line: Any, args: Arguments, kwargs: Keywords) -> None:
    line.meta[_OWNERS] = _whose()


def _whose() -> Owners:
    """Whose is what is being made now; a body can also be made out of another body."""
    if _calling.owners:
        return _calling.owners
    from torch._inductor.virtualized import V

    copied = getattr(V.interpreter, "current_node", None)
    return copied.meta.get(_OWNERS, ()) if copied is not None else ()


# --- what torch works out -------------------------------------------------------------------------


def _worked_out(token: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
    if getattr(result, "is_symbolic", False):
        inputs = [owner for one in args[2] for owner in getattr(one, _OWNERS, ())]
        setattr(result, _OWNERS, tuple(dict.fromkeys((*inputs, *_whose()))))


def _writing_down(args: Arguments, kwargs: Keywords) -> Owners:
    return _call_for(getattr(args[1], _OWNERS, _calling.owners))


# --- what is recorded of it -----------------------------------------------------------------------

_STORES = ("store", "store_reduction")


def lines_by_owner(node: Any, body: Any) -> dict[str, list[str]]:
    """For each operation, the names of its lines in the loop body of a scheduler node.

    Inside a masked part of the body, the name of that part precedes: 'masked_subblock1.load'.
    """
    found: dict[str, list[str]] = {}
    around, into = _owners_of(node), _owners_of_target(node)
    lines = list(_lines(body))
    if not any(_OWNERS in line.meta for _, line in lines):
        return {}
    indices = _owners_of_indices(body, lines)
    for name, line in lines:
        owners = [*(line.meta.get(_OWNERS) or around), *indices.get(line, ())]
        for owner in dict.fromkeys((*owners, *(into if line.target in _STORES else ()))):
            found.setdefault(owner, []).append(name)
    return found


def _owners_of_indices(body: Any, lines: Iterable[tuple[str, Any]]) -> dict[Any, Owners]:
    """The operations that compute where a line loads from: a gather loads what its input is."""
    if not body.indirect_vars:
        return {}
    computed = {
        str(line.target).removeprefix("set_"): line.meta.get(_OWNERS, ()) for _, line in lines
    }
    return {
        line: tuple(
            owner
            for symbol in body.indexing_exprs[line.args[2].args[0]].free_symbols
            for owner in computed.get(symbol.name, ())
        )
        for _, line in lines
        if line.target == "load"
    }


def _lines(body: Any) -> Iterator[tuple[str, Any]]:
    """The lines of a body that do something."""
    for prefix, block in (("", body.root_block), *body.subblocks.items()):
        for line in block.graph.nodes:
            if line.op.startswith("call_") and line.target != "get_index":
                yield (f"{prefix}.{line.name}" if prefix else line.name), line


def _owners_of(node: Any) -> Owners:
    """The operation that a buffer is computed for, or that it was made for."""
    for found in (getattr(node, "data", None), node):
        if found is not None and _OWNERS in vars(found):
            return vars(found)[_OWNERS]  # type: ignore[no-any-return]
    return ()


def _owners_of_target(node: Any) -> Owners:
    """The operation whose result a buffer is a part of, as of `cat`."""
    from torch._inductor.virtualized import V

    view = getattr(node.layout, "view", None)
    target = None if view is None else V.graph.name_to_buffer.get(view.get_name())
    return () if target is None else tuple(vars(target).get(_OWNERS, ()))


def converted_line(line: Any) -> Any:
    """The line that a conversion is for which torch puts in when it writes code; else the line.

    What is loaded in half precision is converted behind the load, what is stored before the store.
    """
    value: Any = line.args[1] if line.target == "to_dtype" and _OWNERS not in line.meta else None
    if not hasattr(value, "meta") or _OWNERS not in value.meta:
        return line
    stored = next((user for user in line.users if user.target in _STORES), None)
    return value if stored is None else stored


_INDICES = "torch._inductor.index_propagation"

OWNERS = Hook(
    stage=stages.SCHEDULER,
    records="which operation each line of a loop body belongs to",
    wraps=(
        Wrap(
            TorchName("torch._inductor.loop_body", "LightTracer.create_node"),
            watch(after=_line_made),
        ),
        Wrap(
            TorchName(_INDICES, "IndexPropagation.propagate_sympy"),
            watch(after=_worked_out),
        ),
        Wrap(
            TorchName(_INDICES, "IndexPropagation.unwrap"),
            watch(before=_writing_down, after=_called, failed=_call_failed),
        ),
    ),
    reads=(
        TorchName("torch._inductor.ir", "IRNode"),
        TorchName("torch._inductor.ir", "Loops"),
    ),
)
