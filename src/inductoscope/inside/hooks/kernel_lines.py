"""Mapping from operations of a loop body to lines of a kernel, noted while lines are written.

An operation writes lines into buffers. torch copies these into other buffers until one of them
becomes the kernel's text. A note on the writer of a line is copied with it, which gives its number
in that text. Searching for the text of a line would not do: `{` and `tmp0 = tmp1 * tmp2` recur.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

from inductoscope.inside.observe import Arguments, Keywords, Watching, watch
from inductoscope.inside.scope import SCOPE
from inductoscope.torch_facts import private_names as hooked
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.torch_names import Hook, Replacement, Wrap

# A scheduler node, and an operation of its loop body; in a masked subblock, prefixed with the name
# of the subblock: 'masked_subblock1.load'.
Writer = tuple[str, str]
# The writers of a line, in a list shared by all copies of the line, because common-subexpression
# elimination may add a second operation later.
Writers = list[Writer]
# Maps an index in a buffer to the line that was there, and its writers.
Notes = dict[int, tuple[Any, Writers]]


class _Writing(threading.local):
    """The code being generated on this thread."""

    def __init__(self) -> None:
        self.notes: WeakKeyDictionary[Any, Notes] = WeakKeyDictionary()
        # Maps finished texts to the writers of their lines, counted from 1.
        self.texts: dict[str, dict[int, Writers]] = {}
        # Maps the id of a variable to the variable, the method that made it and the lines that
        # compute it; keeping the variable alive keeps the id unique.
        self.variables: dict[int, tuple[Any, str, list[Writers]]] = {}
        # Every line that was written, discarded or not: (scheduler node, operation, line).
        self.lines: dict[tuple[str, str, str], None] = {}


_writing = _Writing()


def forget_writing() -> None:
    """Forget all notes; called once all kernels of a graph are generated."""
    _writing.texts.clear()
    _writing.variables.clear()


def take_lines(nodes: set[str]) -> tuple[tuple[str, str, str], ...]:
    """Remove and return the lines written for scheduler nodes: node, operation, line."""
    taken = [key for key in _writing.lines if key[0] in nodes]
    for key in taken:
        del _writing.lines[key]
    return tuple(taken)


def numbered_lines(
    source: str, lines: tuple[tuple[str, str, str], ...]
) -> tuple[tuple[str, str, int], ...]:
    """Return the line numbers of a kernel, from 1: node, operation, number."""
    noted = _writing.texts.get(source)
    if noted is None:
        return _lines_that_occur_once(source, lines)
    return tuple((*writer, number) for number, found in noted.items() for writer in found)


def _lines_that_occur_once(
    source: str, lines: tuple[tuple[str, str, str], ...]
) -> tuple[tuple[str, str, int], ...]:
    """Find lines by their text where notes are lost, as in templates; only unique lines count."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for number, text in enumerate(source.splitlines(), start=1):
        numbers[text.strip()].append(number)
    written = Counter(text for _, _, text in lines)
    return tuple(
        (node, operation, numbers[text][0])
        for node, operation, text in lines
        if written[text] == 1 and len(numbers[text]) == 1
    )


# --- operations write lines -----------------------------------------------------------------------

# Buffers of a kernel under construction; C++ and Triton kernels have some of them each.
_CODE_BUFFERS = (
    *("preloads", "loads", "compute", "stores", "poststores", "body"),
    *("reduction_prefix", "reduction_suffix"),
    *("parallel_reduction_prefix", "parallel_reduction_suffix"),
    *("non_parallel_reduction_prefix", "non_parallel_reduction_suffix"),
    *("local_reduction_init", "local_reduction_stores"),
    *("post_loop_combine", "post_loop_store"),
)


def _written_so_far() -> list[tuple[Any, int]]:
    from torch._inductor.virtualized import V

    found = {id(b): b for name in _CODE_BUFFERS if (b := getattr(V.kernel, name, None)) is not None}
    return [(b, len(b._lines)) for b in found.values() if hasattr(b, "_lines")]


def _written_by(method: str) -> Replacement:
    """Watch a method of the ops handler, through which every operation of a loop body goes."""

    def observer(args: Arguments, kwargs: Keywords) -> Watching:
        before = _written_so_far()
        result = yield
        _operation_written(method, before, result, args)

    return watch(observer)


def _operation_written(
    method: str, before: list[tuple[Any, int]], result: Any, args: Arguments
) -> None:
    from torch._inductor.virtualized import V

    body_node = getattr(V.interpreter, "current_node", None)
    if body_node is None:
        return
    scheduler_node = getattr(V.kernel, "current_node", None)
    owner = "" if scheduler_node is None else scheduler_node.get_name()
    name = converted_line(body_node).name
    writer = owner, _block(scheduler_node, V.interpreter) + name
    written: list[Writers] = []
    indices = getattr(V.kernel, "body", None)
    for buffer, length in before:
        for place in range(length, len(buffer._lines)):
            text = _text(buffer._lines[place])
            if text is not None and text.strip():
                if buffer is indices and not text.lstrip().startswith(_VALUES):
                    continue
                _writing.lines[owner, name, text.strip()] = None
                written += _sign(buffer, place, writer)
    if written:
        _writing.variables[id(result)] = result, method, written
    elif not _is_among(result, args[1:]):
        _share_lines(result, method, writer)


# In Triton, the body of a kernel also has index lines, each written when an operation first needs
# it, and shared by all.
_VALUES = ("tmp", "_tmp")


def _block(scheduler_node: Any, interpreter: Any) -> str:
    """Return the name of the subblock being interpreted; empty for the root block."""
    blocks = getattr(getattr(scheduler_node, "_body", None), "subblocks", None) or {}
    graph = getattr(interpreter, "graph", None)
    return next((f"{name}." for name, block in blocks.items() if block.graph is graph), "")


def _text(line: Any) -> str | None:
    text = getattr(line, "line", line)
    return text if isinstance(text, str) else None


def _sign(buffer: Any, place: int, writer: Writer) -> list[Writers]:
    """Note the writer of a line, unless an operation nested in this one wrote it."""
    notes, line = _writing.notes.setdefault(buffer, {}), buffer._lines[place]
    if place in notes and notes[place][0] is line:
        return []
    writers = [writer]
    notes[place] = line, writers
    return [writers]


def _share_lines(result: Any, method: str, writer: Writer) -> None:
    """Share lines with an operation that wrote none because of common-subexpression elimination.

    A load may also get a value that was stored there before; another operation computed that.
    """
    _, made_by, lines = _writing.variables.get(id(result), (None, "", ()))
    for writers in lines if made_by == method else ():
        if writer not in writers:
            writers.append(writer)


def _is_among(result: Any, arguments: Any) -> bool:
    """Check whether a result is one of the arguments, and so was computed by another operation."""
    if isinstance(arguments, (tuple, list)):
        return any(_is_among(result, inner) for inner in arguments)
    return arguments is result


# --- lines are copied -----------------------------------------------------------------------------


def _noted(buffer: Any) -> Iterator[tuple[int, Writers]]:
    """Yield the current indices of a buffer's noted lines, with their writers."""
    notes = _writing.notes.get(buffer) if hasattr(buffer, "_lines") else None
    if not notes:
        return
    lines = buffer._lines
    moved: dict[int, int] = {}
    if any(place >= len(lines) or lines[place] is not line for place, (line, _) in notes.items()):
        moved = {id(line): place for place, line in enumerate(lines)}
    for place, (line, writers) in notes.items():
        if place < len(lines) and (lines[place] is line or id(line) not in moved):
            yield place, writers  # The same line, or its replacement by torch.
        elif id(line) in moved:
            yield moved[id(line)], writers


def _carry(notes: Any, buffer: Any, start: int) -> None:
    known = _writing.notes.setdefault(buffer, {})
    for place, writers in notes:
        known[start + place] = buffer._lines[start + place], writers


def _splice(args: Arguments, kwargs: Keywords) -> Watching:
    other = args[1] if len(args) > 1 else kwargs.get("other_code")
    notes, start = list(_noted(other)), len(args[0]._lines)
    yield
    if notes:
        _carry(notes, args[0], start)


def _mapped(args: Arguments, kwargs: Keywords) -> Watching:
    _carry(_noted(args[0]), (yield), 0)


def _added(args: Arguments, kwargs: Keywords) -> Watching:
    result = yield
    _carry(_noted(args[0]), result, 0)
    _carry(_noted(args[1]), result, len(args[0]._lines))


def _put_under_loop(args: Arguments, kwargs: Keywords) -> Watching:
    result = yield
    # The lines of the loop and of its opening brace come first; the closing brace is last.
    if len(result._lines) == len(args[0]._lines) + 3:
        _carry(_noted(args[0]), result, 2)


def _cleared(args: Arguments, kwargs: Keywords) -> Watching:
    yield
    _writing.notes.pop(args[0], None)


def _finished(args: Arguments, kwargs: Keywords) -> Watching:
    """Number the lines of a finished text: some buffer lines are dropped, some span several."""
    text = yield
    notes = dict(_noted(args[0]))
    if not notes:
        return
    found: dict[int, Writers] = {}
    number = 1
    for place, line in enumerate(args[0]._lines):
        shown = line() if callable(line) else line
        if not isinstance(shown, str):
            continue
        count = 1 + shown.count("\n")
        if place in notes:
            found.update((number + more, notes[place]) for more in range(count))
        number += count
    _writing.texts[text] = found


_ON_BUFFER = {
    "splice": _splice,
    "map": _mapped,
    "__add__": _added,
    "clear": _cleared,
    "getvalue": _finished,
}

# --- The operations that each line of a loop body belongs to, noted while torch makes the body ----
#
# Lowering turns an operation into an inner function that computes one element. It calls the inner
# functions of its inputs, except for inputs that are realized. torch makes a loop body by calling
# the outermost inner function, so a line belongs to the operation whose function is being called.
# Lines outside of any function, such as the store, belong to the operation that the buffer was made
# for.
#
# torch evaluates constants and index expressions before it emits a line for them. Such a line
# belongs to all operations that contributed to it.


# The operations that own a line, by name; usually one.
Owners = tuple[str, ...]

# An attribute of torch's objects that holds their owners, so that copies have them, too.
_OWNERS = "_inductoscope_owners"


class _Calling(threading.local):
    """The operations whose function is being called on this thread."""

    def __init__(self) -> None:
        self.owners: Owners = ()


_calling = _Calling()


def claim(operation: str, result: Any, made: Iterable[Any]) -> None:
    """Mark IR made for an operation as its own, unless an earlier operation owns it.

    `made` are the nodes that the lowering has added to the list of those to be scheduled.
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
    return watch(lambda args, kwargs: _call_for(owners))


def _call_for(owners: Owners) -> Watching:
    around, _calling.owners = _calling.owners, owners
    try:
        yield
    finally:
        _calling.owners = around


def _line_made(args: Arguments, kwargs: Keywords) -> Watching:
    line = yield
    line.meta[_OWNERS] = _whose()


def _whose() -> Owners:
    """Return the owners of the line being made; a body can also be made from another body."""
    if _calling.owners:
        return _calling.owners
    from torch._inductor.virtualized import V

    copied = getattr(V.interpreter, "current_node", None)
    return copied.meta.get(_OWNERS, ()) if copied is not None else ()


# --- expressions that torch evaluates -------------------------------------------------------------


def _worked_out(args: Arguments, kwargs: Keywords) -> Watching:
    result = yield
    if getattr(result, "is_symbolic", False):
        inputs = [owner for one in args[2] for owner in getattr(one, _OWNERS, ())]
        setattr(result, _OWNERS, tuple(dict.fromkeys((*inputs, *_whose()))))


def _writing_down(args: Arguments, kwargs: Keywords) -> Watching:
    return _call_for(getattr(args[1], _OWNERS, _calling.owners))


# --- the recorded part ----------------------------------------------------------------------------

_STORES = ("store", "store_reduction")


def lines_by_owner(node: Any, body: Any) -> dict[str, list[str]]:
    """Return the names of each operation's lines in the loop body of a scheduler node.

    In a masked subblock, the name of the subblock is a prefix: 'masked_subblock1.load'.
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
    """Return the owners of indirect indices, such as those that a gather loads from."""
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
    """Yield the lines of a body that compute, load or store, with the prefix of their block."""
    for prefix, block in (("", body.root_block), *body.subblocks.items()):
        for line in block.graph.nodes:
            if line.op.startswith("call_") and line.target != "get_index":
                yield (f"{prefix}.{line.name}" if prefix else line.name), line


def _owners_of(node: Any) -> Owners:
    for found in (getattr(node, "data", None), node):
        if found is not None and _OWNERS in vars(found):
            return vars(found)[_OWNERS]  # type: ignore[no-any-return]
    return ()


def _owners_of_target(node: Any) -> Owners:
    """Return the owners of the buffer that this one is a slice of, as for `cat`."""
    from torch._inductor.virtualized import V

    view = getattr(node.layout, "view", None)
    target = None if view is None else V.graph.name_to_buffer.get(view.get_name())
    return () if target is None else tuple(vars(target).get(_OWNERS, ()))


def converted_line(line: Any) -> Any:
    """Return the line that an inserted dtype conversion belongs to; other lines as they are.

    Codegen converts half-precision values after their load and before their store.
    """
    value: Any = line.args[1] if line.target == "to_dtype" and _OWNERS not in line.meta else None
    if not hasattr(value, "meta") or _OWNERS not in value.meta:
        return line
    stored = next((user for user in line.users if user.target in _STORES), None)
    return value if stored is None else stored


HOOKS = (
    Hook(
        stage=stages.CODEGEN,
        records="which lines of a kernel each loop body operation became",
        wraps=(
            *(Wrap(name, _written_by(method)) for method, name in hooked.CSE_PROXY.items()),
            *(Wrap(hooked.INDENTED_BUFFER[name], watch(done)) for name, done in _ON_BUFFER.items()),
            Wrap(hooked.MOVE_CODE_UNDER_INNER_LOOP, watch(_put_under_loop)),
        ),
        reads=(hooked.V,),
    ),
    Hook(
        stage=stages.SCHEDULER,
        records="which operation each line of a loop body belongs to",
        wraps=(
            Wrap(hooked.CREATE_NODE, watch(_line_made)),
            Wrap(hooked.PROPAGATE_SYMPY, watch(_worked_out)),
            Wrap(hooked.UNWRAP, watch(_writing_down)),
        ),
        reads=(hooked.IRNODE, hooked.LOOPS),
    ),
)
