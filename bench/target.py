"""Code generated for a real GPU and for an absent one, for the same functions.

    python -m bench.target real OUT                # on a machine with the GPU
    python -m bench.target cuda:90 OUT             # anywhere
    python -m bench.target diff OUT_A OUT_B        # the same torch and Triton on both sides

Writes per function and kernel the Triton source and, per configuration, the PTX.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from inductoscope.inside import pretend
from inductoscope.torch_facts.gpu_targets import parse_target

REAL = "real"


def functions(torch: Any) -> list[Any]:
    """Name, function and inputs."""
    F = torch.nn.functional

    def tensor(*shape: int, dtype: Any = torch.float32) -> Any:
        return torch.randn(*shape, device="cuda", dtype=dtype, requires_grad=True)

    def whole(high: int, *shape: int) -> Any:
        return torch.randint(0, high, shape, device="cuda")

    def f(name: str, function: Any, *inputs: Any) -> Any:
        return name, function, inputs

    half = torch.bfloat16
    return [
        f(
            "pointwise",
            lambda x, y: torch.tanh(x * y + 1) * F.gelu(y),
            tensor(512, 1000),
            tensor(512, 1000),
        ),
        f(
            "softmax",
            lambda x: torch.softmax(x.float(), -1).to(half),
            tensor(128, 4000, dtype=half),
        ),
        f(
            "layer_norm",
            lambda x, w, b: F.layer_norm(x, (768,), w, b),
            tensor(64, 128, 768),
            tensor(768),
            tensor(768),
        ),
        f("large_sum", lambda x: (x.exp().sum(), x.amax(0)), tensor(4096, 8192)),
        f("variance", lambda x: x.var(-1) + x.mean(-1), tensor(1024, 3000)),
        f(
            "matmul_epilogue",
            lambda a, b, c: torch.relu(a @ b + c),
            tensor(512, 256, dtype=half),
            tensor(256, 512, dtype=half),
            tensor(512, dtype=half),
        ),
        f(
            "conv",
            lambda x, w: F.relu(F.conv2d(x, w, padding=1)).mean((2, 3)),
            tensor(8, 16, 32, 32),
            tensor(32, 16, 3, 3),
        ),
        f(
            "embedding",
            lambda i, w: F.embedding(i, w).sum(1),
            whole(1000, 32, 64),
            tensor(1000, 128),
        ),
        f("dropout", lambda x: F.dropout(x, 0.2) * 2, tensor(512, 512)),
        f(
            "scatter",
            lambda x, i: torch.zeros(100, 64, device="cuda").index_add(0, i, x),
            tensor(500, 64),
            whole(100, 500),
        ),
        f("cumsum", lambda x: torch.cumsum(x, -1) * 2, tensor(64, 2000)),
        f("transpose", lambda x: (x.transpose(0, 1) + 1).contiguous().sin(), tensor(1000, 700)),
        f(
            "attention",
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
            *[tensor(2, 4, 128, 64) for _ in range(3)],
        ),
        f("wide_value", lambda: torch.arange(0, 11, device="cuda") * 1000000000),
    ]


def keep_what_is_compiled(state: dict[str, Path]) -> None:
    """Write source and PTX of each kernel into the folder that `state` names."""
    from torch._inductor import config
    from torch._inductor.runtime import triton_heuristics as heuristics

    for name in ("use_static_cuda_launcher", "use_static_triton_launcher"):
        if hasattr(config, name):
            setattr(config, name, False)
    original = heuristics.CachingAutotuner._precompile_config

    def precompile(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        name = str(self.inductor_meta.get("kernel_name") or self.fn.__name__)
        folder = state["folder"] / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "source.py").write_text(Path(self.filename).read_text())
        made = re.sub(r"[^A-Za-z0-9]+", "_", str(args[0]))[:120]
        (folder / f"{made}.ptx").write_text(result.kernel.asm["ptx"])
        return result

    heuristics.CachingAutotuner._precompile_config = precompile


def generate(where: str, out: Path) -> None:
    """Compile every function, forward and backward, and keep what is generated."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as inductor, tempfile.TemporaryDirectory() as triton_cache:
        os.environ.update(TORCHINDUCTOR_CACHE_DIR=inductor, TRITON_CACHE_DIR=triton_cache)
        if where != REAL:
            pretend.pretend(parse_target(where))
        _generate(where, out)


def _generate(where: str, out: Path) -> None:
    import torch
    import triton
    from torch._subclasses.fake_tensor import FakeTensorMode

    state = {"folder": out}
    keep_what_is_compiled(state)
    mode: Any = FakeTensorMode(allow_non_fake_inputs=True)
    with contextlib.nullcontext() if where == REAL else mode:
        for name, function, inputs in functions(torch):
            state["folder"] = out / name
            state["folder"].mkdir(parents=True, exist_ok=True)
            torch._dynamo.reset()
            _run(torch.compile(function), inputs)
            print(name, sorted(path.name for path in state["folder"].iterdir()), flush=True)
    about = {
        "torch": torch.__version__,
        "triton": triton.__version__,
        "device": torch.cuda.get_device_name(),
    }
    (out / "about.json").write_text(json.dumps(about, indent=1))


def _run(compiled: Any, inputs: Any) -> None:
    made = compiled(*inputs)
    outputs = made if isinstance(made, tuple) else (made,)
    losses = [output.float().sum() for output in outputs if output.requires_grad]
    if losses:
        sum(losses[1:], losses[0]).backward()


def plain_source(text: str) -> list[str]:
    """Without comments, and without what tells one Triton from another."""
    text = re.sub(r"'backend_hash': '\w*'", "'backend_hash': ''", text)
    return (
        re.sub(r"(?m)^# (kernel|Topologically|Source|Original).*\n", "", text).strip().split("\n")
    )


def plain_ptx(text: str) -> list[str]:
    """Without comments, line numbers, debug sections and the path in assertions."""
    text = re.sub(r"(?m)^.*assertFile_0\[\d+\] = .*$", "assertFile", text)
    text = re.sub(r"(?s)\t\.file.*", "", text)
    text = re.sub(r"\s*//.*", "", text)
    text = re.sub(r"\t\.loc.*\n", "", text)
    return re.sub(r"(?m)^\$L__\w+:\n", "", text).split("\n")


PLAIN = {".py": plain_source, ".ptx": plain_ptx}


def compare(first: Path, second: Path) -> None:
    """Print every difference, and how many files are the same."""
    sides = (first, second)
    files = {p.relative_to(side) for side in sides for p in side.rglob("*") if p.suffix in PLAIN}
    same = dict.fromkeys(PLAIN, 0)
    for path in sorted(files):
        missing = [side for side in sides if not (side / path).exists()]
        if missing:
            print(f"not in {missing[0]}: {path}")
            continue
        left, right = (PLAIN[path.suffix]((side / path).read_text()) for side in sides)
        same[path.suffix] += left == right
        for line in list(difflib.unified_diff(left, right, str(path), lineterm="", n=0))[:14]:
            print(line[:200])
    for kind, count in same.items():
        print(f"{kind}: {count} of {sum(path.suffix == kind for path in files)} the same")


if __name__ == "__main__":
    if sys.argv[1] == "diff":
        compare(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        generate(sys.argv[1], Path(sys.argv[2]))
