"""Runs in a child process: compiles one graph, calls it at a size, and compares with eager."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from inductoscope.inside.confinement import stay_inside
from inductoscope.inside.private_cache import trust_compiler

if TYPE_CHECKING:
    from inductoscope.inside.child import Channel


class WatchedCompiler:
    """Compiles one graph, and remembers whether that failed: a backward is compiled on its way."""

    def __init__(self, compiler: Any) -> None:
        self.compiler = compiler
        self.has_failed = False

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        """The compiled graph."""
        try:
            return self.compiler(*arguments, **more)
        except BaseException:
            self.has_failed = True
            raise


def try_sizes(channel: Channel, order: dict[str, Any]) -> None:
    """Run the trial that was ordered, and report what came of it."""
    channel.ready()
    from inductoscope.targets.work_list import trial_order_from

    wanted = trial_order_from(order)
    import torch  # noqa: F401  (it reads what it is installed with before it is confined)

    trust_compiler()
    names = ("TORCHINDUCTOR_CACHE_DIR", "TMPDIR")
    stay_inside([os.environ[name] for name in names], compiles_cpp=True)
    text, fails = run_trial(wanted, channel.say)
    channel.say("ran", text=text, fails=fails)


def run_trial(order: Any, say: Any = lambda event: None) -> tuple[str, bool]:
    """Call the graph at the size: what happens, in words, and whether that shows a fault."""
    import torch

    from inductoscope.inside.compare.guarded_memory import GuardedMemory
    from inductoscope.inside.rebuilding import Unbuildable
    from inductoscope.inside.recompiling import as_in_dynamo, rebuild

    try:
        mode, recorded = rebuild(order.recorded, {})
        every = [rebuild(sized, {})[1] for sized in order.sized]
    except Unbuildable as why:
        return f"the graph cannot be rebuilt from the recording: {why}", False
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    # Else the random numbers of eager and compiled differ. A backward is compiled as late as
    # when it runs, so the setting has to stay.
    config.fallback_random = True
    compiler = WatchedCompiler(compile_fx_inner)
    # Weights of an exported program are inputs here, and want no gradient.
    torch.set_grad_enabled(order.recorded.learns)
    memory = GuardedMemory(keeps_blocks=True)
    # The generated code takes its memory from where it is when it is loaded.
    with memory.active(), as_in_dynamo(order.recorded, mode, {}):
        compiled = compile_fx(recorded.module, recorded.inputs, inner_compile=compiler)
    text = "no size was called"
    for sized in every:
        inputs = [
            _made_up(value, name, order)
            for value, name in zip(sized.inputs, _names(sized), strict=True)
        ]
        say("calling")
        try:
            expected = _called(sized.module, [_copy(value) for value in inputs])
        except Exception as error:
            # An operator may well refuse a size that nothing guards against.
            text = f"at this size, eager fails as well: {type(error).__name__}"
            continue
        with memory.active():
            guarded = [
                memory.guarded(value, name) if isinstance(value, torch.Tensor) else value
                for value, name in zip(inputs, _names(sized), strict=True)
            ]
            try:
                found = _called(lambda *given: compiled(*given), guarded)
            except Exception as error:
                return what_was_raised(error, compiler)
        memory.note("of the graph")
        text, fails = _compared(expected, found)
        if memory.overrun:
            text, fails = f"at this size, a {memory.overrun}", True
        if fails:
            return text, True
    return text.replace("this size", "these sizes") if len(every) > 1 else text, False


def _names(graph: Any) -> list[str]:
    return [node.target for node in graph.module.graph.nodes if node.op == "placeholder"]


def what_was_raised(error: Exception, compiler: WatchedCompiler) -> tuple[str, bool]:
    """An error of the compiler says nothing about the bounds of a kernel."""
    text = f"{type(error).__name__}: {str(error)[:300]}"
    if compiler.has_failed:
        return f"the backward of the graph cannot be compiled here: {text}", False
    return f"the compiled graph raises {text}", True


def _compared(expected: list[Any], found: list[Any]) -> tuple[str, bool]:
    import torch

    if len(expected) != len(found):
        return "eager and compiled return different numbers of results", False
    for number, (right, wrong) in enumerate(zip(expected, found, strict=True)):
        try:
            torch.testing.assert_close(wrong, right, rtol=1e-2, atol=1e-2, equal_nan=True)
        except AssertionError as error:
            why = " ".join(str(error).split())[:200]
            return f"at this size, result {number} differs from eager: {why}", True
    return (
        "at this size, the results equal eager's and no buffer was overrun; torch was as it is "
        "installed here, without what the program changes in it",
        False,
    )


def _called(function: Any, inputs: list[Any]) -> list[Any]:
    """All tensors that a call returns, and the gradients where there are some."""
    import torch
    from torch.utils import _pytree

    torch.manual_seed(0)
    results = [r for r in _pytree.tree_leaves(function(*inputs)) if isinstance(r, torch.Tensor)]
    learning = [result for result in results if result.requires_grad]
    if learning:
        torch.stack([result.sum() for result in learning]).sum().backward()
    gradients = [value.grad for value in inputs if isinstance(value, torch.Tensor)]
    return [*(r.detach() for r in results), *(g for g in gradients if g is not None)]


def _made_up(example: Any, name: str, order: Any) -> Any:
    """An input like a fake one: small numbers, and indices that every table has."""
    import torch

    if not isinstance(example, torch.Tensor):
        return int(example)
    made = torch.empty_strided(
        [int(n) for n in example.shape], [int(n) for n in example.stride()], dtype=example.dtype
    )
    if made.is_floating_point() or made.is_complex():
        made.uniform_(0.5, 1.5) if made.is_floating_point() else made.fill_(1)
    else:
        made.fill_(order.values.get(name, next(iter(order.values.values()), 0)))
    return made.requires_grad_(example.requires_grad)


def _copy(value: Any) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)
