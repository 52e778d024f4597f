"""The hooks into torch that tell what a test compiles. They need no torch to be defined."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from inductoscope.capture.hooks.inductor import phase_of_wrapper
from inductoscope.capture.observe import Arguments, Keywords, current_compile_id, watch
from inductoscope.capture.scope import BROKEN, SCOPE
from inductoscope.doctor.inside.wrapper_hooks import KEEPING_WRAPPERS
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.torch_names import Hook, TorchName, Wrap

if TYPE_CHECKING:
    from inductoscope.pytest_plugin.graph_watch import GraphWatch

# Makes the watch, which needs torch, when the first graph is there.
GetWatch = Callable[[], "GraphWatch"]


def suite_hooks(get_watch: GetWatch) -> tuple[Hook, ...]:
    """The hooks around Dynamo's backend, and where backward graphs become ready."""

    def keeping_calls(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call_user_compiler(output: Any, module: Any, examples: Any) -> Any:
            __tracebackhide__ = True
            found: Any = BROKEN if SCOPE.is_redirected else SCOPE.guard(get_watch)
            if found is BROKEN:
                return original(output, module, examples)
            return found.compile(original, output, module, examples)

        return call_user_compiler

    def note_ready(args: Arguments, kwargs: Keywords) -> None:
        source = getattr(args[0], "source_code", None) or ""
        options = args[3] if len(args) > 3 else kwargs.get("graph_kwargs") or {}
        if phase_of_wrapper(source) == "backward" or options.get("is_backward"):
            get_watch().note_backward(current_compile_id())

    backend = TorchName("torch._dynamo.output_graph", "OutputGraph.call_user_compiler")
    ready = TorchName("torch._inductor.output_code", "CompiledFxGraph.post_compile")
    return (
        KEEPING_WRAPPERS,
        Hook(
            stage=stages.DYNAMO,
            records="the first calls of each graph in a test, to be compared with eager later",
            wraps=(Wrap(backend, keeping_calls),),
        ),
        Hook(
            stage=stages.INDUCTOR,
            records="which graphs have a compiled backward graph",
            wraps=(Wrap(ready, watch(before=note_ready)),),
        ),
    )
