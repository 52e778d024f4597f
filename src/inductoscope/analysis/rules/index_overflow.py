"""A kernel whose indices do not fit into their type.

What it finds: a generated kernel that computes indices with 32 bits, and sizes that the guards
admit at which an index is larger than 2,147,483,647. The sizes are computed with whole numbers. For
a package it also notes where torch only assumed that 32 bits suffice, because the export set no
upper limit for a size.

Why it matters: the index wraps around. The kernel then reads and writes other memory: wrong
numbers or an illegal memory access, only with large tensors.

Example: a backend that always chooses 32-bit indices and adds no guard.

What to do: `inductoscope bounds RECORDING` lists every such kernel. For a package, export with
`torch.export.Dim(..., max=...)`: torch then chooses by the limit. If you changed how torch chooses,
correct that; else report it.
"""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.analysis.bounds.index_range import Limited, Overflows
from inductoscope.analysis.bounds.kernels import judge_index_types
from inductoscope.analysis.bounds.sentences import index_sentence
from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Recording
from inductoscope.torch_facts import stages

# A summary must not keep anybody waiting.
_SECONDS = 5.0
_ADVICE = "'inductoscope bounds RECORDING' lists every kernel with indices of 32 bits."
_ADVICE_FOR_EXPORT = "Set a limit: torch.export.Dim(..., max=...). torch then chooses by it."


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per kernel that overflows; one note per package that relies on small sizes."""
    noted = set()
    for judged, found in judge_index_types(recording, seconds=_SECONDS):
        is_problem = isinstance(found.verdict, Overflows)
        key = (judged.compile.id, found.kernel if is_problem else "")
        if not isinstance(found.verdict, (Overflows, Limited)) or key in noted:
            continue
        noted.add(key)
        yield Finding(
            rule="index_overflow",
            title=f"{found.kernel} has indices that do not fit into {found.bits} bits"
            if is_problem
            else f"{judged.compile.function or 'a package'} is for tensors of less than 2**31 "
            "elements, and does not check that",
            is_problem=is_problem,
            confidence="proven",
            evidence=(index_sentence(judged, found),),
            advice=_ADVICE if is_problem else _ADVICE_FOR_EXPORT,
            stage=stages.CODEGEN,
            compile=judged.compile.id,
        )
