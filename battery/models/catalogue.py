"""The models: what each script does, and which ways of using torch.compile it covers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"
LIBRARIES = ("transformers", "timm", "diffusers", "torchvision")

# What a script does, seen by how it is written; together the scripts have to cover all of it.
FEATURES: dict[str, str] = {
    "inference": r"no_grad\(\)",
    "training": r"\.backward\(\)",
    "bf16 autocast": r"autocast\(.*bfloat16",
    "changing lengths": r"for (length|batch) in",
    "static cache": r"StaticCache",
    "channels-last": r"channels_last",
    "gradient checkpointing": r"checkpointing",
    "compiled sub-module": r"torch\.compile\(encoder\)|layer\.compile\(\)|torch\.compile\(model\.",
    "compiled optimizer step": r"compile\(optimizer\.step\)|@torch\.compile\ndef update",
    "fullgraph": r"fullgraph=True",
    "dynamic": r"dynamic=True",
    "dropout": r"[Dd]ropout",
}


@dataclass(frozen=True)
class Model:
    """A script, and what it says about itself."""

    name: str
    path: Path

    @property
    def text(self) -> str:
        return self.path.read_text()

    @property
    def title(self) -> str:
        """The first line of its docstring."""
        return (ast.get_docstring(ast.parse(self.text)) or self.name).partition("\n")[0]

    @property
    def note(self) -> str:
        """The rest of its docstring: what else is known of it."""
        rest = (ast.get_docstring(ast.parse(self.text)) or "").partition("\n")[2]
        return " ".join(rest.split())

    @property
    def library(self) -> str:
        """Where the model comes from; torch.nn where nothing else is imported."""
        found = re.findall(rf"^(?:from|import) ({'|'.join(LIBRARIES)})\b", self.text, re.MULTILINE)
        return found[0] if found else "torch.nn"

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(name for name, looks in FEATURES.items() if re.search(looks, self.text))


def read_models(folder: Path = SCRIPTS, only: Iterable[str] = ()) -> list[Model]:
    """All scripts of the folder by name, or those whose names contain one of `only`."""
    wanted = tuple(only)
    found = [Model(path.stem, path) for path in sorted(folder.glob("*.py"))]
    return [m for m in found if not wanted or any(word in m.name for word in wanted)]
