"""Copies of tensors that alias like the originals, calls on them, and random number state."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.node import map_arg
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

_SEED_OF_COTANGENTS = 20


def is_plain(value: Any) -> bool:
    """Check for a dense tensor in memory: not sparse, nested, fake, on meta, or a subclass."""
    return (
        type(value) in (torch.Tensor, torch.nn.Parameter)
        and not value.is_meta
        and value.layout is torch.strided
        and not value.is_quantized
        and not value.is_conj()
        and not value.is_neg()
        and not value._is_zerotensor()
        and not torch._C._functorch.is_functorch_wrapped_tensor(value)
    )


@contextlib.contextmanager
def plain_torch() -> Iterator[None]:
    """Disable fake tensor modes, autocast and gradients inside the block."""
    with _disable_current_modes(), torch.no_grad(), torch._C._DisableAutocast():
        yield


def copy_values(
    values: Sequence[Any], *, dtype: torch.dtype | None = None, device: str | None = None
) -> list[Any]:
    """Copy the tensors among `values`; copies alias where the originals do.

    The copy of a view is a view of the copy. With `dtype`, floating point tensors get that type,
    and complex ones the matching type. With `device`, the copies are placed there.
    """
    made, copies = _Copies({}, {}, device), dict[int, Any]()
    # The base of a view is copied first, wherever it is.
    for number in sorted(range(len(values)), key=lambda n: _is_view_of(values[n], values)):
        copies[number] = _copy(values[number], made, dtype)
    return [copies[number] for number in range(len(values))]


def shared_copies(
    values: Sequence[Any], written: Collection[int], *, dtype: torch.dtype | None = None
) -> list[Any]:
    """Copy the values with these numbers; the others share memory with the originals."""
    own = copy_values([v if n in written else None for n, v in enumerate(values)], dtype=dtype)
    return [own[n] if n in written else _shared(value) for n, value in enumerate(values)]


def _shared(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().requires_grad_(value.requires_grad)


def memory_of(value: torch.Tensor) -> Any:
    """Return what identifies a tensor's storage."""
    try:
        return value.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):  # Some subclasses have no storage.
        return id(value)


@dataclass(frozen=True)
class _Copies:
    """The copies made so far: whole storages, and tensors by the id of their original."""

    memories: dict[tuple[int, Any], torch.Tensor]
    tensors: dict[int, torch.Tensor]
    # The device of the copies; None for the originals' devices.
    device: str | None


def _is_view_of(value: Any, values: Sequence[Any]) -> bool:
    return is_plain(value) and any(value._base is other for other in values if other is not None)


def _copy(value: Any, made: _Copies, dtype: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    wanted = _wanted_dtype(value.dtype, dtype)
    if value._is_zerotensor():
        return value  # A zero tensor has no storage, but a copy would have.
    if not is_plain(value):
        copy = value.detach().clone().to(made.device or value.device)
        copy = copy if wanted is value.dtype else copy.to(wanted)
    else:
        copy = _in_memory(value, made, wanted)
    made.tensors[id(value)] = copy
    can_learn = copy.is_leaf and (copy.dtype.is_floating_point or copy.dtype.is_complex)
    if can_learn and copy.requires_grad != value.requires_grad:
        copy.requires_grad_(value.requires_grad)
    return copy


def _in_memory(value: torch.Tensor, made: _Copies, dtype: torch.dtype) -> torch.Tensor:
    """Copy a tensor into the copy of its storage; for a view, view its base's copy."""
    form = (value.size(), value.stride(), value.storage_offset())
    base = made.tensors.get(id(value._base)) if value._base is not None else None
    if base is not None:
        return base.as_strided(*form)
    key, device = (value.untyped_storage()._cdata, value.dtype), made.device or value.device
    if key not in made.memories:
        made.memories[key] = whole_memory(value).to(device=device, dtype=dtype, copy=True)
    size, stride, offset = form
    copy = torch.empty(0, dtype=dtype, device=device)
    return copy.set_(made.memories[key].untyped_storage(), offset, size, stride)


def whole_memory(value: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return the whole storage of a tensor, as elements of its type or another one."""
    storage = value.untyped_storage()
    whole = torch.empty(0, dtype=dtype or value.dtype, device=value.device)
    return whole.set_(storage, 0, (storage.nbytes() // whole.element_size(),), (1,))


def _wanted_dtype(own: torch.dtype, asked: torch.dtype | None) -> torch.dtype:
    if asked is None:
        return own
    if own.is_complex:
        return torch.complex128
    return asked if own.is_floating_point else own


def size_in_bytes(values: Sequence[Any]) -> int:
    """Return the bytes of storage of the tensors in `values`; shared storage counts once."""
    storages = {}
    for value in values:
        if is_plain(value):
            storages[value.untyped_storage()._cdata] = value.untyped_storage().nbytes()
    return sum(storages.values())


@dataclass(frozen=True)
class Outcome:
    """The result of a call: outputs, gradients of inputs, and the inputs as the call left them."""

    outputs: tuple[Any, ...]
    gradients: tuple[torch.Tensor | None, ...]
    inputs: tuple[Any, ...]
    # For each output, the names of the inputs and outputs that it shares memory with.
    shared: tuple[tuple[str, ...], ...]
    # For each output, the number of the first output that is the same object.
    same: tuple[int, ...] = ()
    # How long the call took, with its backward pass.
    seconds: float = field(default=0.0, compare=False)

    def named_values(self) -> Iterator[tuple[str, Any]]:
        for number, value in enumerate(self.outputs):
            yield output_name(number), value
        for number, value in enumerate(self.gradients):
            if value is not None:
                yield gradient_name(number), value
        for number, value in enumerate(self.inputs):
            if isinstance(value, torch.Tensor):
                yield input_name(number), value


def run(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    backward: bool,
    dtype: torch.dtype | None = None,
    mode: contextlib.AbstractContextManager[Any] | None = None,
    keeps_graph: bool = False,
    copy: Callable[[Sequence[Any]], list[Any]] = copy_values,
    keep: Callable[[str, Any], Any] | None = None,
) -> Outcome:
    """Call `function` on copies of the inputs, and restore the random generators.

    `mode` is active only during the call and the backward pass. `copy` replaces `copy_values`
    unless a `dtype` is given. `keep` gets each value with its name as soon as it is known, and
    returns what the outcome holds of it, so that all of them need not fit into memory.
    """
    copies = copy(inputs) if dtype is None else copy_values(inputs, dtype=dtype)
    kept = keep or (lambda name, value: value)
    with same_generators(), same_modes():
        started = time.perf_counter()
        with mode or contextlib.nullcontext():
            outputs = tuple(tree_leaves(function(*copies)))
        sharing = _sharing(outputs, copies)
        same = tuple(_first_same(outputs, number) for number in range(len(outputs)))
        ends = _Ends.of(outputs) if backward else None
        results = tuple(
            kept(output_name(number), _detached(value)) for number, value in enumerate(outputs)
        )
        del outputs
        gradients = () if ends is None else _gradients(ends, copies, mode, keeps_graph, keep)
        seconds = time.perf_counter() - started
    return Outcome(
        results,
        tuple(_detached(value) for value in gradients),
        tuple(kept(input_name(number), _detached(value)) for number, value in enumerate(copies)),
        sharing,
        same,
        seconds,
    )


@contextlib.contextmanager
def passing_over_errors() -> Iterator[None]:
    """Pass over errors inside the block, and release the tensors that their frames hold.

    Otherwise only the garbage collector would, which does not know how large they are.
    """
    try:
        yield
    except Exception as error:
        release_frames(error)


def release_frames(error: BaseException) -> None:
    """Release what the frames of an error hold."""
    traceback.clear_frames(error.__traceback__)


def output_name(number: int) -> str:
    return f"output {number}"


def gradient_name(number: int) -> str:
    return f"gradient of input {number}"


def input_name(number: int) -> str:
    return f"input {number} after the call"


def _first_same(outputs: Sequence[Any], number: int) -> int:
    if not isinstance(outputs[number], torch.Tensor):
        return number
    return next(n for n, other in enumerate(outputs) if other is outputs[number])


@contextlib.contextmanager
def same_generators(inside: Sequence[torch.Tensor] = ()) -> Iterator[None]:
    """Restore the random generators to their present states after the block.

    `inside` are their states at the start of the block, as returned by `generator_states`.
    """
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=devices):
        if inside:
            torch.set_rng_state(inside[0])
        if inside[1:]:
            torch.cuda.set_rng_state_all(list(inside[1:]))
        yield


def needs_backward(arguments: Sequence[Any]) -> bool:
    """Check whether a call with these arguments can be differentiated now."""
    return torch.is_grad_enabled() and any(
        isinstance(value, torch.Tensor) and value.requires_grad for value in arguments
    )


def generator_states() -> list[torch.Tensor]:
    """Return the states of the default generators, of the CPU and each GPU."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized():
        states += torch.cuda.get_rng_state_all()
    return states


def _autocast_nesting() -> int:
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())


@contextlib.contextmanager
def same_modes() -> Iterator[None]:
    """Restore gradient mode, autocast, and functorch transforms (vmap, grad) after the block.

    A graph may enter and leave them by nodes of its own. If it fails in between, or runs in part,
    everything that the program does later would be inside of them.
    """
    functorch = torch._C._functorch
    depth, surroundings = functorch.get_dynamic_layer_stack_depth(), Surroundings.now()
    has_cache, nesting = torch.is_autocast_cache_enabled(), _autocast_nesting()
    try:
        yield
    finally:
        left_inside = _autocast_nesting() - nesting
        for _ in range(left_inside):
            torch.autocast_decrement_nesting()
        # Where autocast itself calls this block, it holds the lock that clearing waits for.
        if left_inside and nesting == 0:
            torch.clear_autocast_cache()
        torch.set_autocast_cache_enabled(has_cache)
        if functorch.get_dynamic_layer_stack_depth() > depth:
            functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
        if Surroundings.now() != surroundings:
            torch.set_grad_enabled(surroundings.is_grad_enabled)
            for kind, dtype, is_on in surroundings.autocast:
                torch.set_autocast_dtype(kind, dtype)
                torch.set_autocast_enabled(kind, is_on)


@contextlib.contextmanager
def without_autocast_cache() -> Iterator[None]:
    """Have autocast keep no casts of parameters, as it does in compiled code.

    Dynamo guards on this: inside, a function that was compiled before is compiled again.
    """
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


@dataclass(frozen=True)
class _Ends:
    """The outputs that a backward pass starts from, without the others.

    A detached output may be released before: its part of the graph holds what the pass needs.
    """

    edges: tuple[Any, ...]
    cotangents: tuple[torch.Tensor, ...]

    @classmethod
    def of(cls, outputs: Sequence[Any]) -> _Ends:
        ends = [out for out in outputs if isinstance(out, torch.Tensor) and out.requires_grad]
        generator = torch.Generator().manual_seed(_SEED_OF_COTANGENTS)
        cotangents = tuple(_cotangent(end, generator) for end in ends)
        return cls(tuple(get_gradient_edge(end) for end in ends), cotangents)


def _gradients(
    ends: _Ends, inputs: Sequence[Any], mode: Any, keeps_graph: bool, keep: Any
) -> tuple[torch.Tensor | None, ...]:
    """Compute gradients for fixed random cotangents: one per input, None without gradient."""
    leaves = {
        number: value
        for number, value in enumerate(inputs)
        if isinstance(value, torch.Tensor) and value.requires_grad
    }
    if not ends.edges or not leaves:
        return ()
    with mode or contextlib.nullcontext():
        if keep is not None and all(leaf.is_leaf for leaf in leaves.values()):
            found = _gradients_one_by_one(ends, leaves, keeps_graph, keep)
        else:
            given = torch.autograd.grad(
                ends.edges,
                list(leaves.values()),
                ends.cotangents,
                retain_graph=keeps_graph,
                allow_unused=True,
            )
            found = dict(zip(leaves, given, strict=True))
            if keep is not None:
                found = {n: v if v is None else keep(gradient_name(n), v) for n, v in found.items()}
    return tuple(found.get(number) for number in range(len(inputs)))


def _gradients_one_by_one(
    ends: _Ends, leaves: Mapping[int, torch.Tensor], keeps_graph: bool, keep: Any
) -> dict[int, torch.Tensor | None]:
    """Compute gradients, each of which is released once it is known and `keep` has seen it."""
    found: dict[int, torch.Tensor | None] = {}

    def hook_of(number: int) -> Callable[[torch.Tensor], None]:
        def hook(leaf: torch.Tensor) -> None:
            gradient, leaf.grad = leaf.grad, None
            with _disable_current_modes():
                found[number] = None if gradient is None else keep(gradient_name(number), gradient)

        return hook

    handles = [
        leaf.register_post_accumulate_grad_hook(hook_of(number)) for number, leaf in leaves.items()
    ]
    try:
        torch.autograd.backward(
            ends.edges, ends.cotangents, retain_graph=keeps_graph, inputs=list(leaves.values())
        )
    finally:
        for handle in handles:
            handle.remove()
    return found


# Beyond so many elements, random numbers repeat, with a period that no shape has.
_MOST_COTANGENTS, _PERIOD = 1 << 24, 1_000_003


def _cotangent(end: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    count = end.numel()
    shape = end.shape if count <= _MOST_COTANGENTS else (_PERIOD,)
    # Rounded to bfloat16, so that every precision gets the same numbers.
    values = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")
    made = values.bfloat16().to(end.dtype).to(end.device)
    if count <= _MOST_COTANGENTS:
        return made
    return made.repeat(-(-count // _PERIOD))[:count].reshape(end.shape)


def _sharing(outputs: Sequence[Any], inputs: Sequence[Any]) -> tuple[tuple[str, ...], ...]:
    """Return the inputs and earlier outputs that each output shares memory with."""
    owners: dict[int, list[str]] = {}
    for number, value in enumerate(inputs):
        if is_plain(value) and value.untyped_storage().nbytes():
            owners.setdefault(value.untyped_storage()._cdata, []).append(f"input {number}")
    found: list[tuple[str, ...]] = []
    for number, value in enumerate(outputs):
        if not is_plain(value) or not value.untyped_storage().nbytes():
            found.append(())
            continue
        same = owners.setdefault(value.untyped_storage()._cdata, [])
        found.append(tuple(same))
        same.append(f"output {number}")
    return tuple(found)


# --- Whether a function draws random numbers ------------------------------------------------------
#
# torch tags operations that may draw random numbers. Attention is one of them, and without dropout
# it draws none, so the states of the generators are compared.


def draws_random_numbers(function: Callable[..., Any], inputs: Sequence[Any]) -> bool:
    """Check whether a call on these inputs draws random numbers, at any depth."""
    mode = _Draws()
    run(function, inputs, backward=False, mode=mode)
    return mode.any


def nodes_that_draw(module: GraphModule, inputs: Sequence[Any]) -> list[str]:
    """Return the nodes that draw random numbers; of several alike nodes, the first."""
    found: dict[str, str] = {}

    class Watching(Interpreter):
        def run_node(self, n: Node) -> Any:
            before = generator_states()
            value = super().run_node(n)
            if _have_moved(before):
                found.setdefault(self._form(n), n.name)
            return value

        def _form(self, n: Node) -> str:
            """Return target and arguments as text: tensors by shape, dtype and stride."""
            given = map_arg((n.args, n.kwargs), lambda source: self.env[source])
            forms = tree_map_only(torch.Tensor, lambda v: (v.shape, v.dtype, v.stride()), given)
            return f"{n.target} {forms}"

    with same_generators(), same_modes():
        Watching(module, garbage_collect_values=False).run(
            *copy_values(inputs), enable_io_processing=False
        )
    return list(found.values())


def _have_moved(before: Sequence[torch.Tensor]) -> bool:
    return any(not torch.equal(*pair) for pair in zip(before, generator_states(), strict=True))


def result_and_drawing(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, bool]:
    """Call an operation; return its result, and whether it drew random numbers."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return func(*args, **kwargs), False
    before = generator_states()
    result = func(*args, **kwargs)
    has_own = any(isinstance(value, torch.Generator) for value in (*args, *kwargs.values()))
    return result, has_own or _have_moved(before)


class _Draws(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.any = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, draws = result_and_drawing(func, args, kwargs or {})
        self.any |= draws
        return result


# --- What a call of a graph depends on besides its inputs -----------------------------------------


@dataclass(frozen=True)
class Surroundings:
    """The state of torch that a call depends on; its backward pass has a state of its own."""

    is_grad_enabled: bool
    is_inference: bool
    default_dtype: torch.dtype
    matmul_precision: str
    # Device, dtype, and whether autocast is enabled there.
    autocast: tuple[tuple[str, torch.dtype, bool], ...]

    @classmethod
    def now(cls) -> Surroundings:
        kinds = ("cpu", "cuda") if torch.cuda.is_initialized() else ("cpu",)
        return cls(
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.get_default_dtype(),
            matmul_precision(),
            tuple(
                (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
                for kind in kinds
            ),
        )

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            dtype, precision = torch.get_default_dtype(), matmul_precision()
            # Other threads have these two as well, so they are only touched where they differ.
            if dtype != self.default_dtype:
                stack.callback(torch.set_default_dtype, dtype)
                torch.set_default_dtype(self.default_dtype)
            if "" not in (precision, self.matmul_precision) and precision != self.matmul_precision:
                stack.callback(torch.set_float32_matmul_precision, precision)
                torch.set_float32_matmul_precision(self.matmul_precision)
            stack.enter_context(torch.inference_mode(self.is_inference))
            stack.enter_context(torch.set_grad_enabled(self.is_grad_enabled))
            for kind, dtype, is_on in self.autocast:
                stack.enter_context(torch.autocast(kind, dtype, enabled=is_on, cache_enabled=False))
            yield


def matmul_precision() -> str:
    """Return the float32 matmul precision; empty once a program has used torch's newer settings."""
    with contextlib.suppress(RuntimeError):
        return str(torch.get_float32_matmul_precision())
    return ""
