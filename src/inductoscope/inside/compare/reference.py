"""A float64 reference and perturbed rounding, which measure the effect of rounding alone.

The reference is the same function in float64. How much the function amplifies rounding is measured
by running it in its own precision with the result of each inexact operation changed by at most one
unit in the last place, and that of a long sum by as much as the order of its terms can change it.
Exact results (a clamp, a floor, a comparison of exact values) stay as they are: rounding explains
nothing there.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import warnings
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from inductoscope.inside.compare.values import (
    Outcome,
    generator_states,
    memory_of,
    result_and_drawing,
    run,
    same_generators,
)

SAMPLES = 3
# If one sample explains a difference, more are not needed, and each is slow.
FEW_SAMPLES_FIRST = (1, SAMPLES)

# Roundings, of which a value may have seen so many without a known order.
_SOME_STEPS = 8

_LOW = {torch.float32, torch.float16, torch.bfloat16}
_UNINITIALISED = ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided")

# Operations that add many terms, whose order a compiler is free to choose.
_SUMS = {
    "sum", "mean", "mm", "bmm", "addmm", "baddbmm", "addbmm", "dot", "mv", "cumsum", "var", "std",
    "var_mean", "convolution", "native_layer_norm", "native_group_norm", "native_batch_norm",
    "_native_batch_norm_legit", "_native_batch_norm_legit_no_training", "linalg_vector_norm",
    "norm", "convolution_backward", "native_layer_norm_backward", "index_add", "scatter_add",
    "index_put", "embedding_dense_backward", "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_attention_math",
    "_softmax", "_log_softmax", "logsumexp", "_fused_rms_norm", "avg_pool2d",
    "_adaptive_avg_pool2d", "prod", "cumprod", "addmv", "linear",
    "native_batch_norm_backward",
}  # fmt: skip


def with_perturbed_rounding(function: Callable[..., Any], *, by: float = 1.0) -> Callable[..., Any]:
    """Return the function in eager with every inexact result slightly perturbed.

    With `by=0`, it takes as long and the results are eager's.
    """

    def call(*arguments: Any) -> Any:
        with PerturbedRounding(seed=0, by=by):
            return function(*arguments)

    return call


def with_other_random_numbers(function: Callable[..., Any], number: int) -> Callable[..., Any]:
    """Return the function with random numbers of another seed, which `number` chooses.

    The seed follows from the states of the program's generators. Those from which the function
    draws advance by one draw, as those from which Inductor draws its seeds.
    """

    def call(*arguments: Any) -> Any:
        before = generator_states()
        with same_generators():
            seed = zlib.crc32(bytes(torch.cat(before).tolist())) + number
            torch.default_generator.manual_seed(seed)
            if before[1:]:
                torch.cuda.manual_seed_all(seed)
            seeded = generator_states()
            result = function(*arguments)
            states = zip(seeded, generator_states(), strict=False)  # A GPU may be new.
            drawn = [not torch.equal(*pair) for pair in states]
        for place, has_drawn in enumerate(drawn):
            if has_drawn:
                torch.rand(1, device=f"cuda:{place - 1}" if place else "cpu")
        return result

    return call


class Float64(TorchDispatchMode):
    """A dispatch mode in which operations compute in float64 instead of a lower precision."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        widen = dict.fromkeys(_LOW, torch.float64)
        widen[torch.complex64] = torch.complex128

        def change(dtype: torch.dtype) -> torch.dtype:
            return widen.get(dtype, dtype)

        if torch.Tag.nondeterministic_seeded in func.tags:
            # Another precision would draw other random numbers.
            return tree_map_only(torch.Tensor, _widened, func(*args, **_narrow(func, kwargs or {})))
        args, kwargs = tree_map_only(torch.dtype, change, (args, kwargs or {}))
        return tree_map_only(torch.Tensor, _widened, func(*args, **kwargs))


def _narrow(func: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Add dtype=float32 to random `*_like` operations, as most programs draw random numbers."""
    takes_type = any(argument.name == "dtype" for argument in func._schema.arguments)
    if takes_type and "like" in _name(func) and kwargs.get("dtype") is None:
        return {**kwargs, "dtype": torch.float32}
    return kwargs


def _widened(value: torch.Tensor) -> torch.Tensor:
    """Convert a low-precision tensor to float64, also constants created without a dtype."""
    return value.double() if value.dtype in _LOW else value


class LazyFloat64(Float64):
    """A dispatch mode like `Float64`, in which inputs of any precision are widened at each use.

    So no second set of inputs is kept. What the function writes to has to be in float64 already.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # In a backward pass, autograd converts each gradient to the type of its input.
        is_for_input = _name(func) == "_to_copy" and is_in_backward()
        if is_view_operation(func) or is_for_input:
            return func(*args, **(kwargs or {}))
        given = tree_map_only(torch.Tensor, _widened, (args, kwargs or {}))
        return super().__torch_dispatch__(func, types, *given)


def is_in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() != -1)


def is_view_operation(func: Any) -> bool:
    """Check whether an operation returns a view, and writes nothing."""
    found = [item.alias_info for item in (*func._schema.arguments, *func._schema.returns)]
    return any(found) and not any(item is not None and item.is_write for item in found)


@dataclass(frozen=True)
class _Result:
    """One result of an operation, with its index among several results."""

    func: Any
    args: Any
    value: Any
    number: int = 0


class PerturbedRounding(TorchDispatchMode):
    """A dispatch mode in which every inexact result is slightly perturbed."""

    def __init__(self, seed: int, by: float = 1.0) -> None:
        super().__init__()
        self._seed, self._by = seed, by
        # One generator for each device, as copying random numbers is slower than drawing them.
        self._generators: dict[torch.device, torch.Generator] = {}
        # Whether uninitialised memory was allocated.
        self.has_filled = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _name(func) in _UNINITIALISED:
            self.has_filled = True
            return self._filled(func(*args, **kwargs))
        if _aliases(func):
            return func(*args, **kwargs)
        # Computed first, as some operations mutate arguments; random results are not judged.
        exact = (
            None if torch.Tag.nondeterministic_seeded in func.tags else _exact(func, args, kwargs)
        )
        result, is_random = result_and_drawing(func, args, kwargs)
        if is_random:
            return result
        if isinstance(result, (tuple, list)):
            exacts = exact if isinstance(exact, (tuple, list)) else [None] * len(result)
            return type(result)(
                self._perturbed(_Result(func, args, value, number), wide)
                for number, (value, wide) in enumerate(zip(result, exacts, strict=False))
            )
        return self._perturbed(_Result(func, args, result), exact)

    def moved(self, value: Any) -> Any:
        """Return a value as operations in another order may have rounded it."""
        if not isinstance(value, torch.Tensor) or value.dtype not in _LOW:
            return value
        change = value.abs().float() * (_SOME_STEPS * torch.finfo(value.dtype).eps)
        return change.mul_(self._random(value)).add_(value).to(value.dtype)

    def _filled(self, value: Any) -> Any:
        """Fill uninitialised memory, so that results that depend on it are not judged.

        Every other run fills it with a number: eager's own memory may hold NaN by chance.
        """
        if isinstance(value, torch.Tensor) and value.dtype in _LOW | {torch.float64}:
            return value.fill_(1.0 if self._seed % 2 else torch.nan)
        if isinstance(value, torch.Tensor) and not value.dtype.is_complex:
            cpu = torch.device("cpu")
            return value.fill_(int(torch.randint(0, 2, (), generator=self._on(cpu), device=cpu)))
        return value

    def _perturbed(self, result: _Result, exact: Any) -> Any:
        value = result.value
        if not isinstance(value, torch.Tensor) or value.dtype not in _LOW:
            return value
        magnitude = self._magnitude(result)
        if isinstance(exact, torch.Tensor) and exact.shape == value.shape:
            magnitude.masked_fill_(exact == value, 0.0)
        # A change of a unit or two in the last place rounds in float32 as it would in float64.
        change = magnitude.float().nan_to_num_(0.0, 0.0, 0.0).mul_(self._random(value))
        changed = change.mul_(self._by).add_(value)
        return changed.to(value.dtype).as_strided(value.size(), value.stride())

    def _magnitude(self, result: _Result) -> torch.Tensor:
        """Return the possible rounding error of an operation's result."""
        magnitude: torch.Tensor = result.value.abs().float() * torch.finfo(result.value.dtype).eps
        share = _share_of_sum(result)
        return magnitude.maximum(_size_of_sum(result) * share) if share else magnitude

    def _random(self, like: torch.Tensor) -> torch.Tensor:
        """Return random numbers between -1 and 1."""
        generator = self._on(like.device)
        made = torch.empty(like.shape, dtype=torch.float32, device=generator.device)
        return made.uniform_(-1.0, 1.0, generator=generator).to(like.device)

    def _on(self, device: torch.device) -> torch.Generator:
        """Return the generator for a device: CUDA's own, or else the CPU's."""
        place = device if device.type == "cuda" else torch.device("cpu")
        if place not in self._generators:
            self._generators[place] = torch.Generator(place).manual_seed(self._seed)
        return self._generators[place]


class UsualRounding(PerturbedRounding):
    """A dispatch mode that perturbs results by the usual rounding error, not the possible one.

    Sums are assumed to accumulate in float32 at least, with terms rounded up or down at random.
    """

    def _magnitude(self, result: _Result) -> torch.Tensor:
        value = result.value
        magnitude: torch.Tensor = value.abs().float() * torch.finfo(value.dtype).eps
        if _name(result.func) not in _SUMS:
            return magnitude
        eps = torch.finfo(torch.float32).eps
        return _at_least_tf32(magnitude.maximum(_size_of_sum(result) * eps), result)


# --- the same for tensors so large that float64, and a second tensor of random numbers, may not fit

# Elements of all arguments beyond which an operation is perturbed in tiles, and of one tile.
_MANY, TILE = 1 << 18, 1 << 23
# Of a value, several parts are judged, each in another tile.
_LEAST_TILES, _SMALL_TILE = 4, 1 << 21
# Roundings of partial sums in the result's precision, of which errors cancel in part.
_PARTIAL_SUMS = 2
# Operations that add terms one by one to memory of the result's precision.
_SUMS_IN_OWN_PRECISION = {
    "index_add", "scatter_add", "index_put", "embedding_dense_backward", "cumsum", "cumprod",
    "prod",
}  # fmt: skip
# Operations whose results are exact, and may be large though their arguments are small.
_CONSTANTS = {"zeros", "ones", "full", "eye", "scalar_tensor"}
# Operations whose results are among their arguments.
_SELECTIONS = {
    "relu", "clamp", "clamp_min", "clamp_max", "where", "embedding", "index", "index_select",
    "gather", "cat", "stack", "max", "min", "maximum", "minimum", "amax", "amin", "masked_fill",
    "constant_pad_nd", "clone", "neg", "abs", "floor", "ceil", "round", "sign", "roll", "flip",
    "repeat", "tril", "triu", "sort", "topk", "max_pool2d_with_indices", "zeros_like",
    "ones_like", "full_like", "fill", "scatter", "slice_backward", "select_backward",
    "split_with_sizes_copy", "threshold_backward",
}  # fmt: skip


class RoundingInTiles(PerturbedRounding):
    """A dispatch mode that perturbs the results on large arguments in place, tile by tile.

    How large the terms of a sum are is computed in the sum's own precision.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = _name(func)
        if name in _CONSTANTS:
            return func(*args, **(kwargs or {}))
        if _aliases(func) or name in _UNINITIALISED or _elements_of(args) < _MANY:
            return super().__torch_dispatch__(func, types, args, kwargs)
        result, is_random = result_and_drawing(func, args, kwargs or {})
        if is_random or name in _SELECTIONS:
            return result
        given = {memory_of(leaf) for leaf in tree_leaves((args, kwargs)) if _is_tensor(leaf)}
        result = tree_map_only(torch.Tensor, lambda value: _own(value, given), result)
        for number, value in enumerate(result if isinstance(result, (tuple, list)) else [result]):
            if isinstance(value, torch.Tensor) and value.dtype in _LOW:
                self._perturb(_Result(func, args, value, number))
        return result

    def _perturb(self, result: _Result) -> None:
        value, factor = result.value, _share_of_sum(result)
        size = _size_in_own_precision(result) if factor else None
        eps = torch.finfo(value.dtype).eps
        for place in tiles(value):
            part = place.of(value)
            magnitude = part.abs().float() * eps
            if size is not None:
                magnitude = magnitude.maximum(place.of(size).abs().float() * factor)
            change = magnitude.nan_to_num_(0.0, 0.0, 0.0).mul_(self._random(part)).mul_(self._by)
            part.copy_(change.add_(part))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _own(value: torch.Tensor, given: Collection[Any]) -> torch.Tensor:
    """Return a result that can be changed in place: a copy, if it is an argument or overlaps."""
    steps = zip(value.shape, value.stride(), strict=True) if value.layout is torch.strided else ()
    is_spread = any(size > 1 and step == 0 for size, step in steps)
    return value.clone() if is_spread or memory_of(value) in given else value


def _elements_of(args: Any) -> int:
    return sum(leaf.numel() for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor))


def _share_of_sum(result: _Result) -> float:
    """Return the possible error of a sum as a part of the size of its terms; 0 if it has one term.

    A library computes sums of lower precisions in float32, and may round partial sums, which are as
    large as the result usually is. More than that would explain anything in a deep model.
    """
    name, value = _name(result.func), result.value
    terms = _terms(result.args, value) if name in _SUMS else 1.0
    eps, single = torch.finfo(value.dtype).eps, torch.finfo(torch.float32).eps
    share = 0.0
    if terms > 1 and (eps == single or name in _SUMS_IN_OWN_PRECISION):
        share = float(eps * terms ** (1 / 3))
    elif terms > 1:
        share = float(max(single * terms ** (1 / 3), _PARTIAL_SUMS * eps / terms**0.5))
    is_bias = _is_backward(result) and result.number == _GRAD_BIAS  # A sum without products.
    if not is_bias and may_use_tf32(name, value):
        # The factors are rounded either way, so that errors cancel in part.
        share = max(share, 2 * _TF32 / max(_terms_of_product(result), 1.0) ** 0.5)
    return share


_MATRIX_PRODUCTS = {"mm", "bmm", "addmm", "baddbmm"}
# Of the arguments of a convolution.
_IS_TRANSPOSED = 6
# The sum of the magnitudes of products of random numbers, as a part of the product of their norms.
_OF_RANDOM_NUMBERS = 2 / math.pi


def _size_of_product(args: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    """Return the size of sums of products from the norms of rows and columns alone.

    In float32, that is the most that it can be; in lower precisions, what it usually is.
    """
    *added, one, two = (value.detach() for value in args[:3] if isinstance(value, torch.Tensor))
    norms = torch.linalg.vector_norm(one, dim=-1, keepdim=True, dtype=torch.float32)
    others = torch.linalg.vector_norm(two, dim=-2, keepdim=True, dtype=torch.float32)
    part = 1.0 if dtype is torch.float32 else _OF_RANDOM_NUMBERS
    size = norms.mul_(part).to(dtype) * others.to(dtype)
    size = size.add_(added[0].abs()) if added else size
    return size.clamp_(max=torch.finfo(dtype).max)


def _size_of_convolution(args: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    """Return the size of a convolution's sums, likewise from the norms of filters and windows."""
    value, weight, bias, stride, padding, dilation, *_, groups = args
    ones = [1] * (weight.dim() - 2)
    by_group = value.detach().unflatten(1, (groups, -1))
    squares = torch.linalg.vector_norm(by_group, dim=2, dtype=torch.float32).square_()
    window = squares.new_ones(1, 1, *weight.shape[2:]).expand(groups, 1, *weight.shape[2:])
    sums = torch.convolution(
        squares, window, None, stride, padding, dilation, False, [0] * len(ones), groups
    )
    norms = sums.clamp_(min=0.0).sqrt_().unsqueeze(2)
    filters = torch.linalg.vector_norm(weight.detach().flatten(1), dim=1, dtype=torch.float32)
    part = 1.0 if dtype is torch.float32 else _OF_RANDOM_NUMBERS
    filters = filters.mul_(part).view(groups, -1, *ones)
    size = (norms.to(dtype) * filters.to(dtype)).flatten(1, 2)
    if bias is not None:
        size = size.add_(bias.detach().abs().view(-1, *ones))
    return size.clamp_(max=torch.finfo(dtype).max)


def _size_in_own_precision(result: _Result) -> torch.Tensor | None:
    try:
        if _name(result.func) in _MATRIX_PRODUCTS:
            return _size_of_product(result.args, result.value.dtype)
        if _name(result.func) == "convolution" and not result.args[_IS_TRANSPOSED]:
            return _size_of_convolution(result.args, result.value.dtype)
        sizes = tree_map_only(
            torch.Tensor,
            lambda value: value.detach().abs() if value.is_floating_point() else value,
            result.args,
        )
        found = result.func(*sizes)
        found = found[result.number] if isinstance(found, (tuple, list)) else found
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception:
        return None
    is_alike = isinstance(found, torch.Tensor) and found.shape == result.value.shape
    return found if is_alike else None


@dataclass(frozen=True)
class Tile:
    """A part of a tensor, along one of its dimensions; the whole one if it has none."""

    dim: int
    start: int
    length: int

    def of(self, value: torch.Tensor) -> torch.Tensor:
        return value.narrow(self.dim, self.start, self.length) if value.dim() else value


def tiles(value: torch.Tensor) -> Iterator[Tile]:
    """Yield the tiles of a tensor, along a dimension that is long enough, or the longest."""
    if not value.dim():
        yield Tile(0, 0, 1)
        return
    count = max(-(-value.numel() // TILE), min(_LEAST_TILES, value.numel() // _SMALL_TILE))
    long = [dim for dim, size in enumerate(value.shape) if size >= count]
    dim = long[0] if long else max(range(value.dim()), key=value.shape.__getitem__)
    length = value.shape[dim]
    step = max(1, length // max(count, 1))
    for start in range(0, length, step):
        yield Tile(dim, start, min(step, length - start))


def _exact(func: Any, args: Any, kwargs: Any) -> Any:
    """Return the result on the same arguments in float64; None if that fails."""
    try:
        with Float64():
            wide = tree_map_only(
                torch.Tensor, lambda value: _widened(value.detach()), (args, kwargs)
            )
            return func(*wide[0], **wide[1])
    except Exception:
        return None


# TensorFloat-32 keeps ten bits of each factor: on an NVIDIA GPU a library may use it for one memory
# layout and not for another.
_TF32 = 2.0**-11
_CONVOLUTIONS = {"convolution", "convolution_backward", "cudnn_convolution"}
# Result indices of convolution_backward, after the gradient of the input.
_GRAD_WEIGHT, _GRAD_BIAS = 1, 2
_PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv", "linear", "dot"}


def _at_least_tf32(magnitude: torch.Tensor, result: _Result) -> torch.Tensor:
    is_bias = _is_backward(result) and result.number == _GRAD_BIAS  # A sum without products.
    if is_bias or not may_use_tf32(_name(result.func), result.value):
        return magnitude
    # The factors are rounded either way, so that errors cancel in part.
    error = 2 * _TF32 / max(_terms_of_product(result), 1.0) ** 0.5
    return magnitude.maximum(_size_of_sum(result) * error)


def may_use_tf32(operation: str, value: torch.Tensor) -> bool:
    """Check whether torch allows TensorFloat-32 for an operation with this result."""
    if value.device.type != "cuda" or value.dtype is not torch.float32:
        return False
    try:
        if operation in _CONVOLUTIONS:
            return bool(torch.backends.cudnn.allow_tf32)
        return operation in _PRODUCTS and torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:
        return True  # Torch refuses to say once a program has used the newer settings.


def _terms_of_product(result: _Result) -> float:
    """Return the number of products that are summed for one element of the result."""
    args, name = result.args, _name(result.func)
    if name not in _CONVOLUTIONS:
        return _terms(args, result.value)
    if not _is_backward(result):
        transposed, groups = (False, args[5]) if name == "cudnn_convolution" else (args[6], args[8])
        return _terms_at_one_place(args[1], groups, spreads=transposed)
    gradient, inputs, weight = args[:3]
    transposed, groups = args[7], args[9]
    if result.number == _GRAD_WEIGHT:  # One term per position of the smaller image and sample.
        image = inputs if transposed else gradient
        return float(image.numel() / image.shape[1])
    return _terms_at_one_place(weight, groups, spreads=not transposed)


def _terms_at_one_place(weight: torch.Tensor, groups: int, *, spreads: bool) -> float:
    """Count a convolution's terms per element, which it gathers or scatters."""
    gathered = weight.shape[0] / groups if spreads else weight.shape[1]
    return float(gathered * weight.shape[2:].numel())


def _is_backward(result: _Result) -> bool:
    return _name(result.func) == "convolution_backward"


def _terms(args: Any, result: torch.Tensor) -> float:
    """Return an upper bound on the number of terms in one element of the result."""
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    if not tensors or not result.numel():
        return 1.0
    widths = [tensor.shape[-1] if tensor.dim() else 1 for tensor in tensors]
    if len(tensors) > 1 and tensors[0].dim() > 1:
        return float(max(widths))
    return float(max(tensors[0].numel() / result.numel(), widths[0] or 1))


def _size_of_sum(result: _Result) -> torch.Tensor:
    """Return the sum of the terms' magnitudes: terms may cancel, their errors do not."""
    value = result.value
    try:
        sizes = tree_map_only(
            torch.Tensor,
            lambda value: value.detach().double().abs() if value.is_floating_point() else value,
            result.args,
        )
        with Float64():
            found = result.func(*sizes)
        found = found[result.number] if isinstance(found, (tuple, list)) else found
        if isinstance(found, torch.Tensor) and found.shape == value.shape:
            return found.double().abs().nan_to_num(0.0, 0.0, 0.0)
    except Exception:
        pass
    return value.double().abs().nan_to_num(0.0, 0.0, 0.0)


def _aliases(func: Any) -> bool:
    """Check whether an operation returns, or writes to, existing memory."""
    return any(item.alias_info is not None for item in func._schema.returns)


def _name(func: Any) -> str:
    return str(func._schema.name).rpartition("::")[2]


# --------------------------------------------------------------------------------------------------
# A function, and what eager makes of its inputs: as it is, in float64, with other roundings.

_MORE_SAMPLES = 20


@contextlib.contextmanager
def unseen_warnings() -> Iterator[None]:
    """Warnings of calls that the program does not make are not the program's."""
    show = warnings.showwarning
    warnings.showwarning = lambda *given, **more: None
    try:
        yield
    finally:
        warnings.showwarning = show


@dataclass(frozen=True)
class Case:
    """A function and the inputs on which it is judged."""

    function: Callable[..., Any]
    inputs: Sequence[Any]
    backward: bool = False

    def _run(self, mode: Any = None, dtype: torch.dtype | None = None) -> Outcome:
        with unseen_warnings():
            return run(self.function, self.inputs, backward=self.backward, dtype=dtype, mode=mode)

    @cached_property
    def _in_eager(self) -> Outcome | Exception:
        try:
            return self._run()
        except Exception as error:
            return error

    @property
    def eager(self) -> Outcome:
        """The result of the function without a compiler; raises what the function raises."""
        if isinstance(self._in_eager, Exception):
            raise self._in_eager
        return self._in_eager

    @property
    def eager_error(self) -> Exception | None:
        """The exception that the function raises in eager; None if it returns."""
        return self._in_eager if isinstance(self._in_eager, Exception) else None

    @cached_property
    def again(self) -> Outcome:
        """A second run in eager; a difference between both runs is not the compiler's."""
        return self._run()

    @cached_property
    def float64(self) -> Outcome | None:
        """The reference; None if an operation does not support float64."""
        return self._in_float64()

    @cached_property
    def float64_again(self) -> Outcome | None:
        return self._in_float64()

    def _in_float64(self) -> Outcome | None:
        try:
            return self._run(Float64(), torch.float64)
        except Exception:
            return None

    @cached_property
    def samples(self) -> list[tuple[PerturbedRounding, Outcome | None]]:
        """The runs with perturbed rounding so far, by seed; the last is None if it failed."""
        return []

    def perturbed(self, count: int = SAMPLES) -> list[Outcome]:
        """Return runs in eager with perturbed rounding; each is computed once."""
        return list(itertools.islice(self._perturbed(), count))

    def perturbed_further(self) -> Iterator[Outcome]:
        """Yield more runs with perturbed rounding, each computed on demand."""
        return itertools.islice(self._perturbed(), SAMPLES, SAMPLES + _MORE_SAMPLES)

    def _perturbed(self) -> Iterator[Outcome]:
        for seed in itertools.count():
            if seed == len(self.samples):
                mode = PerturbedRounding(seed)
                try:
                    self.samples.append((mode, self._run(mode)))
                except Exception:
                    self.samples.append((mode, None))
            outcome = self.samples[seed][1]
            if outcome is None:
                return
            yield outcome

    @property
    def reads_unwritten_memory(self) -> bool:
        """Whether the function allocates memory without initialising it."""
        return bool(self.perturbed(1)) and self.samples[0][0].has_filled
