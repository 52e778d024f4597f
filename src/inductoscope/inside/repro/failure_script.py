"""Writes a failing candidate as one script that needs only torch, ready for a bug report.

Whatever the kind of failure, it exits with 1 if the bug is there and with 0 if it is not. A bug
that kills or hangs the process runs in a child process.
"""

from __future__ import annotations

import platform
import shlex
import signal
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from inductoscope.doctor.failure import (
    ERROR,
    HANG,
    NAN,
    SIGNAL,
    SLOW,
    WRONG,
    Failure,
)
from inductoscope.inside.compare.graphs import as_function, input_names
from inductoscope.inside.compare.values import draws_random_numbers
from inductoscope.inside.repro.python_text import function_text
from inductoscope.inside.repro.source_text import literal
from inductoscope.inside.search.candidate import Candidate, marked_inputs, special_flow
from inductoscope.inside.search.forks import Forks
from inductoscope.inside.search.input_recipes import shared_name
from inductoscope.inside.search.oracle import Oracle
from inductoscope.inside.search.placement import eager_values, placed
from inductoscope.inside.search.program_state import TorchState, current_state, to_be_made
from inductoscope.packages import cpp_library
from inductoscope.torch_facts.stages import AOT_INDUCTOR

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


# --------------------------------------------------------------------------------------------------
# The part of a script that exports a function, packages it with AOTInductor, and calls that.


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


# --------------------------------------------------------------------------------------------------
# The end of a script that shows a compile which takes too long: it is timed beside plain ones.

# The stage alone takes 1.5 times as long as a whole plain compile, the whole then 2.5 times.
_TIMES = 2

# The function that replaces parts of torch, if the program has done that.
REPLACE = "replace_parts_of_torch"

_TEXT = '''\
def plain(x):
    """Pointwise operations, as many as the graph is lowered to: what to expect of its compile."""
    for _ in range({nodes}):
        x = torch.sin(x)
    return x


def run_plain(function):
    result = function(torch.rand(32, 64, requires_grad={backward}))
    if result.requires_grad:
        result.sum().backward()


def clocks():
    """Seconds; the same without those spent waiting for a processor; seconds of processors."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            delayed = int(file.read().split()[1]) / 1e9
    except OSError:  # Only Linux says so.
        delayed = 0.0
    return time.monotonic(), time.monotonic() - delayed, sum(os.times()[:4])


def seconds(work):
    started = clocks()
    work()
    return [after - before for before, after in zip(started, clocks())]


def compile_seconds(function, call, again):
    """What the first call takes longer than another one."""
    torch._dynamo.reset()
    with fresh_cache():  # Nothing comes from a cache, and torch's own cache stays as it is.
        first = seconds(lambda: call(function))
        return [a - b for a, b in zip(first, seconds(lambda: call(again)))]


def plain_seconds():
    function = torch.compile(plain{dynamic})
    return compile_seconds(function, run_plain, function)


if __name__ == "__main__":
    run(fn)
    print("eager: ok")
    plain_seconds()  # The first compile loads the compiler.
    usual = [plain_seconds(), plain_seconds()]
{replaced}    function = {compiled}
    own = compile_seconds(function, run, {again})
{after}    usual = [max(each) for each in zip(*usual)]
    print(f"{nodes} pointwise operations: {{usual[0]:.1f}} s, this graph: {{own[0]:.1f}} s")
    is_longer = own[0] > {times} * usual[0] and own[1] > {times} * usual[1]
    # A busy machine is no reason: it has to compute for longer, or to wait for something else.
    if is_longer and (own[2] > {times} * usual[2] or own[2] < own[1] / 3):
        print(f"compiled: too slow, {{own[0] / usual[0]:.1f}} times")
        sys.exit(1)'''


def slow_compile_text(candidate: Candidate, compiled: str, own: str, lowered: int = 0) -> str:
    """The functions that time compiles, and the main part; `own` may define REPLACE.

    Plain graphs are timed before anything of torch is replaced, and after the graph if nothing is.
    `lowered` is how many nodes the graph is lowered to, those of its backward included.
    """
    is_replaced = f"def {REPLACE}()" in own
    nodes = max(candidate.size, lowered, 3)
    is_dynamic = candidate.dynamic or bool(candidate.marks)
    return _TEXT.format(
        nodes=(nodes + 1) // 2 if candidate.backward else nodes,
        backward=candidate.backward,
        dynamic=", dynamic=True" if is_dynamic else "",
        compiled=compiled,
        again="fn" if candidate.flow == AOT_INDUCTOR else "function",
        times=_TIMES,
        replaced=f"    {REPLACE}()\n" if is_replaced else "",
        after="" if is_replaced else "    usual.append(plain_seconds())\n",
    )


# --- The part of a script that puts NaN in and around tensors, for bugs that need it to show ------

IN_FILLED_MEMORY = "in_filled_memory"

_FUNCTIONS = f"""\
def filled(size, stride, dtype):
    \"\"\"A new tensor. All bytes in it, before it and after it are 255: NaN, or -1.\"\"\"
    length = (1 + sum((n - 1) * step for n, step in zip(size, stride))) * dtype.itemsize
    if 0 in size:
        return torch.empty(size, dtype=dtype, device="cpu")
    memory = torch.full((length + 8192,), 255, dtype=torch.uint8, device="cpu")
    part = (ctypes.c_char * length).from_address(memory.data_ptr() + 4096)
    part.whole = memory  # It lives as long as its part.
    return torch.frombuffer(part, dtype=dtype).as_strided(size, stride)


def {IN_FILLED_MEMORY}(values):
    \"\"\"The same tensors, with other bytes beside them: compiled code must not read those.\"\"\"
    owners = [value.untyped_storage().data_ptr() for value in values if torch.is_tensor(value)]
    found = []
    for value in values:
        if torch.is_tensor(value) and value.is_contiguous():
            if owners.count(value.untyped_storage().data_ptr()) == 1:
                copy = filled(value.shape, value.stride(), value.dtype).copy_(value.detach())
                value = copy.requires_grad_(value.requires_grad)
        found.append(value)
    return found
"""
_BUFFERS = """\


# Compiled code gets its buffers from this function.
torch._C._dynamo.guards._empty_strided_cpu = filled"""


def filled_memory_text(candidate: Candidate) -> str:
    """Functions for the inputs; buffers are out of reach where the wrapper is C++."""
    has_cpp_wrapper = bool(special_flow(candidate))
    return (_FUNCTIONS if has_cpp_wrapper else _FUNCTIONS + _BUFFERS).rstrip("\n")


# --- The program's settings in torch as lines of a script, as far as a fresh process differs ------

_USUAL_PRECISION = "highest"


def setting_lines(state: TorchState) -> list[str]:
    """What the script sets once."""
    lines = []
    if state.default_dtype != torch.float32:
        lines.append(f"torch.set_default_dtype({state.default_dtype})")
    if state.determinism:
        only_warns = ", warn_only=True" if state.determinism == 1 else ""
        lines.append(f"torch.use_deterministic_algorithms(True{only_warns})")
    if state.precision not in ("", _USUAL_PRECISION):
        lines.append(f"torch.set_float32_matmul_precision({state.precision!r})")
    backends = state.unusual_backends.items()
    return lines + [f"torch.backends.{path} = {value!r}" for path, value in backends]


def call_lines(state: TorchState, candidate: Candidate) -> list[str]:
    """The call of the function in the contexts that the program has entered."""
    call = "outputs = function(*arguments)"
    contexts = [f"torch.autocast({name!r}, {dtype})" for name, dtype in state.autocast.items()]
    if not state.gradients and any(map(_requires_grad, candidate.inputs)):
        contexts.insert(0, "torch.no_grad()")
    if not contexts:
        return [f"    {call}"]
    return [f"    with {', '.join(contexts)}:", f"        {call}"]


def _requires_grad(value: Any) -> bool:
    items: Sequence[Any] = value if isinstance(value, (list, tuple)) else [value]
    return any(isinstance(item, torch.Tensor) and item.requires_grad for item in items)


# --------------------------------------------------------------------------------------------------
# What of the program's settings in torch a failure needs, so that a script can have it, too.


def needed_state(candidate: Candidate, failure: Failure, oracle: Oracle) -> TorchState:
    """The state of the program, without autocast if the failure shows without it."""
    state = current_state()
    if not state.autocast:
        return state
    without = replace(state, autocast={})
    with without.entered():
        again = oracle.failure(candidate, label=" without autocast")
    return without if again is not None and again.is_same_as(failure) else state


def repeatable(smallest: Candidate, forks: Forks) -> Candidate:
    """With the random numbers that eager draws, if any: this process is set so already."""
    function = as_function(smallest.module)
    draws = forks.ask(lambda: draws_random_numbers(function, placed(smallest).inputs))
    if not draws.result or smallest.draws_inductor_random_numbers:
        return smallest
    return replace(smallest, config={**smallest.config, "fallback_random": True})
