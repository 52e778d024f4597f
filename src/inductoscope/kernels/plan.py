"""Plans for compiling one kernel alone: its configurations, and a standalone script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from inductoscope.errors import UsageError
from inductoscope.torch_facts.gpu_targets import Target
from inductoscope.torch_facts.triton_kernels import (
    KernelDefinition,
    KernelFile,
    Scalar,
    code,
    is_plain,
)

# Imports without torch for names that a kernel gets from torch's own import.
_WITHOUT_TORCH = {
    "tl_math": "from triton.language import math as tl_math",
    "libdevice": "from triton.language.extra import libdevice",
}
_WITH_TORCH = {"triton_helpers": "from torch._inductor.runtime import triton_helpers"}
_WORD = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True)
class Plan:
    """A kernel, a configuration and a target: all that `triton.compile` takes."""

    kernel: KernelFile
    target: Target
    config: Config
    definitions: tuple[KernelDefinition, ...]
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    attributes: Mapping[Any, Any]
    options: Mapping[str, Any]

    @property
    def needs_torch(self) -> bool:
        """Whether the kernel calls functions that only torch has."""
        return any("torch._inductor" in line for line in _imports(self.definitions))


def make_plan(kernel: KernelFile, target: Target, config: Config) -> Plan:
    """Build a plan. Raises UsageError if a value is missing."""
    if not kernel.signature:
        raise UsageError(f"{kernel.path} does not give the types of {kernel.name}'s arguments.")
    missing = open_arguments(kernel, config.values)
    if missing:
        example = ",".join(f"{name}=64" for name in missing)
        raise UsageError(f"There is no value for {', '.join(missing)}: give --config {example}.")
    constexpr = kernel.body.constexpr_arguments
    constants = dict(kernel.constants)
    constants |= {name: value for name, value in config.values.items() if name in constexpr}
    return Plan(
        kernel=kernel,
        target=target,
        config=config,
        definitions=_rewritten(kernel, config.values),
        signature=_signature(kernel, constants),
        constants=constants,
        attributes=kernel.attributes,
        options=_options(kernel, target, config.values),
    )


def _signature(kernel: KernelFile, constants: Mapping[str, Any]) -> Mapping[str, str]:
    found = dict(kernel.signature)
    for name in kernel.body.constexpr_arguments:
        found.setdefault(name, "constexpr")
    found.update(_descriptors(kernel, constants))
    return {name: found[name] for name in kernel.body.arguments if name in found}


def _descriptors(kernel: KernelFile, constants: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the types of TMA descriptor arguments, which carry the block's shape."""
    described = kernel.inductor_meta.get("host_tma_descriptor_args")
    known = {**kernel.body.constexpr_values, **constants}
    for name, about in described.items() if isinstance(described, Mapping) else ():
        shape = about.get("block_shape") if isinstance(about, Mapping) else None
        kind = re.match(r"\*(\w+)|tensordesc<(\w+)", kernel.signature.get(name, ""))
        sizes = [known.get(s, s) for s in shape] if isinstance(shape, (list, tuple)) else []
        if kind and sizes and all(str(size).isdigit() for size in sizes):
            yield name, f"tensordesc<{kind[1] or kind[2]}[{', '.join(map(str, sizes))}]>"


def _options(kernel: KernelFile, target: Target, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that torch would pass to `triton.compile` for this kernel."""
    meta, about = kernel.triton_meta, kernel.inductor_meta
    debug = bool(about.get("assert_indirect_indexing", True)) and not about.get("is_hip", False)
    options: dict[str, Any] = {"debug": debug, "sanitize_overflow": False}
    names = ["enable_fp_fusion", "num_ctas", "maxnreg"]
    if target.kind == "cuda":
        names += ["launch_cooperative_grid", "launch_pdl"]
        if meta.get("disable_ftz"):
            options["enable_reflect_ftz"] = False
    if target.kind == "hip":
        names += ["waves_per_eu", "matrix_instr_nonkdim", "kpack"]
    options |= {name: meta[name] for name in names if isinstance(meta.get(name), (bool, int))}
    if target.kind == "xpu":
        options["generate_native_code"] = True
    return options | {name: value for name, value in values.items() if name in OPTIONS}


def _rewritten(kernel: KernelFile, values: Mapping[str, Any]) -> tuple[KernelDefinition, ...]:
    """Return the file's statements, with new values for constants in the kernel's body."""
    lines = kernel.source.split("\n")
    first = len(lines) - len(_after_decorators(lines))
    for name, place in kernel.body.constexpr_lines.items():
        if name in values and name not in kernel.body.constexpr_arguments:
            start, equals, _ = lines[first + place].partition("=")
            lines[first + place] = f"{start}{equals} {_written(values[name])}"
    changed = KernelDefinition(kernel.kernel.kind, kernel.kernel.name, "\n".join(lines))
    return tuple(changed if d is kernel.kernel else d for d in kernel.definitions)


def _after_decorators(lines: list[str]) -> list[str]:
    first = next(i for i, line in enumerate(lines) if not line.startswith("@"))
    return lines[first:]


def _written(value: Any) -> str:
    """Format a value as a kernel writes it: types such as tl.float32 are names, not strings."""
    if isinstance(value, str) and re.fullmatch(r"tl\.\w+", value):
        return value
    return repr(value)


def script_text(plan: Plan, name: str = "alone.py") -> str:
    """Return a script that compiles the kernel; `name` is the file it is for."""
    return "\n".join(
        [
            f'"""{_docstring(plan, name)}"""',
            "",
            "import os",
            "import time",
            "",
            *_imports(plan.definitions),
            "",
            "# Otherwise a second run would take the kernel from Triton's cache.",
            'os.environ.setdefault("TRITON_ALWAYS_COMPILE", "1")',
            "",
            *_statements(plan),
            _assigned("SIGNATURE", plan.signature),
            _assigned("CONSTANTS", {k: v for k, v in plan.constants.items() if is_plain(v)}),
            _assigned("ATTRIBUTES", plan.attributes),
            _assigned("OPTIONS", plan.options),
            f"TARGET = {plan.target.code}",
            "",
            _MAIN.replace("KERNEL", plan.kernel.kernel.name),
        ]
    )


def _docstring(plan: Plan, name: str) -> str:
    # Untrusted text: keep only what cannot end the docstring or hide in it.
    origin = re.sub(r"[^\w.+ -]", "_", PurePath(plan.kernel.path).name)
    quoted = shlex.quote(name).replace("\\", "\\\\").replace('"', '\\"')
    needs = "triton and torch" if plan.needs_torch else "triton"
    return (
        f"Compiles the kernel {plan.kernel.kernel.name} alone.\n\n"
        f"    timeout 60 python {quoted}\n\n"
        f"From {origin}, generated by torch.compile (heuristic: {plan.kernel.heuristic}).\n"
        f"Needs {needs}, and no GPU: nothing is launched. Exit code 0: it compiles.\n"
    )


def _imports(definitions: tuple[KernelDefinition, ...]) -> list[str]:
    """Return the import of Triton, and those imports of the file that the functions use."""
    texts = "\n".join(d.source for d in definitions if d.kind != "import")
    used = set(_WORD.findall(texts))
    lines = ["import triton", "import triton.language as tl"]
    lines += [
        "from triton.backends.compiler import GPUTarget",
        "from triton.compiler import ASTSource",
    ]
    lines += [line for name, line in _WITHOUT_TORCH.items() if name in used]
    given = {"triton", "tl", "GPUTarget", "ASTSource", "triton.language", *_WITHOUT_TORCH}
    for definition in definitions:
        names = set(definition.name.split(", "))
        if definition.kind == "import" and names & used - given - set(_WITH_TORCH):
            lines.append(definition.source)
    lines += [line for name, line in _WITH_TORCH.items() if name in used]
    return list(dict.fromkeys(lines))


def _statements(plan: Plan) -> Iterator[str]:
    for definition in plan.definitions:
        if definition.kind != "import":
            yield from ("", definition.source, "")


def _assigned(name: str, values: Mapping[Any, Any]) -> str:
    if not values:
        return f"{name} = {{}}"
    rows = (f"    {code(key)}: {code(value)}," for key, value in values.items())
    return "\n".join([f"{name} = {{", *rows, "}"])


_MAIN = """
def compile_alone():
    print(f"triton {triton.__version__}, {TARGET}, {OPTIONS}, {CONSTANTS}", flush=True)
    source = ASTSource(KERNEL, SIGNATURE, CONSTANTS, ATTRIBUTES)
    start = time.perf_counter()
    triton.compile(source, target=TARGET, options=OPTIONS)
    print(f"compiled in {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    compile_alone()
"""


# --- The configurations that a kernel is compiled with, and where each comes from -----------------

# Options of Triton's backends, besides the kernel's own arguments.
OPTIONS = (
    "num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu", "matrix_instr_nonkdim",
    "kpack", "schedule_hint", "enable_fp_fusion", "enable_reflect_ftz", "launch_cooperative_grid",
    "launch_pdl", "num_consumer_groups", "num_buffers_warp_spec", "generate_native_code",
    "debug", "sanitize_overflow",
)  # fmt: skip

# The defaults of triton.Config, for a user's kernel that sets none.
_TRITON_DEFAULTS = {"num_warps": 4, "num_stages": 3}

_BLOCKS = {"XBLOCK": "x", "YBLOCK": "y", "ZBLOCK": "z", "R0_BLOCK": "r0_", "R1_BLOCK": "r1_"}
_LARGEST_BLOCK = 1024
_IN_FILE = ("template", "user_autotune", "fixed_config")


@dataclass(frozen=True)
class Config:
    """The values of constexpr arguments and Triton options, and who chose them."""

    values: Mapping[str, Any]
    origin: str
    is_own: bool = True  # one that the program would have compiled with

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.values.items())


def parse_config(text: str) -> Mapping[str, Scalar]:
    """Parse `XBLOCK=64,num_warps=8` from the command line."""
    found: dict[str, Scalar] = {}
    for word in filter(None, (word.strip() for word in text.split(","))):
        name, equals, value = word.partition("=")
        if not equals or not name.strip().isidentifier() or not value.strip():
            raise UsageError(
                f"{word} is not a setting. Write, for example, --config XBLOCK=64,num_warps=8."
            )
        found[name.strip()] = _scalar(value.strip())
    return found


def _scalar(text: str) -> Scalar:
    if text in ("True", "False"):
        return text == "True"
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text


def configs_in_file(kernel: KernelFile) -> list[Config]:
    """Return the configurations that the file fixes; empty if torch chooses at run time."""
    if kernel.heuristic not in _IN_FILE:
        return []
    if kernel.configs:
        return [Config(dict(config), "the file") for config in kernel.configs]
    if kernel.heuristic == "template":
        own = {"num_warps": kernel.num_warps, "num_stages": kernel.num_stages}
        return [Config({k: v for k, v in own.items() if v is not None}, "the file")]
    return [Config(_TRITON_DEFAULTS, "Triton's defaults, because the file has none")]


def default_config(kernel: KernelFile) -> Config:
    """Choose a simple configuration for when torch, which would choose better, is missing."""
    values: dict[str, Any] = {}
    room = _LARGEST_BLOCK
    for name in _free_arguments(kernel):
        hint = kernel.size_hints.get(_BLOCKS.get(name, ""))
        if isinstance(hint, int) and hint > 0:
            values[name] = max(1, min(_power_of_two(hint), room))
            room = max(1, room // values[name])
    values |= {"num_warps": 4, "num_stages": 1}
    return Config(values, "inductoscope's default", is_own=False)


def _free_arguments(kernel: KernelFile) -> list[str]:
    """Return the constexpr arguments that the file leaves open."""
    return [name for name in kernel.body.constexpr_arguments if name not in kernel.constants]


def _power_of_two(number: int) -> int:
    return 1 << max(0, (number - 1).bit_length())


def with_settings(config: Config, settings: Mapping[str, Scalar]) -> Config:
    if not settings:
        return config
    origin = "--config" if set(config.values) <= set(settings) else f"--config over {config.origin}"
    return Config({**config.values, **settings}, origin, is_own=False)


def open_arguments(kernel: KernelFile, values: Mapping[str, Any]) -> list[str]:
    return [name for name in _free_arguments(kernel) if name not in values]


def check_settings(kernel: KernelFile, names: Sequence[str]) -> None:
    """Refuse a setting that this kernel does not have."""
    own = [*kernel.body.constexpr_arguments, *kernel.body.constexpr_values]
    unknown = [name for name in names if name not in own and name not in OPTIONS]
    if unknown:
        raise UsageError(
            f"{kernel.name} has no {', '.join(unknown)}. It has: "
            f"{', '.join([*own, *OPTIONS[:2]])}, and Triton options such as waves_per_eu."
        )
