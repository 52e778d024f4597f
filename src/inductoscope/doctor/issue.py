"""A bug report for the PyTorch tracker."""

from __future__ import annotations

import platform
from pathlib import Path

from inductoscope.doctor.verdict import Verdict
from inductoscope.torch_facts import stages

_LONGEST_OUTPUT = 3000
_COMPONENT = {stages.DYNAMO: "dynamo", stages.AOT: "aot autograd"}


def issue_text(verdict: Verdict, output: str) -> str:
    """Title, description, reproducer, output and versions, in Markdown."""
    script = Path(verdict.repro.path).read_text("utf-8") if verdict.repro else ""
    title = script.partition('"""')[2].partition("\n")[0] or verdict.summary
    parts = [
        f"# [{_COMPONENT.get(verdict.stage, 'inductor')}] {title}",
        "## Describe the bug",
        verdict.summary,
        _facts(verdict),
        "## Reproducer",
        f"```python\n{script}```",
        "## What it prints",
        f"```\n{output[-_LONGEST_OUTPUT:].strip()}\n```",
    ]
    if verdict.workaround is not None and verdict.workaround.verified:
        parts += ["## Workaround", f"```python\n{verdict.workaround.code}\n```"]
    parts += ["## Versions", _versions(script)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts(verdict: Verdict) -> str:
    lines = [f"- {item['what']}".replace("\n", "\n  ") for item in verdict.evidence]
    return "\n".join(lines)


def _versions(script: str) -> str:
    line = next((line for line in script.splitlines() if line.startswith("torch ")), "")
    return line.partition(". Exits")[0] or f"Python {platform.python_version()}"
