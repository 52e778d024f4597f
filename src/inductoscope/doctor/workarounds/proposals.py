"""Workarounds that may help, as code that a user can paste; those that cost least come first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from inductoscope.doctor.search.axis import Axis
from inductoscope.vocabulary import stages


@dataclass(frozen=True)
class ProposedWorkaround:
    """Statements to put before the first call of the compiled function."""

    code: str
    text: str
    loss: int


def propose_workarounds(
    stage: str,
    operations: Sequence[str],
    pass_names: Sequence[str],
    suppressing: Sequence[tuple[Axis, str]],
) -> list[ProposedWorkaround]:
    """What may help, the least loss first.

    `suppressing` are the axes that suppress the failure, each with the application that matters.
    """
    found = [
        *_for_passes(pass_names),
        *_for_operations(stage, operations),
        *_for_axes(suppressing),
        _LAST_RESORT,
    ]
    unique = {item.code: item for item in reversed(found)}
    return sorted(unique.values(), key=lambda item: item.loss)


_IMPORT = "import torch._inductor.config\n"

_LAST_RESORT = ProposedWorkaround(
    'import functools\ntorch.compile = functools.partial(torch.compile, backend="aot_eager")',
    "compile without Inductor: torch.compile(…, backend='aot_eager')",
    9,
)


def _for_passes(names: Sequence[str]) -> Iterator[ProposedWorkaround]:
    for name in names:
        if name and not name.startswith("("):
            yield ProposedWorkaround(
                f"{_IMPORT}torch._inductor.config.disabled_passes = {name!r}",
                f"disable this pass: torch._inductor.config.disabled_passes = {name!r}",
                1,
            )


def _for_operations(stage: str, operations: Sequence[str]) -> Iterator[ProposedWorkaround]:
    """Let eager's kernel run one operation."""
    for operation in operations[:3]:
        parts = operation.split(".")
        if len(parts) != 3 or parts[0] not in ("aten", "prims"):
            continue
        overload = f"torch.ops.{operation}"
        yield ProposedWorkaround(
            "# Graphs in torch's cache were compiled without this: clear the cache once.\n"
            "import torch._inductor.decomposition, torch._inductor.lowering\n"
            f"torch._inductor.decomposition.decompositions.pop({overload}, None)\n"
            "torch._inductor.decomposition.fast_random_decomps.cache_clear()\n"
            f"torch._inductor.lowering.make_fallback({overload}, warn=False)",
            f"run {operation} with eager's kernel",
            2
            if stage
            in (stages.DECOMPOSITION, stages.LOWERING, stages.CODEGEN, stages.LOOP_BODY, "")
            else 3,
        )


def _for_axes(suppressing: Sequence[tuple[Axis, str]]) -> Iterator[ProposedWorkaround]:
    for axis, application in suppressing:
        if axis.snippet is not None and application:
            code = axis.snippet(application)
            yield ProposedWorkaround(_IMPORT + code, code, axis.loss)
        if axis.settings:
            lines = [
                f"torch._inductor.config.{key} = {value!r}" for key, value in axis.settings.items()
            ]
            yield ProposedWorkaround(
                _IMPORT + "\n".join(lines),
                f"do without {axis.title}: {'; '.join(lines)}",
                axis.loss + 1,
            )
