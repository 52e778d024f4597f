"""Graphs that run without the CUDA graphs that were asked for.

What it finds: a graph that was compiled with CUDA graphs (`mode="reduce-overhead"`), and for which
torch then did without them, with the reason that torch logs.

Why it matters: without them every kernel is launched from Python, and the GPU waits for small ones.

Example: a tensor on the CPU in a compiled function, or an input that is changed in place.

What to do: The finding says what stands in the way. If it cannot be removed, compile that part on
its own, so that the rest keeps its CUDA graphs.
"""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Compile, Recording
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.frames import frames_in

_BEGINNINGS = ("skipping cudagraphs due to ", "disabling cudagraphs due to ")
# What torch says, and what to do about it; the first that fits.
_REMEDIES = (
    ("cpu device", "Create that tensor on the GPU (device=...), or move it there before the call."),
    ("mutat", "Write the result to a new tensor, or clone the input before the compiled function."),
    ("multiple devices", "Keep one compiled function on one GPU."),
    ("incompatible op", "Move that operation out of the compiled function."),
    ("dynamic shape", "Pad to a few sizes, or compile with dynamic=False."),
    ("cpp-wrapper", "Leave torch._inductor.config.cpp_wrapper as it is: False."),
    ("override_cudagraphs", "The program itself asks for that."),
    ("bisector", "torch's own bisector switched them off; its leftover state may be removed."),
    ("pending", "Call backward before the next forward, or mark the step: "
     "torch.compiler.cudagraph_mark_step_begin()."),
)  # fmt: skip


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per function and reason."""
    seen: set[tuple[str, str]] = set()
    for compile_ in recording.compiles:
        for text in compile_.cudagraph_skips:
            reason = short_reason(text)
            if reason and (compile_.place, reason) not in seen:
                seen.add((compile_.place, reason))
                yield _finding(compile_, text, reason)


def short_reason(text: str) -> str:
    """What torch says, without the stack and the words that are always the same."""
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    for beginning in _BEGINNINGS:
        first = first.removeprefix(beginning)
    return first.partition(". Found from")[0].rstrip(" :.")


def _finding(compile_: Compile, text: str, reason: str) -> Finding:
    frames = frames_in(text)
    remedies = (remedy for words, remedy in _REMEDIES if words in reason.lower())
    return Finding(
        rule="cudagraphs_off",
        title=f"{compile_.function or 'A graph'} runs without CUDA graphs: {reason}",
        is_problem=False,
        confidence="proven",
        evidence=(f"torch's log in compile {compile_.id}: {text.strip().splitlines()[0][:300]}",),
        advice=next(remedies, "Compile what stands in the way on its own."),
        stage=stages.RUNTIME,
        source=str(frames[-1]) if frames else compile_.place,
        compile=compile_.id,
        code=frames[-1].code if frames else "",
    )
