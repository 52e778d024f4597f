"""Builds a package with two models, its inputs and the library of its custom operator.

python build.py FOLDER COMPILER

One of the models is also packaged alone, linked statically with libstdc++: copy.pt2.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import torch
import torch._inductor.config
from torch._inductor.package import package_aoti
from torch.export import Dim

# Links every library twice, at first with a copy of libstdc++ in it.
LINK_TWICE = """#!/bin/bash
words="$*"; target="${{words##*-o }}"
case " $* " in *" -c "*) ;; *" -shared "*)
  {compiler} -static-libstdc++ "$@" && cp "${{target%% *}}" {folder}/with_copy.so || exit
esac
exec {compiler} "$@"
"""


class Stepping(torch.nn.Module):
    """Calls the custom operator between two kernels; the batch may have 2 to 64 rows."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(16, 16)

    def forward(self, x, index):  # type: ignore[no-untyped-def]
        hidden = torch.relu(self.linear(x)) * 2
        return torch.ops.shop.step(hidden)[index], hidden.sum(0)


class Counting(torch.nn.Module):
    """Changes a buffer in every call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(50_000))

    def forward(self, x, index):  # type: ignore[no-untyped-def]
        self.count.add_(1)
        return x[index] + self.count.mean()


def main() -> None:
    folder, compiler = Path(sys.argv[1]), sys.argv[2]
    build_library(compiler, folder / "operators.so")
    torch.ops.load_library(folder / "operators.so")
    torch.manual_seed(0)
    inputs = torch.randn(6, 16), torch.randint(0, 6, (6,))
    rows = Dim("rows", min=2, max=64)
    files = {}
    link_twice(compiler, folder)
    for model in (Stepping(), Counting()):
        program = torch.export.export(model, inputs, dynamic_shapes=({0: rows}, {0: rows}))
        options = {"aot_inductor.package": True}
        files[type(model).__name__.lower()] = torch._inductor.aot_compile(
            program.module(), inputs, options=options
        )
    package_aoti(str(folder / "shop.pt2"), files)
    (library,) = (file for file in files["counting"] if file.endswith(".so"))
    shutil.copy(folder / "with_copy.so", library)
    package_aoti(str(folder / "copy.pt2"), {"counting": files["counting"]})
    torch.save(inputs, folder / "inputs.pt")


def link_twice(compiler: str, folder: Path) -> None:
    script = folder / "g++"  # With another name, torch would not take it for GCC.
    script.write_text(LINK_TWICE.format(compiler=compiler, folder=folder))
    script.chmod(0o755)
    torch._inductor.config.cpp.cxx = (str(script),)


def build_library(compiler: str, target: Path) -> None:
    source = Path(__file__).with_name("operators.cpp")
    root = Path(torch.__file__).parent
    include = [f"-I{root / 'include'}", f"-I{root / 'include/torch/csrc/api/include'}"]
    flags = ["-shared", "-fPIC", "-O1", "-std=c++20", "-w", f"-L{root / 'lib'}"]
    libraries = ["-ltorch", "-ltorch_cpu", "-lc10"]
    subprocess.run(
        [compiler, *flags, *include, str(source), "-o", str(target), *libraries], check=True
    )


if __name__ == "__main__":
    main()
