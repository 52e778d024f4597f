"""The part of a script that exports a function, packages it with AOTInductor, and calls that."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import cache

import torch

from inductoscope.doctor.compare.graphs import input_names
from inductoscope.doctor.repro.literal_text import literal
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.marked_sizes import marked_inputs
from inductoscope.packages import cpp_library

TORCH_NAMES = {"torch._inductor.cpp_builder": ("get_cpp_compiler",)}


def options_text(candidate: Candidate) -> str:
    """The options of the compiler as a dictionary."""
    items = (f"{name!r}: {literal(value)}" for name, value in candidate.options.items())
    return f"{{{', '.join(items)}}}"


def packaged_text(candidate: Candidate, parameters: Sequence[str]) -> str:
    """The function `packaged`, which does the same as `fn` through a package."""
    names = input_names(candidate.module)
    stored = [number for number, name in enumerate(names) if name in candidate.constants]
    kept = [*_KEPT, *(_TAKE_CPP_LIBRARY if _brings_cpp_library() else ())]
    parts = [*_program(stored, parameters), "", "", *kept, "", "", *_packaged(candidate, stored)]
    return "\n".join(parts)


# Compiled for the inputs of the first call, for as long as the script runs.
_KEPT = ("folder = tempfile.TemporaryDirectory()", "loaded = []")


# The package would otherwise crash while it is loaded, whatever is in it.
_TAKE_CPP_LIBRARY = (
    "# The C++ compiler puts a copy of libstdc++ into the package: let torch's own come first.",
    cpp_library.CODE,
)


def _brings_cpp_library() -> bool:
    """Whether packages that are built on this machine bring a copy of libstdc++."""
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        compiler = get_cpp_compiler()
    except RuntimeError:
        return False
    return _links_statically(compiler)


@cache  # The compiler is started for it, and many scripts are written.
def _links_statically(compiler: str) -> bool:
    return cpp_library.linked_by(shlex.split(compiler)).endswith(".a")


def _program(stored: Sequence[int], parameters: Sequence[str]) -> list[str]:
    """The function as a module, which is what torch.export takes."""
    given = [name for number, name in enumerate(parameters) if number not in stored]
    every = [f"self.{name}" if n in stored else name for n, name in enumerate(parameters)]
    lines = ["class Program(torch.nn.Module):"]
    if stored:
        kept = [parameters[number] for number in stored]
        lines += [f"    def __init__(self, {', '.join(kept)}):", "        super().__init__()"]
        lines += [f'        self.register_buffer("{name}", {name})' for name in kept]
        lines.append("")
    lines += [
        f"    def forward({', '.join(['self', *given])}):",
        f"        return fn({', '.join(every)})",
    ]
    return lines


def _packaged(candidate: Candidate, stored: Sequence[int]) -> list[str]:
    program, rest = "Program()", "arguments"
    lines = [
        "def packaged(*arguments):",
        '    """Exported, compiled with AOTInductor, packaged, loaded and called."""',
    ]
    if stored:
        lines += [
            f"    stored = [arguments[n] for n in {list(stored)}]",
            f"    rest = tuple(a for n, a in enumerate(arguments) if n not in {list(stored)})",
        ]
        program, rest = "Program(*stored)", "rest"
    shapes = _dynamic_shapes(candidate)
    lines += [
        "    if not loaded:",
        f"        exported = torch.export.export({program}, {rest}{shapes})",
        "        path = torch._inductor.aoti_compile_and_package(",
        f'            exported, package_path=f"{{folder.name}}/model.pt2"{_options(candidate)}',
        "        )",
        "        loaded.append(torch._inductor.aoti_load_package(path))",
        "    (model,) = loaded",
        f"    return model(*{rest})",
    ]
    return lines


def _options(candidate: Candidate) -> str:
    return f", inductor_configs={options_text(candidate)}" if candidate.options else ""


def _dynamic_shapes(candidate: Candidate) -> str:
    """The sizes that may vary, as torch.export takes them: for every input, by dimension."""
    names = [name for name in input_names(candidate.module) if name not in candidate.constants]
    values = dict(zip(input_names(candidate.module), candidate.inputs, strict=True))
    marks = [mark for _, mark in marked_inputs(candidate.module, candidate.marks)]
    if not any(mark.input in names for mark in marks):
        return ""
    texts = []
    for name in names:
        own = [mark for mark in marks if mark.input == name]
        inside = ", ".join(f"{mark.dimension}: {_dimension(mark.bounds)}" for mark in own)
        texts.append(f"{{{inside}}}" if isinstance(values[name], torch.Tensor) else "None")
    end = "," if len(texts) == 1 else ""
    return f", dynamic_shapes=({', '.join(texts)}{end})"


def _dimension(bounds: dict[str, int]) -> str:
    given = ", ".join(f"{name}={bound}" for name, bound in bounds.items())
    return f"torch.export.Dim.AUTO({given})" if given else "torch.export.Dim.AUTO"
