"""Parser for generated kernel files. It works on the syntax tree; nothing is imported or run.

Two kinds of files are read: one kernel in its own file, as Inductor keeps it in its cache, and a
whole wrapper (`output_code`), which holds its kernels as strings in `async_compile.triton`.
"""

from __future__ import annotations

import ast
import contextlib
import math
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from inductoscope.errors import UnreadableRecording, UsageError
from inductoscope.torch_facts.gpu_targets import Target, target_of_device

Scalar = int | float | bool | str

_LARGEST = 32 * 2**20

# The options for Triton's backends that Inductor stores in triton_meta and inductor_meta.
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
    """A generated kernel: its function, its launch arguments and its compile options."""

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
        return self.kernel.source

    @property
    def device_functions(self) -> tuple[KernelDefinition, ...]:
        return tuple(d for d in self.definitions if d.kind == "function")

    @property
    def triton_meta(self) -> Mapping[str, Any]:
        return _mapping(self.keywords.get("triton_meta"))

    @property
    def inductor_meta(self) -> Mapping[str, Any]:
        return _mapping(self.keywords.get("inductor_meta"))

    @property
    def signature(self) -> Mapping[str, str]:
        """The Triton type of each argument, such as `*bf16`, `i32` or `constexpr`."""
        found = _mapping(self.triton_meta.get("signature"))
        return {str(name): kind for name, kind in found.items() if isinstance(kind, str)}

    @property
    def constants(self) -> Mapping[str, Any]:
        """The arguments whose value the file fixes."""
        found = _mapping(self.triton_meta.get("constants"))
        return {str(name): value for name, value in found.items() if is_plain(value)}

    @property
    def attributes(self) -> Mapping[Any, Any]:
        """The attributes of arguments, such as divisibility by 16."""
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
        """The configurations in the file itself (fixed or given by the user)."""
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
        """Block sizes, warps, stages and options in one mapping, to compare kernels by."""
        merged: dict[str, Any] = dict(_mapping(self.inductor_meta.get("config_args")))
        # Only names of Triton's own: `RBLOCK: tl.constexpr = R0_BLOCK` repeats another value.
        merged |= {
            name: value
            for name, value in self.body.constexpr_values.items()
            if not isinstance(value, Dotted) or value.name.startswith("tl.")
        }
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
    """Parse the kernel in a file; of several, the one that is called `name`.

    Raises UnreadableRecording if there is none, UsageError if `name` does not select one.
    """
    every = kernels = read_kernel_files(path)
    if name is not None:
        kernels = tuple(k for k in kernels if name in (k.name, k.kernel.name))
        if not kernels:
            raise UsageError(f"{path} has no kernel {name}. {_names(every)}")
    if len(kernels) > 1:
        raise UsageError(
            f"{path} contains {len(kernels)} kernels: choose one with --name. {_names(every)}"
        )
    return kernels[0]


def _names(kernels: Sequence[KernelFile]) -> str:
    names = [kernel.name for kernel in kernels]
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f"It has: {', '.join(names[:20])}{more}."


def read_kernel_files(path: str | Path) -> tuple[KernelFile, ...]:
    """Parse every kernel in a file. Raises UnreadableRecording if there is none."""
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
        raise UnreadableRecording(
            f"{path} cannot be read: {reason}. If it is on another machine, copy it here: "
            f"scp MACHINE:{path} . — if it is gone, run the program again with "
            "TORCHINDUCTOR_CACHE_DIR set to a permanent folder."
        ) from error
    except ValueError as error:  # A path with a NUL in it.
        raise UnreadableRecording(f"{path} cannot be read: {error}.") from error
    if b"\0" in data:
        raise UnreadableRecording(f"{path} is a binary file, not a kernel file.")
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    broken = "\ufffd" in text and b"\xef\xbf\xbd" not in data
    return text, ("some bytes are not UTF-8 and were replaced",) if broken else ()


def _parts(text: str) -> list[str]:
    """Return the text as a list; for a log, the pieces of generated code in it."""
    if "[__output_code]" not in text:
        return [text]
    lines = [_LOGGED.sub("", line) for line in text.split("\n") if "[__output_code]" in line]
    return re.split(r"^Output code(?::| written to).*$", "\n".join(lines), flags=re.MULTILINE)


class _NoPython(Exception):
    """A text that Python cannot parse; the message says why."""


def _parse(text: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            # A warning about an odd escape in the file would not help the user.
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        raise _NoPython(f"line {error.lineno} is not Python ({error.msg})") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise _NoPython(f"it cannot be parsed ({type(error).__name__}: {error})") from error


def _kernels(path: str, text: str) -> list[KernelFile]:
    tree = _parse(text)
    try:
        own = _kernel(path, "", tree, text)
        return [own] if own is not None else list(_wrapped(path, tree))
    except RecursionError as error:
        raise _NoPython("it is nested too deeply") from error


def _wrapped(path: str, tree: ast.Module) -> Iterator[KernelFile]:
    """Yield the kernels in a wrapper's strings: `name = async_compile.triton(_, text, ...)`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        call, target = node.value, node.targets[0]
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "triton":
            continue
        text = read_value(call.args[1]) if len(call.args) > 1 else None
        if not isinstance(text, str) or not isinstance(target, ast.Name):
            continue
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        with contextlib.suppress(_NoPython):  # The others can still be read.
            kernel = _kernel(path, target.id, _parse(text), text)
            if kernel is not None:
                yield kernel


def _gaps(kernel: KernelFile) -> Iterator[str]:
    """Yield the parts that this kernel file lacks."""
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


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str))


def _number(*values: Any) -> int | None:
    found = (v for v in values if isinstance(v, int) and not isinstance(v, bool))
    return next(found, None)


# --- Values in a generated file, read from its syntax tree. Nothing is evaluated ------------------
#
# What is not a literal becomes a `Dotted` name, a `Made` object, or `Opaque`; `code` writes all but
# the last back as Python.

_CONSTEXPR = ("tl.constexpr", "triton.language.constexpr", "constexpr")
# Calls that torch writes into generated files. `code` must never write any other call.
_MAKERS = ("DeviceProperties", *_CONSTEXPR)

_MOST_BITS = 256  # Longer numbers are not sizes; Python refuses to print the longest ones.


@dataclass(frozen=True)
class Dotted:
    """A name such as `ReductionHint.INNER` or `tl.float32`."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Made:
    """A call such as `DeviceProperties(type='cuda', cc=90)`, as far as it can be parsed."""

    name: str
    positional: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return code(self)


@dataclass(frozen=True)
class Opaque:
    """An expression that is not a plain value."""

    what: str

    def __str__(self) -> str:
        return f"<{self.what}>"


def read_value(node: ast.AST) -> Any:
    """Evaluate an expression of literals, dotted names and calls without executing it."""
    if isinstance(node, ast.Constant):
        return _constant(node.value)
    if isinstance(node, ast.List):
        return list(map(read_value, node.elts))
    if isinstance(node, ast.Tuple):
        return tuple(map(read_value, node.elts))
    if isinstance(node, ast.Call):
        return _made(node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = read_value(node.operand)
        return -value if isinstance(value, (int, float)) else Opaque("UnaryOp")
    # A list, or a value that contains one, is not hashable.
    with contextlib.suppress(TypeError):
        if isinstance(node, ast.Set):
            return set(map(read_value, node.elts))
        if isinstance(node, ast.Dict):
            keys = (Opaque("**") if key is None else read_value(key) for key in node.keys)
            return dict(zip(keys, map(read_value, node.values), strict=True))
    name = dotted_name(node)
    return Dotted(name) if name else Opaque(type(node).__name__)


def _constant(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return Opaque("a number with too many digits")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return Opaque(type(value).__name__)


def _made(node: ast.Call) -> Any:
    name = dotted_name(node.func)
    positional = tuple(map(read_value, node.args))
    keywords = {word.arg: read_value(word.value) for word in node.keywords if word.arg is not None}
    if not name or len(keywords) < len(node.keywords):
        return Opaque("Call")
    if name == "set" and not positional and not keywords:
        return set()
    if name == "float" and positional in (("inf",), ("-inf",), ("nan",)):
        return float(positional[0])
    return Made(name, positional, keywords) if name in _MAKERS else Opaque(f"{name}(...)")


def dotted_name(node: ast.AST) -> str:
    """Return `a.b.c` if the expression is a dotted name, else an empty string."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def is_plain(value: Any) -> bool:
    """Check whether a value contains nothing opaque."""
    if isinstance(value, Opaque):
        return False
    if isinstance(value, Mapping):
        return all(is_plain(item) for pair in value.items() for item in pair)
    if isinstance(value, (list, tuple, set)):
        return all(map(is_plain, value))
    if isinstance(value, Made):
        return is_plain(value.positional) and is_plain(value.keywords)
    return True


def code(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if isinstance(value, Made):
        words = [code(item) for item in value.positional]
        words += [f"{name}={code(item)}" for name, item in value.keywords.items()]
        return f"{value.name}({', '.join(words)})"
    if isinstance(value, (Dotted, Opaque)):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{code(k)}: {code(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(code, value)) + "]"
    if isinstance(value, tuple):
        return "(" + "".join(f"{code(item)}, " for item in value).removesuffix(" ") + ")"
    if isinstance(value, set):
        return "{" + ", ".join(sorted(map(code, value))) + "}" if value else "set()"
    return repr(value)


# --- The statements of a generated file that its kernel needs; all others are left out ------------
#
# A generated file is a program. Only what torch itself writes there is taken over: imports from
# triton and from torch's run-time, constants, and functions under `@triton.jit`. So a script made
# of them runs nothing else that somebody may have put into the file.

_IMPORTED = ("triton", "torch._inductor.runtime")
_DECORATORS = ("triton.jit", "triton.constexpr_function", "triton.experimental.gluon.jit")
# Starts torch's driver, which needs a GPU; compiling a kernel does not.
_NOT_NEEDED = ("triton_helpers.set_driver_to_gpu", "triton_helpers.set_driver_to_cpu")


@dataclass(frozen=True)
class KernelDefinition:
    """A statement that is kept: 'import', 'constant', 'function' or 'kernel'."""

    kind: str
    name: str
    source: str


@dataclass(frozen=True)
class Body:
    arguments: tuple[str, ...] = ()
    constexpr_arguments: tuple[str, ...] = ()
    constexpr_values: Mapping[str, Any] = field(default_factory=dict)
    constexpr_lines: Mapping[str, int] = field(default_factory=dict)  # 0 is the line of `def`


def _kernel(path: str, name: str, tree: ast.Module, text: str) -> KernelFile | None:
    """Extract a kernel from a parsed file; None if the file has no kernel."""
    lines = text.split("\n")
    found: list[KernelDefinition] = []
    problems: list[str] = []
    kernel: ast.FunctionDef | None = None
    for node in tree.body:
        try:
            definition = _definition(node, lines)
        except _Refused as refusal:
            problems.append(f"line {node.lineno} is skipped: {refusal}")
            continue
        if definition is not None and isinstance(node, ast.FunctionDef):
            if definition.kind == "kernel" and kernel is not None:
                problems.append(f"line {node.lineno}: a second kernel, {node.name}, is skipped")
                continue
            kernel = node if definition.kind == "kernel" else kernel
        if definition is not None:
            found.append(definition)
    if kernel is None:
        return None
    heuristic = next(filter(None, map(_heuristic, kernel.decorator_list)))
    own = KernelFile(
        path=path,
        name=name or kernel.name,
        heuristic=dotted_name(heuristic.func).rpartition(".")[2],
        keywords={word.arg: read_value(word.value) for word in heuristic.keywords if word.arg},
        definitions=tuple(found),
        kernel=next(d for d in found if d.kind == "kernel"),
        body=_body(kernel),
    )
    return replace(own, problems=(*problems, *_gaps(own)))


class _Refused(Exception):
    """A statement that is not kept; the text says why."""


def _definition(node: ast.stmt, lines: list[str]) -> KernelDefinition | None:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return _import(node)
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        return _assignment(node)
    if isinstance(node, ast.FunctionDef):
        return _function(node, lines)
    if isinstance(node, ast.Expr) and _is_harmless(node.value):
        return None
    raise _Refused(f"{type(node).__name__} is not part of a kernel")


def _is_harmless(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return True
    return isinstance(node, ast.Call) and dotted_name(node.func) in _NOT_NEEDED


def _import(node: ast.Import | ast.ImportFrom) -> KernelDefinition:
    modules = (
        [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module]
    )
    names = ", ".join(alias.asname or alias.name for alias in node.names)
    for module in modules:
        if not module or not any(module == m or module.startswith(f"{m}.") for m in _IMPORTED):
            raise _Refused(f"import of {module}")
    return KernelDefinition("import", names, ast.unparse(node))


def _assignment(node: ast.Assign | ast.AnnAssign) -> KernelDefinition:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    target = targets[0]
    if len(targets) != 1 or not isinstance(target, ast.Name) or node.value is None:
        raise _Refused("an assignment to more than one name")
    value = read_value(node.value)
    if not is_plain(value) or (isinstance(value, Made) and value.name not in _CONSTEXPR):
        raise _Refused(f"the value of {target.id} is not a constant")
    return KernelDefinition("constant", target.id, f"{target.id} = {ast.unparse(node.value)}")


def _function(node: ast.FunctionDef, lines: list[str]) -> KernelDefinition:
    heuristics = [decorator for decorator in node.decorator_list if _heuristic(decorator)]
    others = [_decorator(item) for item in node.decorator_list if item not in heuristics]
    if not others:
        raise _Refused(f"{node.name} is not a Triton function")
    _check_header(node)
    kind = "kernel" if heuristics else "function"
    own_lines = lines[node.lineno - 1 : node.end_lineno]
    return KernelDefinition(kind, node.name, "\n".join([*others, *own_lines]))


def _heuristic(node: ast.expr) -> ast.Call | None:
    """Return the decorator by which Inductor selects a kernel's configuration."""
    if not isinstance(node, ast.Call):
        return None
    *modules, _ = dotted_name(node.func).split(".")
    return node if modules and modules[-1] == "triton_heuristics" else None


def _decorator(node: ast.expr) -> str:
    called = node.func if isinstance(node, ast.Call) else node
    name = dotted_name(called)
    if name not in (*_DECORATORS, "jit", "gluon.jit"):
        raise _Refused(f"the decorator {name or type(node).__name__} is not one of Triton's")
    words = [*node.args, *node.keywords] if isinstance(node, ast.Call) else []
    given = [word.value if isinstance(word, ast.keyword) else word for word in words]
    if not is_plain(list(map(read_value, given))):
        raise _Refused(f"{name} is called with arguments that are not constants")
    return f"@{ast.unparse(node)}"


def _check_header(node: ast.FunctionDef) -> None:
    """Refuse defaults and annotations that are not plain: Python evaluates both at `def`."""
    arguments = node.args
    everyone = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    parts = [argument.annotation for argument in everyone]
    parts += [*arguments.defaults, *arguments.kw_defaults, node.returns]
    for part in parts:
        value = None if part is None else read_value(part)
        if isinstance(value, Made) or not is_plain(value):
            raise _Refused(f"a default or annotation of {node.name} is not a constant")


def _body(node: ast.FunctionDef) -> Body:
    values, lines = {}, {}
    for name, value, line in _constexpr_assignments(node):
        values[name] = value
        lines[name] = line - node.lineno
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return Body(
        arguments=tuple(argument.arg for argument in arguments),
        constexpr_arguments=tuple(a.arg for a in arguments if _is_constexpr(a.annotation)),
        constexpr_values=values,
        constexpr_lines=lines,
    )


def _constexpr_assignments(node: ast.FunctionDef) -> Iterator[tuple[str, Any, int]]:
    """Yield the one-line `BLOCK_M : tl.constexpr = 64` at the top level of the body."""
    for statement in node.body:
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and _is_constexpr(statement.annotation)
            and statement.value is not None
            and statement.lineno == statement.end_lineno
        ):
            value = read_value(statement.value)
            if isinstance(value, (bool, int, float, str, Dotted)):
                yield statement.target.id, value, statement.lineno


def _is_constexpr(annotation: ast.expr | None) -> bool:
    if isinstance(annotation, ast.Constant):
        return isinstance(annotation.value, str) and annotation.value in _CONSTEXPR
    return annotation is not None and dotted_name(annotation) in _CONSTEXPR


# --- Registers, spills and memory of a compiled kernel, from what the compilers say of it ---------


@dataclass(frozen=True)
class Resources:
    """The resources that a kernel uses; None if unknown."""

    registers: int | None = None  # per thread; VGPRs on AMD
    scalar_registers: int | None = None  # AMD only
    spills: int | None = None  # bytes stored on NVIDIA, vector registers on AMD
    spill_unit: str = "bytes"
    shared: int | None = None  # bytes per block
    local: int | None = None  # bytes per thread: stack on NVIDIA, scratch on AMD


def nvidia_resources(ptxas_log: str, usage: str, shared: int | None) -> Resources:
    """Parse `ptxas -v` and `cuobjdump -res-usage`; either may be missing."""
    return Resources(
        registers=_first(r"Used (\d+) registers", ptxas_log) or _first(r"REG:(\d+)", usage),
        spills=_first(r"(\d+) bytes spill stores", ptxas_log),
        shared=shared,
        local=_first(r"STACK:(\d+)", usage),
    )


def amd_resources(amdgcn: str, shared: int | None) -> Resources:
    """Parse the notes at the end of the assembly."""
    return Resources(
        registers=_first(r"\.vgpr_count:\s*(\d+)", amdgcn),
        scalar_registers=_first(r"\.sgpr_count:\s*(\d+)", amdgcn),
        spills=_first(r"\.vgpr_spill_count:\s*(\d+)", amdgcn),
        spill_unit="registers",
        shared=shared,
        local=_first(r"\.private_segment_fixed_size:\s*(\d+)", amdgcn),
    )


def _first(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text)
    return int(found[1]) if found else None


# --- Which lines of a kernel's later forms go back to which line of its source --------------------
#
# Triton leaves the source line on everything that it makes: as `loc(#loc7)` in TTIR and TTGIR, as
# `!dbg !7` in LLVM IR, as `.loc` in PTX and AMDGCN. What was inlined belongs to the line of the
# kernel that called it.

Links = dict[int, list[int]]

_DIRECTIVE = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")
_PLACE = re.compile(r"([^\s/\[\]@:]+\.py):(\d+)")
_LOCATION_USE = re.compile(r"loc\((#loc\d*)\)\s*$")
_LOCATION = re.compile(r"^(#loc\d*) = loc\((.*)\)\s*$")
_FILE_PLACE = re.compile(r'^"([^"]*)":(\d+):\d+$')
_REFERENCE = re.compile(r"#loc\d*")
_DEBUG_USE = re.compile(r"!dbg !(\d+)")
_DEBUG = re.compile(r"^!(\d+) = (?:distinct )?!DILocation\(line: (\d+),.*?(?:inlinedAt: !(\d+))?\)")
# The longest chain of references; compilers never nest them so deeply.
_LONGEST_CHAIN = 64


def source_links(form: str, text: str) -> Links:
    """Map the lines of a kernel's file to lines of `text`; empty if it has no line numbers."""
    reader = _READERS.get(form)
    found: defaultdict[int, list[int]] = defaultdict(list)
    for source, line in reader(text.splitlines()) if reader else ():
        found[source].append(line)
    return dict(found)


def _from_directives(lines: list[str]) -> Iterator[tuple[int, int]]:
    """Read `.loc 1 24 28  // kernel.py:24:28`, which applies up to the next directive."""
    source: int | None = None
    for number, line in enumerate(lines, start=1):
        directive = _DIRECTIVE.match(line)
        if directive:
            # The last location of an inlining chain is the outermost, in the kernel itself.
            chain = _PLACE.findall(line)
            is_own = directive[1] == "1" or bool(chain)
            source = int(chain[-1][1]) if chain else int(directive[2]) if is_own else None
        elif "func_end" in line or ".section" in line:
            source = None  # What follows is debug information, not code.
        elif source is not None and line.strip() and not line.strip().startswith(("//", "$", ";")):
            yield source, number


def _from_locations(lines: list[str]) -> Iterator[tuple[int, int]]:
    table = {match[1]: match[2] for line in lines if (match := _LOCATION.match(line))}
    for number, line in enumerate(lines, start=1):
        used = _LOCATION_USE.search(line)
        if used and not line.startswith("#"):
            source = _resolve(table, used[1])
            if source is not None:
                yield source, number


def _resolve(table: dict[str, str], name: str) -> int | None:
    """Resolve a location to a line; for a call site, to the caller's line."""
    for _ in range(_LONGEST_CHAIN):
        text = table.get(name, "")
        place = _FILE_PLACE.match(text)
        if place:
            return int(place[2])
        references = _REFERENCE.findall(text)
        if not references:
            return None
        name = references[-1] if text.startswith("callsite") else references[0]
    return None


def _from_debug_info(lines: list[str]) -> Iterator[tuple[int, int]]:
    table = {match[1]: (int(match[2]), match[3]) for line in lines if (match := _DEBUG.match(line))}
    for number, line in enumerate(lines, start=1):
        used = _DEBUG_USE.search(line)
        name = used[1] if used else None
        for _ in range(_LONGEST_CHAIN):
            if name is None or name not in table:
                break
            source, name = table[name]
            if name is None:
                yield source, number


_READERS: dict[str, Callable[[list[str]], Iterator[tuple[int, int]]]] = {
    "ttir": _from_locations,
    "ttgir": _from_locations,
    "llir": _from_debug_info,
    "ptx": _from_directives,
    "amdgcn": _from_directives,
}
