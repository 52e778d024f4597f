"""A planted fault, and the words that its truth may use: those of a verdict."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

FAULTY_KINDS = (
    "wrong-result",
    "nan",
    "crash",
    "compile-error",
    "hang",
    "not-a-bug",
    "not-inductor",
)
CLEAN = "clean"
# What can go wrong on a machine without a GPU; triton-compile and autotune need one.
STAGES = (
    "user",
    "dynamo",
    "aot",
    "decomposition",
    "pre-grad-pass",
    "joint-pass",
    "post-grad-pass",
    "lowering",
    "scheduler",
    "loop-body",
    "codegen",
    "cpp-compile",
    "wrapper",
    "runtime",
)


@dataclass(frozen=True)
class Truth:
    """The correct verdict."""

    kind: str
    stage: str
    stage_also_ok: tuple[str, ...] = ()
    # At least one occurs in a correct report, in any case of letters; none asked if empty.
    culprit_names: tuple[str, ...] = ()

    @property
    def stages(self) -> tuple[str, ...]:
        return (self.stage, *self.stage_also_ok)


@dataclass(frozen=True)
class Fault:
    """A program, and what was broken below it; a healthy one has no plant and is clean."""

    name: str
    script: str
    truth: Truth
    # The text of a sitecustomize.py, or nothing where torch is left as it is.
    plant: str = ""
    # Modules that the plant imports, by name of their file.
    beside_plant: Mapping[str, str] = field(default_factory=dict)

    @property
    def healthy(self) -> bool:
        return self.truth.kind == CLEAN

    @property
    def folder(self) -> str:
        """Paths are part of a verdict, so that the folder's name must not name the culprit."""
        return f"program-{zlib.crc32(self.name.encode()):08x}"


@dataclass(frozen=True)
class Recipe:
    """One cell of operation by stage by kind, before a seed puts a program around the operation."""

    operation: str
    stage: str
    kind: str
    # The torch module that is patched when it is imported, and the body of `patch(m)`.
    module: str = ""
    body: str = ""
    culprits: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    # Templates that the operation may be embedded in; all of them if empty.
    templates: tuple[str, ...] = ()
    # What else the fault changes: the program around the operation keeps clear of it.
    touches: tuple[str, ...] = ()
    # A whole program instead of an operation inside of a template.
    script: str = ""
    # Tells apart recipes of the same cell.
    detail: str = ""

    @property
    def name(self) -> str:
        words = (self.stage, self.operation, self.detail, self.kind)
        return "-".join(word for word in words if word).replace("_", "-")

    @property
    def truth(self) -> Truth:
        return Truth(self.kind, self.stage, self.also, self.culprits)
