"""Runs in a child process: compiles a graph, calls it at other sizes, compares with eager."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from inductoscope.inside.confinement import stay_inside
from inductoscope.inside.private_cache import trust_compiler

if TYPE_CHECKING:
    from inductoscope.inside.child import Channel


class WatchedCompiler:
    """A compiler of one graph that records failures, also of the lazily compiled backward."""

    def __init__(self, compiler: Any) -> None:
        self.compiler = compiler
        self.has_failed = False

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        try:
            return self.compiler(*arguments, **more)
        except BaseException:
            self.has_failed = True
            raise


def try_sizes(channel: Channel, order: dict[str, Any]) -> None:
    """Run the trial that was ordered, and report its result."""
    channel.ready()
    from inductoscope.recording.codec import decode
    from inductoscope.targets.work_list import TrialOrder

    wanted = decode(TrialOrder, order)
    import torch  # noqa: F401  (it reads what it is installed with before it is confined)

    trust_compiler()
    names = ("TORCHINDUCTOR_CACHE_DIR", "TMPDIR")
    stay_inside([os.environ[name] for name in names], compiles_cpp=True)
    text, fails = run_trial(wanted, channel.say)
    channel.say("ran", text=text, fails=fails)


def run_trial(order: Any, say: Any = lambda event: None) -> tuple[str, bool]:
    """Call the graph at the ordered sizes; return a sentence, and whether it shows a fault."""
    import torch

    from inductoscope.inside.compare.bug_or_rounding import judge
    from inductoscope.inside.compare.graphs import as_function
    from inductoscope.inside.compare.guarded_memory import GuardedMemory
    from inductoscope.inside.compare.reference import Case
    from inductoscope.inside.compare.values import needs_backward, run
    from inductoscope.inside.rebuilding import Unbuildable
    from inductoscope.inside.recompiling import as_in_dynamo, rebuild

    try:
        mode, recorded = rebuild(order.recorded, {})
        every = [rebuild(sized, {})[1] for sized in order.sized]
    except Unbuildable as why:
        return f"the graph cannot be rebuilt from the recording: {why}", False
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    # Otherwise the random numbers of eager and compiled differ. The setting has to stay, because
    # a backward is compiled only when it runs.
    config.fallback_random = True
    compiler = WatchedCompiler(compile_fx_inner)
    # Weights of an exported program are inputs here, and want no gradient.
    torch.set_grad_enabled(order.recorded.learns)
    memory = GuardedMemory(keeps_blocks=True)
    # The generated code binds its allocator when it is loaded.
    with memory.active(), as_in_dynamo(order.recorded, mode, {}):
        compiled = compile_fx(recorded.module, recorded.inputs, inner_compile=compiler)
    text = "no size was called"
    for sized in every:
        names = [node.target for node in sized.module.graph.find_nodes(op="placeholder")]
        inputs = [_made_up(*each, order) for each in zip(sized.inputs, names, strict=True)]
        case = Case(as_function(sized.module), inputs, needs_backward(inputs))
        say("calling")
        if case.eager_error is not None:
            # An operator may reject a size that no guard excludes.
            text = f"at this size, eager fails as well: {type(case.eager_error).__name__}"
            continue
        with memory.active():
            try:
                outcome = run(compiled, inputs, backward=case.backward, copy=memory.copies)
            except Exception as error:
                return what_was_raised(error, compiler)
        memory.note("of the graph")
        if memory.overrun:
            return f"at this size, a {memory.overrun}", True
        wrong = judge(case, outcome).wrong
        if wrong:
            return f"at this size, it differs from eager: {wrong[0].text}", True
        text = _RIGHT
    return text.replace("this size", "these sizes") if len(every) > 1 else text, False


_RIGHT = (
    "at this size, the results equal eager's and no buffer was overrun; torch was as it is "
    "installed here, without what the program changes in it"
)


def what_was_raised(error: Exception, compiler: WatchedCompiler) -> tuple[str, bool]:
    """Describe an exception; a compile error says nothing about a kernel's bounds."""
    text = f"{type(error).__name__}: {str(error)[:300]}"
    if compiler.has_failed:
        return f"the backward of the graph cannot be compiled here: {text}", False
    return f"the compiled graph raises {text}", True


def _made_up(example: Any, name: str, order: Any) -> Any:
    """Create an input like a fake tensor: small numbers, and indices valid in every table."""
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
