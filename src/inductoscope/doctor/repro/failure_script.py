"""Writes a failing candidate as one script that needs only torch, ready for a bug report.

Whatever the kind of failure, it exits with 1 if the bug is there and with 0 if it is not. A bug
that kills or hangs the process runs in a child process.
"""

from __future__ import annotations

import platform
import signal
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from inductoscope.doctor.compare.graphs import input_names
from inductoscope.doctor.failure import ERROR, HANG, NAN, SIGNAL, SLOW, WRONG, Failure
from inductoscope.doctor.repro.filled_memory_text import IN_FILLED_MEMORY, filled_memory_text
from inductoscope.doctor.repro.package_text import options_text, packaged_text
from inductoscope.doctor.repro.python_text import function_text
from inductoscope.doctor.repro.slow_compile_text import slow_compile_text
from inductoscope.doctor.repro.state_text import call_lines, setting_lines
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.eager_values import eager_values
from inductoscope.doctor.search.input_recipes import shared_name
from inductoscope.doctor.search.marked_sizes import marked_inputs
from inductoscope.doctor.search.program_settings import to_be_made
from inductoscope.doctor.search.torch_state import TorchState, current_state
from inductoscope.vocabulary.flows import AOT_INDUCTOR

_LINE = 96
# A compile of one node that takes longer hangs, unless other things take long here, too.
HANG_SECONDS = 10


def script_text(
    candidate: Candidate,
    failure: Failure,
    title: str,
    *,
    state: TorchState | None = None,
    own_passes: str = "",
    lowered: int = 0,
) -> str:
    """The script; `state` is what the program has set in torch, `own_passes` registers its passes.

    Without a state it is that of this thread. `lowered` is how many nodes the graph is lowered to,
    where that counts.
    """
    state = state or current_state()
    function, parameters = function_text(candidate.module)
    packaged = packaged_text(candidate, parameters) if candidate.flow == AOT_INDUCTOR else ""
    parts = [
        _head(title, candidate, failure, packaged),
        own_passes,
        "\n".join([*setting_lines(state), *_settings(_config(candidate))]),
        function,
        filled_memory_text(candidate) if candidate.guarded else "",
        *_inputs_of_calls(candidate, parameters),
        packaged,
        _run(candidate, failure, state),
        "\n".join(_FILL_FREE_MEMORY) if _needs_filled_memory(candidate, failure) else "",
        _main(candidate, failure, own_passes, lowered),
    ]
    return "\n\n\n".join(part for part in parts if part) + "\n"


def _head(title: str, candidate: Candidate, failure: Failure, packaged: str) -> str:
    system = f"{platform.system()} {platform.machine()}"
    lines = textwrap.wrap(title, _LINE)
    versions = f"torch {torch.__version__}, Python {platform.python_version()}, {system}"
    if candidate.device.startswith("cuda") or torch.cuda.is_initialized():
        versions += f", {_gpu(candidate)}"
    text = "\n".join(lines).replace("\\", "/").replace('"""', "'''")
    imports = _imports(candidate, failure, packaged)
    return f'"""{text}\n\n{versions}. Exits with 1 if the bug is there.\n"""\n\n{imports}'


def _gpu(candidate: Candidate) -> str:
    """The GPU's name; this process itself may have to stay away from it."""
    return str(eager_values(candidate, lambda _: torch.cuda.get_device_name()))


def _imports(candidate: Candidate, failure: Failure, packaged: str) -> str:
    standard = []
    if any("zlib." in recipe for recipe in (*candidate.recipes, *candidate.earlier_recipes)):
        standard += ["base64", "zlib"]
    if failure.kind in (SIGNAL, HANG):
        standard += ["multiprocessing", "sys"]
    if failure.kind == SLOW:
        standard += ["os", "sys"]
    if failure.kind in (HANG, SLOW):
        standard.append("time")
    if candidate.device and failure.kind in (SIGNAL, HANG):
        standard.append("os")
    if candidate.guarded or "ctypes." in packaged:
        standard.append("ctypes")
    if candidate.flow == AOT_INDUCTOR:
        standard.append("tempfile")
    of_torch = ["torch", *(["torch._inductor.config"] if _config(candidate) else [])]
    if candidate.flow == AOT_INDUCTOR:
        of_torch.append("torch._inductor")
    groups = [sorted(standard), of_torch]
    texts = ["\n".join(f"import {name}" for name in group) for group in groups if group]
    if failure.kind == SLOW:
        texts[-1] += "\nfrom torch._inductor.utils import fresh_cache"
    if "os" in standard and failure.kind != SLOW:
        texts.insert(1, _GPU_IN_FORKS)
    return "\n\n".join(texts)


_GPU_IN_FORKS = """\
# Otherwise a child process could not use the GPU once this one has asked for it.
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1\""""


def _config(candidate: Candidate) -> dict[str, Any]:
    """Settings that differ from those in a fresh process."""
    return to_be_made(candidate.config)


def _settings(config: Mapping[str, Any]) -> list[str]:
    return [f"torch._inductor.config.{name} = {value!r}" for name, value in config.items()]


def _inputs_of_calls(candidate: Candidate, parameters: list[str]) -> list[str]:
    made = [_inputs(candidate, "inputs", candidate.recipes, parameters)]
    if candidate.earlier is not None:
        earlier = _inputs(candidate, "earlier_inputs", candidate.earlier_recipes, parameters)
        made.insert(0, earlier)
    return ["\n".join(_ON_GPU), *made] if candidate.device else made


def _inputs(candidate: Candidate, function: str, texts: Sequence[str], names: list[str]) -> str:
    lines = [f"def {function}():"]
    if any("torch.rand" in recipe for recipe in texts):
        lines.append("    torch.manual_seed(0)")
    recipes = list(texts)
    for number, recipe in enumerate(recipes):
        name = shared_name(number)
        if any(f"{name}." in other for other in recipes):
            lines.append(f"    {name} = {recipe}")
            recipes[number] = name
    before, after = ("on_gpu(", f"{_left_here(candidate)})") if candidate.device else ("", "")
    if candidate.guarded and not candidate.device:
        before, after = f"{IN_FILLED_MEMORY}(", ")"
    if len(recipes) == 1:
        return "\n".join([*lines, f"    return {before}[{recipes[0]}]{after}"])
    lines.append(f"    return {before}[")
    lines += [f"        {recipe},  # {name}" for recipe, name in zip(recipes, names, strict=True)]
    return "\n".join([*lines, f"    ]{after}"])


def _left_here(candidate: Candidate) -> str:
    """The argument that names inputs which belong in main memory."""
    names = input_names(candidate.module)
    left = [number for number, name in enumerate(names) if name in candidate.on_cpu]
    return f", but={left}" if left else ""


_ON_GPU = (
    "def on_gpu(values, but=()):",
    '    """The tensors in GPU memory, with the same strides, sharing memory as they do here."""',
    "    memory, found = {}, []",
    "    for number, value in enumerate(values):",
    "        if isinstance(value, torch.Tensor) and number not in but:",
    "            own = value.untyped_storage()",
    "            there = memory.setdefault(own.data_ptr(), own.cuda())",
    "            place = there, value.storage_offset(), value.shape, value.stride()",
    '            moved = torch.empty(0, dtype=value.dtype, device="cuda").set_(*place)',
    "            value = moved.requires_grad_(value.requires_grad)",
    "        found.append(value)",
    "    return found",
)


def _run(candidate: Candidate, failure: Failure, state: TorchState) -> str:
    lines = ["def run(function):", "    arguments = inputs()"]
    if candidate.earlier is not None:
        lines = ["def call(function, arguments):"]
    if candidate.flow != AOT_INDUCTOR:
        lines += _marks(candidate)
    if candidate.config.get("fallback_random"):
        lines.append("    torch.manual_seed(0)")
    lines += call_lines(state, candidate)
    if candidate.device:
        lines.append("    torch.cuda.synchronize()")
    if candidate.backward:
        lines += _BACKWARD
    if candidate.draws_inductor_random_numbers:
        lines += _forms(candidate, failure)
    elif candidate.backward:
        lines.append("    return outputs, gradients")
    elif any(place.startswith("input") for place in failure.where):
        lines.append("    return outputs, arguments")
    elif failure.aspect == "sharing":
        lines += _SHARING
    else:
        lines.append("    return outputs")
    if candidate.earlier is not None:
        lines += _TWO_CALLS
    return "\n".join(lines)


def _marks(candidate: Candidate) -> list[str]:
    return [
        f"    torch._dynamo.decorators.{mark.function}(arguments[{number}], {mark.dimension}"
        + "".join(f", {name}={bound}" for name, bound in mark.bounds.items())
        + ")"
        for number, mark in marked_inputs(candidate.module, candidate.marks)
    ]


_TWO_CALLS = [
    "",
    "",
    "def run(function):",
    '    """The second call is the one that goes wrong; what the first one compiled serves it."""',
    "    call(function, earlier_inputs())",
    "    return call(function, inputs())",
]

_BACKWARD = [
    "    ends = outputs if isinstance(outputs, tuple) else (outputs,)",
    "    ends = [end for end in ends if isinstance(end, torch.Tensor) and end.requires_grad]",
    "    leaves = [a for a in arguments if isinstance(a, torch.Tensor) and a.requires_grad]",
    "    torch.manual_seed(1)",
    "    weights = [torch.randn_like(end) for end in ends]",
    "    gradients = torch.autograd.grad(ends, leaves, weights, allow_unused=True)",
    "    gradients = [gradient for gradient in gradients if gradient is not None]",
]


def _forms(candidate: Candidate, failure: Failure) -> list[str]:
    """Types and shapes, and strides if they are what is wrong: the numbers are random."""
    ends, first = "(*ends, *gradients)", []
    if not candidate.backward:
        ends, first = "ends", ["    ends = outputs if isinstance(outputs, tuple) else (outputs,)"]
    strides = ", end.stride()" if failure.aspect == "stride" else ""
    return [*first, f"    return [(end.dtype, end.shape{strides}) for end in {ends}]"]


_SHARING = [
    "    ends = outputs if isinstance(outputs, tuple) else (outputs,)",
    "    named = {f'input {n}': a for n, a in enumerate(arguments)}",
    "    named.update((f'output {n}', end) for n, end in enumerate(ends))",
    "    named = {n: value for n, value in named.items() if isinstance(value, torch.Tensor)}",
    "    memory = {name: value.untyped_storage().data_ptr() for name, value in named.items()}",
    "    pairs = [(a, b) for a in memory for b in memory if a < b and memory[a] == memory[b]]",
    "    return [[a, b, 'same' if named[a] is named[b] else 'alias'] for a, b in pairs]",
]


def _compile(candidate: Candidate) -> str:
    if candidate.flow == AOT_INDUCTOR:
        return "packaged"
    extra = ""
    if candidate.dynamic is not None:
        extra += f", dynamic={candidate.dynamic}"
    if candidate.options:
        extra += f", options={options_text(candidate)}"
    return f"torch.compile(fn{extra})"


def _main(candidate: Candidate, failure: Failure, own_passes: str, lowered: int) -> str:
    compiled = _compile(candidate)
    if failure.kind == ERROR:
        lines = ["run(fn)", 'print("eager: ok")', f"run({compiled})", 'print("compiled: ok")']
        return _under_main(lines)
    if failure.kind == SLOW:
        return slow_compile_text(candidate, compiled, own_passes, lowered)
    if failure.kind in (SIGNAL, HANG):
        return _watched(compiled, candidate.size if failure.kind == HANG else None)
    lines = [
        "eager = run(fn)",
        *_compiled_run(compiled, in_filled_memory=_needs_filled_memory(candidate, failure)),
        'print("eager:   ", eager)',
        'print("compiled:", compiled)',
    ]
    if failure.aspect == "sharing":
        lines.append("assert compiled == eager, 'compiled shares memory where eager does not'")
    elif candidate.draws_inductor_random_numbers:
        what = "types, shapes or strides" if failure.aspect == "stride" else "types or shapes"
        lines.append(f"assert compiled == eager, '{what} differ'")
    else:
        lines.append(f"torch.testing.assert_close(compiled, eager, {_tolerance(failure)})")
    return _under_main(lines)


def _compiled_run(compiled: str, *, in_filled_memory: bool) -> list[str]:
    if not in_filled_memory:
        return [f"compiled = run({compiled})"]
    return [
        f"function = {compiled}",
        "run(function)",
        "fill_free_memory()",
        "compiled = run(function)",
    ]


def _needs_filled_memory(candidate: Candidate, failure: Failure) -> bool:
    """Whether it may be right by chance: what was never written holds what was there before."""
    return failure.kind == NAN and failure.memory_was_filled and bool(candidate.device)


_FILL_FREE_MEMORY = (
    "def fill_free_memory():",
    '    """Lets the memory that is handed out next hold NaN, as it may in any program."""',
    "    sizes = [2**power for power in range(7, 25) for _ in range(4)]",
    '    blocks = [torch.full((size,), float("nan"), device="cuda") for size in sizes]',
    "    torch.cuda.synchronize()",
    "    del blocks",
)


def _tolerance(failure: Failure) -> str:
    if failure.aspect == "stride":
        return "equal_nan=True, check_stride=True"
    allowed, largest = failure.allowed, failure.largest
    if failure.aspect == "value" and 1e-5 < allowed < largest < float("inf"):
        # Rounding may explain this much; the bug is larger.
        return f"equal_nan=True, rtol=0, atol={(allowed * largest) ** 0.5:.3g}"
    return "equal_nan=True"


def _under_main(lines: list[str]) -> str:
    return 'if __name__ == "__main__":\n' + "\n".join(f"    {line}" for line in lines)


def _watched(compiled: str, nodes: int | None) -> str:
    """`nodes` of a graph whose compile hangs; None for one that dies."""
    hangs = nodes is not None
    lines = ['print("eager ended with", ending(fn))']
    if nodes is not None:
        lines = [
            "started = time.monotonic()",
            *lines,
            "# Many times as long as eager and a compile without Inductor take here and now.",
            'ending(torch.compile(lambda *inputs: torch.ones(3) + 1, backend="aot_eager"))',
            f"limit = max({max(HANG_SECONDS, nodes)}, 10 * (time.monotonic() - started))",
        ]
    lines += [
        f"compiled = ending({compiled}{', limit' if hangs else ''})",
        'print("compiled ended with", compiled)',
        "sys.exit(0 if compiled == 0 else 1)",
    ]
    return "\n".join([*(_ENDING_IN_TIME if hangs else _ENDING), "", "", _under_main(lines)])


_ENDING = (
    "def ending(function):",
    '    """The exit code of a child process, which this bug kills: minus the signal."""',
    '    process = multiprocessing.get_context("fork").Process(target=run, args=[function])',
    "    process.start()",
    "    process.join()",
    "    return process.exitcode",
)
_ENDING_IN_TIME = (
    "def ending(function, seconds=60):",
    '    """The exit code of a child process; None if it does not end in time."""',
    '    process = multiprocessing.get_context("fork").Process(target=run, args=[function])',
    "    process.start()",
    "    process.join(seconds)",
    "    code = process.exitcode",
    "    process.kill()",
    "    return code",
)


def expected_output(failure: Failure) -> list[str]:
    """What the script has to print: that eager is well, and what compiled does."""
    if failure.kind == ERROR:
        return ["eager: ok", failure.aspect]
    if failure.kind == SIGNAL:
        number = int(getattr(signal, failure.aspect, 0))
        return ["eager ended with 0", f"compiled ended with -{number or ''}"]
    if failure.kind == HANG:
        return ["eager ended with 0", "compiled ended with None"]
    if failure.kind == SLOW:
        return ["eager: ok", "compiled: too slow"]
    return ["compiled:", "AssertionError"]


def title_of(failure: Failure, flow: str, operations: Sequence[str]) -> str:
    """What the script shows, in one line."""
    compiler = flow or "torch.compile"
    kinds = {
        WRONG: f"{compiler} gives a different result from eager",
        NAN: f"{compiler} gives NaN or Inf where eager is finite",
        ERROR: f"{compiler} fails with {failure.aspect}",
        SIGNAL: f"{compiler} ends the process with {failure.aspect}",
        HANG: f"{compiler} never finishes",
        SLOW: f"{compiler} takes far longer than for other graphs of this size",
    }
    return f"{kinds[failure.kind]}: {', '.join(operations[:4]) or 'a small graph'}"
