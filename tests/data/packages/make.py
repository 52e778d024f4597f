"""Builds the packages in this folder: a real one, made small, and what torch.export.save writes.

    python tests/data/packages/make.py

The library is stripped, everything is compressed, and the folders of the machine are replaced.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import torch
from torch._inductor.runtime.cache_dir_utils import cache_dir, default_cache_dir
from torch.export import Dim

HERE = Path(__file__).resolve().parent


@torch.library.custom_op("shop::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Model(torch.nn.Module):
    """Has what a package can have: sizes that vary, a buffer that changes, a custom operator."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(16, 8)
        self.register_buffer("table", torch.randn(10, 8))
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x, index, *, scale):  # type: ignore[no-untyped-def]
        self.calls.add_(1)
        hidden = torch.relu(self.linear(x)) * scale
        picked = torch.softmax(hidden, -1) + self.table[index]
        return {"picked": torch.ops.shop.twice(picked) + self.calls, "sum": hidden.sum(0)}


def main() -> None:
    torch.manual_seed(0)
    inputs = (torch.randn(6, 16), torch.randint(0, 10, (6,))), {"scale": torch.ones(8)}
    batch = Dim("batch", min=2, max=64)
    shapes = {"x": {0: batch}, "index": {0: batch}, "scale": None}
    program = torch.export.export(Model(), *inputs, dynamic_shapes=shapes)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        torch.export.save(program, "exported.pt2")
        torch._inductor.aoti_compile_and_package(program, package_path="small.pt2")
        for name in ("exported.pt2", "small.pt2"):
            make_small(Path(folder) / name, HERE / name)


def make_small(source: Path, target: Path) -> None:
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for item in old.infolist():
            data = old.read(item)
            if item.filename.endswith(".so"):
                data = stripped(data)
            new.writestr(
                zipfile.ZipInfo(item.filename), without_folders(data), zipfile.ZIP_DEFLATED
            )


def without_folders(data: bytes) -> bytes:
    """Replaced by as many characters, so that a library stays as it is."""
    torch_folder = Path(torch.__file__).parent.parent
    for folder in (
        cache_dir(),
        default_cache_dir(),
        torch_folder,
        sys.base_prefix,
        HERE.parents[2],
    ):
        data = data.replace(str(folder).encode(), b"/" * len(str(folder)))
    return data


def stripped(data: bytes) -> bytes:
    library = Path("library.so")
    library.write_bytes(data)
    subprocess.run(["strip", str(library)], check=True)
    return library.read_bytes()


if __name__ == "__main__":
    main()
