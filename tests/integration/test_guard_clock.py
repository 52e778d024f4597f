"""Guards are timed when they are built, in a real program; nothing else changes."""

from __future__ import annotations

from pathlib import Path

from inductoscope.model.fold import load
from support.examples import inductoscope

PROGRAM = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(80))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

with torch.no_grad():
    torch.compile(Model(), backend="eager")(torch.ones(2, 4))
"""


def test_guards_of_many_modules_are_timed_and_named(tmp_path: Path) -> None:
    script, folder = tmp_path / "model.py", tmp_path / "recording"
    script.write_text(PROGRAM)
    assert inductoscope("run", "--output", folder, script).exit_code == 0
    (compile_,) = load(folder).compiles
    assert compile_.guard_microseconds is not None
    assert compile_.guard_microseconds > 5
    if compile_.costly_guards:  # Nobody asks which ones on a machine that is fast enough.
        assert compile_.costly_guards[0][0] == "L['self']"
