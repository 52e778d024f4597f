"""Ways round a failure, in the order of how much they cost, as text that a user can paste."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from inductoscope.doctor.search.axis import Axis


@dataclass(frozen=True)
class Workaround:
    """Statements to put before the first call of the compiled function."""

    code: str
    text: str
    loss: int


def workarounds(
    stage: str,
    operations: Sequence[str],
    pass_names: Sequence[str],
    cures: Sequence[tuple[Axis, str]],
) -> list[Workaround]:
    """What may help, the least loss first. `cures` are axes known to help, with a name each."""
    found = [
        *_for_passes(pass_names),
        *_for_operations(stage, operations),
        *_for_axes(cures),
        _LAST_RESORT,
    ]
    unique = {item.code: item for item in reversed(found)}
    return sorted(unique.values(), key=lambda item: item.loss)


_IMPORT = "import torch._inductor.config\n"

_LAST_RESORT = Workaround(
    'import functools\ntorch.compile = functools.partial(torch.compile, backend="aot_eager")',
    "compile without Inductor: torch.compile(…, backend='aot_eager')",
    9,
)


def _for_passes(names: Sequence[str]) -> Iterator[Workaround]:
    for name in names:
        if name and not name.startswith("("):
            yield Workaround(
                f"{_IMPORT}torch._inductor.config.disabled_passes = {name!r}",
                f"switch off the one pass: torch._inductor.config.disabled_passes = {name!r}",
                1,
            )


def _for_operations(stage: str, operations: Sequence[str]) -> Iterator[Workaround]:
    """Let eager's own kernel do the one operation."""
    for operation in operations[:3]:
        parts = operation.split(".")
        if len(parts) != 3 or parts[0] not in ("aten", "prims"):
            continue
        overload = f"torch.ops.{operation}"
        yield Workaround(
            "# A graph in the cache of torch was compiled without this: clear the cache once.\n"
            "import torch._inductor.decomposition, torch._inductor.lowering\n"
            f"torch._inductor.decomposition.decompositions.pop({overload}, None)\n"
            "torch._inductor.decomposition.fast_random_decomps.cache_clear()\n"
            f"torch._inductor.lowering.make_fallback({overload}, warn=False)",
            f"let eager's own kernel do {operation}",
            2 if stage in ("decomposition", "lowering", "codegen", "loop-body", "") else 3,
        )


def _for_axes(cures: Sequence[tuple[Axis, str]]) -> Iterator[Workaround]:
    for axis, name in cures:
        if axis.snippet is not None and name:
            code = axis.snippet(name)
            yield Workaround(_IMPORT + code, code, axis.loss)
        if axis.settings:
            lines = [
                f"torch._inductor.config.{key} = {value!r}" for key, value in axis.settings.items()
            ]
            yield Workaround(
                _IMPORT + "\n".join(lines),
                f"do without {axis.title}: {'; '.join(lines)}",
                axis.loss + 1,
            )
