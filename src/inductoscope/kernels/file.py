"""A generated kernel file, read from its syntax tree: it is never imported or executed.

Two kinds of files are read: one kernel in its own file, as Inductor keeps it in its cache, and a
whole wrapper (`output_code`), which holds its kernels as strings in `async_compile.triton`.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inductoscope.errors import UnreadableRecording, UsageError
from inductoscope.kernels.definitions import Body, Definitions, KernelDefinition, read_definitions
from inductoscope.kernels.literals import Dotted, Made, is_plain
from inductoscope.kernels.target import Target, target_of_device

Scalar = int | float | bool | str

_LARGEST = 32 * 2**20

# What Inductor leaves in triton_meta for Triton's backends, and in inductor_meta about them.
_META_OPTIONS = (
    "waves_per_eu", "matrix_instr_nonkdim", "kpack", "launch_cooperative_grid", "launch_pdl",
    "enable_fp_fusion", "disable_ftz", "generate_native_code", "native_matmul", "num_ctas",
    "maxnreg",
)  # fmt: skip
_KEYWORD_OPTIONS = ("num_consumer_groups", "num_buffers_warp_spec")
_TMA = re.compile(r"tensor_descriptor|tensordesc|experimental_.*descriptor|nvTmaDesc")
_WARP_SPECIALISATION = re.compile(r"warp_specialize\s*=\s*True")
_LOGGED = re.compile(r"^.*?\[__output_code\] ?", re.MULTILINE)


@dataclass(frozen=True)
class KernelFile:
    """One kernel: its function, how it is called, and how it is to be compiled."""

    path: str
    name: str
    heuristic: str  # template, pointwise, reduction, persistent_reduction, ...
    keywords: Mapping[str, Any]  # of the heuristic, as they stand in the file
    definitions: tuple[KernelDefinition, ...]
    kernel: KernelDefinition
    body: Body
    problems: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """The kernel function."""
        return self.kernel.source

    @property
    def device_functions(self) -> tuple[KernelDefinition, ...]:
        """Further functions under `@triton.jit` that the file brings along."""
        return tuple(d for d in self.definitions if d.kind == "function")

    @property
    def triton_meta(self) -> Mapping[str, Any]:
        return _mapping(self.keywords.get("triton_meta"))

    @property
    def inductor_meta(self) -> Mapping[str, Any]:
        return _mapping(self.keywords.get("inductor_meta"))

    @property
    def signature(self) -> Mapping[str, str]:
        """Argument to Triton type, such as `*bf16`, `i32` or `constexpr`."""
        found = _mapping(self.triton_meta.get("signature"))
        return {str(name): kind for name, kind in found.items() if isinstance(kind, str)}

    @property
    def constants(self) -> Mapping[str, Any]:
        """Arguments whose value the file fixes."""
        found = _mapping(self.triton_meta.get("constants"))
        return {str(name): value for name, value in found.items() if is_plain(value)}

    @property
    def attributes(self) -> Mapping[Any, Any]:
        """What is known of arguments, such as that 16 divides them."""
        configs = self.triton_meta.get("configs")
        first = configs[0] if isinstance(configs, list) and configs else {}
        return _mapping(first) if is_plain(first) else {}

    @property
    def size_hints(self) -> Mapping[str, Any]:
        return _mapping(self.keywords.get("size_hints"))

    @property
    def device(self) -> Mapping[str, Any]:
        """The device properties that the kernel was generated for."""
        found = self.triton_meta.get("device")
        return found.keywords if isinstance(found, Made) else {}

    @property
    def target(self) -> Target | None:
        return target_of_device(self.device)

    @property
    def num_warps(self) -> int | None:
        return _number(self.keywords.get("num_warps"), self._only_config.get("num_warps"))

    @property
    def num_stages(self) -> int | None:
        return _number(self.keywords.get("num_stages"), self._only_config.get("num_stages"))

    @property
    def configs(self) -> tuple[Mapping[str, Any], ...]:
        """Configurations that stand in the file itself (fixed or given by the user)."""
        given = self.keywords.get("configs")
        found = given if isinstance(given, list) else [self.keywords.get("config")]
        return tuple(c for c in found if isinstance(c, Mapping) and is_plain(c))

    @property
    def options(self) -> Mapping[str, Scalar]:
        """Options for Triton's backends, including TMA and warp specialization."""
        found = {name: self.triton_meta[name] for name in _META_OPTIONS if name in self.triton_meta}
        found |= {name: self.keywords[name] for name in _KEYWORD_OPTIONS if name in self.keywords}
        texts = "\n".join(d.source for d in self.definitions)
        if _TMA.search(texts) or any(_TMA.search(kind) for kind in self.signature.values()):
            found["tma"] = True
        if _WARP_SPECIALISATION.search(texts):
            found["warp_specialisation"] = True
        return {name: value for name, value in found.items() if _is_scalar(value)}

    @property
    def configuration(self) -> Mapping[str, Scalar]:
        """Block sizes, warps, stages and options in one, to compare kernels by."""
        merged: dict[str, Any] = dict(_mapping(self.inductor_meta.get("config_args")))
        merged |= {k: v for k, v in self.body.constexpr_values.items() if not _is_alias(v)}
        merged |= self.constants
        merged |= self._only_config
        merged |= {"num_warps": self.num_warps, "num_stages": self.num_stages}
        merged |= self.options
        spelled = {str(k): str(v) if isinstance(v, Dotted) else v for k, v in merged.items()}
        return {name: value for name, value in spelled.items() if _is_scalar(value)}

    @property
    def _only_config(self) -> Mapping[str, Any]:
        return self.configs[0] if len(self.configs) == 1 else {}


def read_kernel_file(path: str | Path, name: str | None = None) -> KernelFile:
    """The kernel in a file; of several, the one that is called `name`.

    Raises UnreadableRecording if there is none, UsageError if `name` does not select one.
    """
    kernels = read_kernel_files(path)
    if name is not None:
        kernels = tuple(k for k in kernels if name in (k.name, k.kernel.name))
        if not kernels:
            raise UsageError(f"{path} has no kernel {name}. {_names(path)}")
    if len(kernels) > 1:
        raise UsageError(
            f"{path} contains {len(kernels)} kernels: choose one with --name. {_names(path)}"
        )
    return kernels[0]


def _names(path: str | Path) -> str:
    names = [kernel.name for kernel in read_kernel_files(path)]
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f"It has: {', '.join(names[:20])}{more}."


def read_kernel_files(path: str | Path) -> tuple[KernelFile, ...]:
    """Every kernel in a file, at least one. Raises UnreadableRecording if there is none."""
    text, problems = _text_of(Path(path))
    problem = ""
    found: list[KernelFile] = []
    for part in _parts(text):
        try:
            found += _kernels(str(path), part)
        except _NoPython as error:
            problem = problem or str(error)
    if not found:
        reason = problem or "no function has a @triton_heuristics decorator"
        raise UnreadableRecording(
            f"{path} does not contain a generated Triton kernel: {reason}. Give a kernel file from "
            "Inductor's cache, or generated code as TORCH_LOGS=output_code prints it."
        )
    return tuple(replace(kernel, problems=problems + kernel.problems) for kernel in found)


def _text_of(path: Path) -> tuple[str, tuple[str, ...]]:
    try:
        if path.stat().st_size > _LARGEST:
            raise UnreadableRecording(
                f"{path} is larger than {_LARGEST >> 20} MiB, so it is not a kernel file."
            )
        data = path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnreadableRecording(f"{path} cannot be read: {reason}. {_bring(path)}") from error
    except ValueError as error:  # A path with a NUL in it.
        raise UnreadableRecording(f"{path} cannot be read: {error}.") from error
    if b"\0" in data:
        raise UnreadableRecording(f"{path} is a binary file, not a kernel file.")
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    broken = "\ufffd" in text and b"\xef\xbf\xbd" not in data
    return text, ("some bytes are not UTF-8 and were replaced",) if broken else ()


def _bring(path: Path) -> str:
    return (
        f"If it is on another machine, copy it here: scp MACHINE:{path} . — if it is gone, run "
        "the program again with TORCHINDUCTOR_CACHE_DIR set to a permanent folder."
    )


def _parts(text: str) -> list[str]:
    """The file, or, where it is a log, each piece of generated code in it."""
    if "[__output_code]" not in text:
        return [text]
    lines = [_LOGGED.sub("", line) for line in text.split("\n") if "[__output_code]" in line]
    return re.split(r"^Output code(?::| written to).*$", "\n".join(lines), flags=re.MULTILINE)


class _NoPython(Exception):
    """A text that Python cannot parse; says why."""


def _parse(text: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # A warning about an odd escape in the file would not help the user.
            return ast.parse(text)
    except SyntaxError as error:
        raise _NoPython(f"line {error.lineno} is not Python ({error.msg})") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise _NoPython(f"it cannot be parsed ({type(error).__name__}: {error})") from error


def _kernels(path: str, text: str) -> list[KernelFile]:
    tree = _parse(text)
    try:
        own = _kernel(path, "", read_definitions(tree, text))
        if own is not None:
            return [own]
        return list(_wrapped(path, tree))
    except RecursionError as error:
        raise _NoPython("it is nested too deeply") from error


def _wrapped(path: str, tree: ast.Module) -> Iterator[KernelFile]:
    """The kernels that a wrapper holds as strings."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        text = _triton_text(node.value)
        target = node.targets[0]
        if text is None or not isinstance(target, ast.Name):
            continue
        try:
            kernel = _kernel(path, target.id, read_definitions(_parse(text), text))
        except _NoPython:
            continue  # The others can still be read.
        if kernel is not None:
            yield kernel


def _triton_text(call: ast.Call) -> str | None:
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "triton":
        return None
    for argument in call.args[1:2]:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            return argument.value.replace("\r\n", "\n").replace("\r", "\n")
    return None


def _kernel(path: str, name: str, read: Definitions) -> KernelFile | None:
    if read.kernel is None or read.heuristic is None:
        return None
    kernel = KernelFile(
        path=path,
        name=name or read.kernel.name,
        heuristic=read.heuristic.name,
        keywords=read.heuristic.keywords,
        definitions=read.found,
        kernel=read.kernel,
        body=read.body,
        problems=read.problems,
    )
    return replace(kernel, problems=read.problems + tuple(_gaps(kernel)))


def _gaps(kernel: KernelFile) -> Iterator[str]:
    """What a kernel file should have but this one lacks."""
    if not kernel.signature:
        yield "triton_meta has no readable signature"
    missing = [a for a in kernel.signature if a not in kernel.body.arguments]
    if missing:
        yield f"the signature names {', '.join(missing[:5])}, which the function does not take"
    if not kernel.device:
        yield "triton_meta has no readable device properties"
    if kernel.triton_meta.get("configs") and not kernel.attributes:
        yield "the attributes of the arguments (divisibility) cannot be read"


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_alias(value: Any) -> bool:
    """Whether a value only repeats another one, as in `RBLOCK: tl.constexpr = R0_BLOCK`."""
    return isinstance(value, Dotted) and not value.name.startswith("tl.")


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str))


def _number(*values: Any) -> int | None:
    found = (v for v in values if isinstance(v, int) and not isinstance(v, bool))
    return next(found, None)
