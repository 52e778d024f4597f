"""Writes a failing candidate as one script that needs only torch, ready for a bug report.

Whatever the kind of failure, it exits with 1 if the bug is there and with 0 if it is not. A bug
that kills or hangs the process runs in a child process. A script is a list of sections: each is a
text at the end of this file, or lines that depend on the candidate.
"""

from __future__ import annotations

import platform
import re
import shlex
import signal
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from inductoscope.doctor.failure import ERROR, HANG, LOST_CHECK, NAN, SIGNAL, SLOW, WRONG, Failure
from inductoscope.inside.compare.graphs import as_function, input_names
from inductoscope.inside.compare.values import draws_random_numbers
from inductoscope.inside.repro.python_text import function_text
from inductoscope.inside.repro.source_text import literal
from inductoscope.inside.search.candidate import Candidate, marked_inputs, open_sizes, special_flow
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
# The stage alone takes 1.5 times as long as a whole plain compile, the whole then 2.5 times.
_TIMES_SLOW = 2
# The function that replaces parts of torch, if the program has done that.
REPLACE = "replace_parts_of_torch"


def script_text(
    candidate: Candidate,
    failure: Failure,
    title: str,
    *,
    state: TorchState | None = None,
    own_passes: str = "",
    lowered: int = 0,
) -> str:
    """Return the script; `state` is the program's torch state, `own_passes` registers its passes.

    The default state is that of this thread. `lowered` is the number of nodes that the graph is
    lowered to, where that matters.
    """
    state = state or current_state()
    function, parameters = function_text(candidate.module)
    sections = [
        own_passes,
        "\n".join([*_state_lines(state), *_config_lines(candidate)]),
        function,
        filled_memory_text(candidate) if candidate.guarded else "",
        _ON_GPU if candidate.device else "",
        *_inputs_of_calls(candidate, parameters),
        _packaged_text(candidate, parameters) if candidate.flow == AOT_INDUCTOR else "",
        _run_text(candidate, failure, state),
        _FILL_FREE_MEMORY if _needs_filled_memory(candidate, failure) else "",
        _main_text(candidate, failure, own_passes, lowered),
    ]
    body = "\n\n\n".join(section for section in sections if section)
    in_child = bool(candidate.device) and failure.kind in (SIGNAL, HANG)
    head = [_head(title, candidate), _imports(body, in_child=in_child)]
    return "\n\n".join(head) + f"\n\n\n{body}\n"


def expected_output(failure: Failure) -> list[str]:
    """Return texts that the script has to print: eager's success and compiled code's failure."""
    if failure.kind == ERROR:
        return ["eager: ok", failure.aspect]
    if failure.kind == SIGNAL:
        number = int(getattr(signal, failure.aspect, 0))
        # A process ends with 1 if an exception ends it.
        return [
            f"eager ended with {int(bool(failure.eager_error))}",
            f"compiled ended with -{number or ''}",
        ]
    if failure.kind == HANG:
        return ["eager ended with 0", "compiled ended with None"]
    if failure.kind == SLOW:
        return ["eager: ok", "compiled: too slow"]
    if failure.kind == LOST_CHECK:
        eager = failure.eager_error.partition(":")[0]
        return [f"eager: raises {eager}", f"compiled: {_instead(failure)}"]
    return ["compiled:", "AssertionError"]


def title_of(failure: Failure, flow: str, operations: Sequence[str]) -> str:
    """Return a one-line title for the bug that the script shows."""
    compiler = flow or "torch.compile"
    kinds = {
        WRONG: f"{compiler} gives a different result from eager",
        NAN: f"{compiler} gives NaN or Inf where eager is finite",
        LOST_CHECK: f"{compiler} {_instead(failure)} where eager raises {failure.eager_error}",
        ERROR: f"{compiler} fails with {failure.aspect}",
        SIGNAL: f"{compiler} ends the process with {failure.aspect}",
        HANG: f"{compiler} never finishes",
        SLOW: f"{compiler} takes far longer than for other graphs of this size",
    }
    return f"{kinds[failure.kind]}: {', '.join(operations[:4]) or 'a small graph'}"


def _instead(failure: Failure) -> str:
    return f"raises {failure.aspect}" if failure.aspect else "returns"


# --- what a script needs of the program's state ---------------------------------------------------


def needed_state(candidate: Candidate, failure: Failure, oracle: Oracle) -> TorchState:
    """Return the program's state, without autocast if the failure shows without it."""
    state = current_state()
    if not state.autocast:
        return state
    without = replace(state, autocast={})
    with without.entered():
        again = oracle.failure(candidate, label=" without autocast")
    return without if again is not None and again.is_same_as(failure) else state


def repeatable(smallest: Candidate, forks: Forks) -> Candidate:
    """Set `fallback_random`, as in this process, if the candidate draws random numbers."""
    function = as_function(smallest.module)
    draws = forks.ask(lambda: draws_random_numbers(function, placed(smallest).inputs))
    if not draws.result or smallest.draws_inductor_random_numbers:
        return smallest
    return replace(smallest, config={**smallest.config, "fallback_random": True})


# --- head and settings ----------------------------------------------------------------------------


def _head(title: str, candidate: Candidate) -> str:
    system = f"{platform.system()} {platform.machine()}"
    versions = f"torch {torch.__version__}, Python {platform.python_version()}, {system}"
    if candidate.device.startswith("cuda") or torch.cuda.is_initialized():
        # This process itself may not be allowed to initialise CUDA.
        versions += f", {eager_values(candidate, lambda _: torch.cuda.get_device_name())}"
    text = "\n".join(textwrap.wrap(title, _LINE)).replace("\\", "/").replace('"""', "'''")
    return f'"""{text}\n\n{versions}. Exits with 1 if the bug is there.\n"""'


_STANDARD = ("base64", "ctypes", "multiprocessing", "os", "sys", "tempfile", "time", "zlib")
# Imports that a script with these texts needs.
_OF_TORCH = {
    "torch._inductor.config.": "import torch._inductor.config",
    "torch._inductor.aoti_": "import torch._inductor",
    "fresh_cache()": "from torch._inductor.utils import fresh_cache",
}


def _imports(body: str, *, in_child: bool) -> str:
    used = [name for name in _STANDARD if re.search(rf"(?<![\w.]){name}\.", body)]
    if in_child:
        used = sorted({*used, "os"})
    of_torch = ["import torch", *(line for sign, line in _OF_TORCH.items() if sign in body)]
    standard = "\n".join(f"import {name}" for name in used)
    groups = [standard, _GPU_IN_FORKS if in_child else "", "\n".join(of_torch)]
    return "\n\n".join(group for group in groups if group)


def _state_lines(state: TorchState) -> list[str]:
    """Return statements for torch settings that differ from a fresh process."""
    lines = []
    if state.default_dtype != torch.float32:
        lines.append(f"torch.set_default_dtype({state.default_dtype})")
    if state.determinism:
        only_warns = ", warn_only=True" if state.determinism == 1 else ""
        lines.append(f"torch.use_deterministic_algorithms(True{only_warns})")
    if state.precision not in ("", "highest"):
        lines.append(f"torch.set_float32_matmul_precision({state.precision!r})")
    backends = state.unusual_backends.items()
    return lines + [f"torch.backends.{path} = {value!r}" for path, value in backends]


def _config_lines(candidate: Candidate) -> list[str]:
    settings = to_be_made(candidate.config).items()
    return [f"torch._inductor.config.{name} = {value!r}" for name, value in settings]


# --- inputs ---------------------------------------------------------------------------------------


def _inputs_of_calls(candidate: Candidate, parameters: Sequence[str]) -> list[str]:
    made = {"earlier_inputs": candidate.earlier_recipes} if candidate.earlier is not None else {}
    made["inputs"] = candidate.recipes
    return [_inputs_text(candidate, *each, parameters) for each in made.items()]


def _inputs_text(
    candidate: Candidate, function: str, texts: Sequence[str], names: Sequence[str]
) -> str:
    lines = [f"def {function}():"]
    if any("torch.rand" in recipe for recipe in texts):
        lines.append("    torch.manual_seed(0)")
    recipes = list(texts)
    for number, recipe in enumerate(recipes):
        name = shared_name(number)
        if any(f"{name}." in other for other in recipes):
            lines.append(f"    {name} = {recipe}")
            recipes[number] = name
    before, after = _around_inputs(candidate)
    if len(recipes) == 1:
        return "\n".join([*lines, f"    return {before}[{recipes[0]}]{after}"])
    lines.append(f"    return {before}[")
    lines += [f"        {recipe},  # {name}" for recipe, name in zip(recipes, names, strict=True)]
    return "\n".join([*lines, f"    ]{after}"])


def _around_inputs(candidate: Candidate) -> tuple[str, str]:
    """Return the beginning and end of the call that places the inputs in memory."""
    if candidate.device:
        names = input_names(candidate.module)
        left = [number for number, name in enumerate(names) if name in candidate.on_cpu]
        return "on_gpu(", f", but={left})" if left else ")"
    return ("in_filled_memory(", ")") if candidate.guarded else ("", "")


def filled_memory_text(candidate: Candidate) -> str:
    """Return code that puts NaN in and around inputs, and buffers of Python wrappers."""
    return _FILLED_MEMORY if special_flow(candidate) else _FILLED_MEMORY + _FILLED_BUFFERS


def _needs_filled_memory(candidate: Candidate, failure: Failure) -> bool:
    """Check whether a GPU run may be right by chance, because of stale memory contents."""
    return failure.kind == NAN and failure.memory_was_filled and bool(candidate.device)


# --- the call -------------------------------------------------------------------------------------


def _run_text(candidate: Candidate, failure: Failure, state: TorchState) -> str:
    """Return the function `run`, which calls its argument and returns the values to compare."""
    lines = ["def run(function):", "    arguments = inputs()"]
    if candidate.earlier is not None:
        lines = ["def call(function, arguments):"]
    if candidate.flow != AOT_INDUCTOR:
        lines += _mark_lines(candidate)
    if candidate.config.get("fallback_random"):
        lines.append("    torch.manual_seed(0)")
    lines += _call_lines(state, candidate)
    if candidate.device:
        lines.append("    torch.cuda.synchronize()")
    if candidate.backward:
        lines.append(_BACKWARD)
    lines.append(_returned(candidate, failure))
    if candidate.earlier is not None:
        lines.append(_TWO_CALLS)
    return "\n".join(lines)


def _mark_lines(candidate: Candidate) -> list[str]:
    return [
        f"    torch._dynamo.decorators.{mark.function}(arguments[{number}], {mark.dimension}"
        + "".join(f", {name}={bound}" for name, bound in mark.bounds.items())
        + ")"
        for number, mark in marked_inputs(candidate.module, candidate.marks)
    ]


def _call_lines(state: TorchState, candidate: Candidate) -> list[str]:
    """Return the call of the function, in the contexts that the program has entered."""
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


def _returned(candidate: Candidate, failure: Failure) -> str:
    if candidate.draws_inductor_random_numbers:
        # The numbers are random: types and shapes, and strides if they are what is wrong.
        strides = ", end.stride()" if failure.aspect == "stride" else ""
        ends = "(*ends, *gradients)" if candidate.backward else "ends"
        first = "" if candidate.backward else f"{_ENDS}\n"
        return f"{first}    return [(end.dtype, end.shape{strides}) for end in {ends}]"
    if candidate.backward:
        return "    return outputs, gradients"
    if any(place.startswith("input") for place in failure.where):
        return "    return outputs, arguments"
    return _SHARING if failure.aspect == "sharing" else "    return outputs"


# --- the main part --------------------------------------------------------------------------------


def _main_text(candidate: Candidate, failure: Failure, own_passes: str, lowered: int) -> str:
    compiled = _compiled(candidate)
    if failure.kind == SLOW:
        return slow_compile_text(candidate, compiled, own_passes, lowered)
    is_filled = _needs_filled_memory(candidate, failure)
    differs = _DIFFERS_IN_FILLED_MEMORY if is_filled else _DIFFERS
    text = {ERROR: _RAISES, SIGNAL: _DIES, HANG: _HANGS, LOST_CHECK: _LOSES_CHECK}.get(
        failure.kind, f"{differs}\n    {_assertion(candidate, failure)}"
    )
    least = str(max(HANG_SECONDS, candidate.size))
    return text.replace("COMPILED", compiled).replace("LEAST", least)


def _compiled(candidate: Candidate) -> str:
    """Return the expression for the compiled function."""
    if candidate.flow == AOT_INDUCTOR:
        return "packaged"
    extra = f", dynamic={candidate.dynamic}" if candidate.dynamic is not None else ""
    if candidate.options:
        extra += f", options={_options_text(candidate)}"
    return f"torch.compile(fn{extra})"


def _options_text(candidate: Candidate) -> str:
    items = (f"{name!r}: {literal(value)}" for name, value in candidate.options.items())
    return f"{{{', '.join(items)}}}"


def _assertion(candidate: Candidate, failure: Failure) -> str:
    if failure.aspect == "sharing":
        return "assert compiled == eager, 'compiled shares memory where eager does not'"
    if candidate.draws_inductor_random_numbers:
        what = "types, shapes or strides" if failure.aspect == "stride" else "types or shapes"
        return f"assert compiled == eager, '{what} differ'"
    return f"torch.testing.assert_close(compiled, eager, {_tolerance(failure)})"


def _tolerance(failure: Failure) -> str:
    if failure.aspect == "stride":
        return "equal_nan=True, check_stride=True"
    allowed, largest = failure.allowed, failure.largest
    if failure.aspect == "value" and 1e-5 < allowed < largest < float("inf"):
        # The tolerance lies between rounding and the bug.
        return f"equal_nan=True, rtol=0, atol={(allowed * largest) ** 0.5:.3g}"
    return "equal_nan=True"


def slow_compile_text(candidate: Candidate, compiled: str, own: str, lowered: int = 0) -> str:
    """Return functions that time compiles, and the main part; `own` may define REPLACE.

    Plain graphs are timed before torch is patched, and again after the graph if it is not patched.
    `lowered` is the number of nodes that the graph is lowered to, including its backward.
    """
    is_replaced = f"def {REPLACE}()" in own
    nodes = max(candidate.size, lowered, 3)
    is_dynamic = candidate.dynamic or bool(candidate.marks)
    return _IS_SLOW.format(
        nodes=(nodes + 1) // 2 if candidate.backward else nodes,
        backward=candidate.backward,
        dynamic=", dynamic=True" if is_dynamic else "",
        compiled=compiled,
        again="fn" if candidate.flow == AOT_INDUCTOR else "function",
        times=_TIMES_SLOW,
        replaced=f"    {REPLACE}()\n" if is_replaced else "",
        after="" if is_replaced else "    usual.append(plain_seconds())\n",
    )


# --- packages -------------------------------------------------------------------------------------


def _packaged_text(candidate: Candidate, parameters: Sequence[str]) -> str:
    """Return the function `packaged`, which runs `fn` through an AOTInductor package."""
    names = input_names(candidate.module)
    stored = [number for number, name in enumerate(names) if name in candidate.constants]
    # The script compiles for the inputs of the first call, and keeps the package while it runs.
    kept = ["folder = tempfile.TemporaryDirectory()", "loaded = []"]
    if _brings_cpp_library():
        # The package would otherwise crash while it is loaded, whatever is in it.
        kept += [_CPP_LIBRARY, cpp_library.CODE]
    function = _PACKAGED.format(
        constants=_PACKAGED_CONSTANTS.format(stored=stored) if stored else "",
        program="Program(*stored)" if stored else "Program()",
        given="rest" if stored else "arguments",
        shapes=_dynamic_shapes(candidate),
        options=f", inductor_configs={_options_text(candidate)}" if candidate.options else "",
    )
    return "\n\n\n".join([_program_class(stored, parameters), "\n".join(kept), function])


def _brings_cpp_library() -> bool:
    """Check whether packages built on this machine contain a copy of libstdc++."""
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        compiler = get_cpp_compiler()
    except RuntimeError:
        return False
    return _links_statically(compiler)


@cache  # It runs the compiler, and many scripts are written.
def _links_statically(compiler: str) -> bool:
    return cpp_library.linked_by(shlex.split(compiler)).endswith(".a")


def _program_class(stored: Sequence[int], parameters: Sequence[str]) -> str:
    """Return the function as a module, as torch.export requires."""
    given = [name for number, name in enumerate(parameters) if number not in stored]
    every = [f"self.{name}" if n in stored else name for n, name in enumerate(parameters)]
    lines = ["class Program(torch.nn.Module):"]
    if stored:
        kept = [parameters[number] for number in stored]
        lines += [f"    def __init__(self, {', '.join(kept)}):", "        super().__init__()"]
        lines += [f'        self.register_buffer("{name}", {name})' for name in kept]
        lines.append("")
    lines.append(f"    def forward({', '.join(['self', *given])}):")
    lines.append(f"        return fn({', '.join(every)})")
    return "\n".join(lines)


def _dynamic_shapes(candidate: Candidate) -> str:
    """Return the dynamic_shapes argument of torch.export: a dict of dimensions per input."""
    every = open_sizes(candidate)
    if not any(every):
        return ""
    texts = []
    for sizes in every:
        own = [f"{number}: {_dimension(bounds)}" for number, bounds in (sizes or {}).items()]
        texts.append("None" if sizes is None else f"{{{', '.join(own)}}}")
    end = "," if len(texts) == 1 else ""
    return f", dynamic_shapes=({', '.join(texts)}{end})"


def _dimension(bounds: Mapping[str, int]) -> str:
    given = ", ".join(f"{name}={bound}" for name, bound in bounds.items())
    return f"torch.export.Dim.AUTO({given})" if given else "torch.export.Dim.AUTO"


# --- the texts ------------------------------------------------------------------------------------

_GPU_IN_FORKS = """\
# Otherwise a child process could not use the GPU once this one has asked for it.
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1\""""

_ON_GPU = '''\
def on_gpu(values, but=()):
    """The tensors in GPU memory, with the same strides, sharing memory as they do here."""
    memory, found = {}, []
    for number, value in enumerate(values):
        if isinstance(value, torch.Tensor) and number not in but:
            own = value.untyped_storage()
            there = memory.setdefault(own.data_ptr(), own.cuda())
            place = there, value.storage_offset(), value.shape, value.stride()
            moved = torch.empty(0, dtype=value.dtype, device="cuda").set_(*place)
            value = moved.requires_grad_(value.requires_grad)
        found.append(value)
    return found'''

_FILLED_MEMORY = '''\
def filled(size, stride, dtype):
    """A new tensor. All bytes in it, before it and after it are 255: NaN, or -1."""
    length = (1 + sum((n - 1) * step for n, step in zip(size, stride))) * dtype.itemsize
    if 0 in size:
        return torch.empty(size, dtype=dtype, device="cpu")
    memory = torch.full((length + 8192,), 255, dtype=torch.uint8, device="cpu")
    part = (ctypes.c_char * length).from_address(memory.data_ptr() + 4096)
    part.whole = memory  # It lives as long as its part.
    return torch.frombuffer(part, dtype=dtype).as_strided(size, stride)


def in_filled_memory(values):
    """The same tensors, with other bytes beside them: compiled code must not read those."""
    owners = [value.untyped_storage().data_ptr() for value in values if torch.is_tensor(value)]
    found = []
    for value in values:
        if torch.is_tensor(value) and value.is_contiguous():
            if owners.count(value.untyped_storage().data_ptr()) == 1:
                copy = filled(value.shape, value.stride(), value.dtype).copy_(value.detach())
                value = copy.requires_grad_(value.requires_grad)
        found.append(value)
    return found'''

_FILLED_BUFFERS = """


# Compiled code gets its buffers from this function.
torch._C._dynamo.guards._empty_strided_cpu = filled"""

_FILL_FREE_MEMORY = '''\
def fill_free_memory():
    """Lets the memory that is handed out next hold NaN, as it may in any program."""
    sizes = [2**power for power in range(7, 25) for _ in range(4)]
    blocks = [torch.full((size,), float("nan"), device="cuda") for size in sizes]
    torch.cuda.synchronize()
    del blocks'''

_ENDS = "    ends = outputs if isinstance(outputs, tuple) else (outputs,)"

_BACKWARD = f"""\
{_ENDS}
    ends = [end for end in ends if isinstance(end, torch.Tensor) and end.requires_grad]
    leaves = [a for a in arguments if isinstance(a, torch.Tensor) and a.requires_grad]
    torch.manual_seed(1)
    weights = [torch.randn_like(end) for end in ends]
    gradients = torch.autograd.grad(ends, leaves, weights, allow_unused=True)
    gradients = [gradient for gradient in gradients if gradient is not None]"""

_SHARING = f"""\
{_ENDS}
    named = {{f'input {{n}}': a for n, a in enumerate(arguments)}}
    named.update((f'output {{n}}', end) for n, end in enumerate(ends))
    named = {{n: value for n, value in named.items() if isinstance(value, torch.Tensor)}}
    memory = {{name: value.untyped_storage().data_ptr() for name, value in named.items()}}
    pairs = [(a, b) for a in memory for b in memory if a < b and memory[a] == memory[b]]
    return [[a, b, 'same' if named[a] is named[b] else 'alias'] for a, b in pairs]"""

_TWO_CALLS = '''

def run(function):
    """The second call is the one that goes wrong; what the first one compiled serves it."""
    call(function, earlier_inputs())
    return call(function, inputs())'''

_CPP_LIBRARY = (
    "# The C++ compiler puts a copy of libstdc++ into the package: let torch's own come first."
)

_PACKAGED_CONSTANTS = """
    stored = [arguments[n] for n in {stored}]
    rest = tuple(a for n, a in enumerate(arguments) if n not in {stored})"""

_PACKAGED = '''\
def packaged(*arguments):
    """Exported, compiled with AOTInductor, packaged, loaded and called."""{constants}
    if not loaded:
        exported = torch.export.export({program}, {given}{shapes})
        path = torch._inductor.aoti_compile_and_package(
            exported, package_path=f"{{folder.name}}/model.pt2"{options}
        )
        loaded.append(torch._inductor.aoti_load_package(path))
    (model,) = loaded
    return model(*{given})'''

_RAISES = """\
if __name__ == "__main__":
    run(fn)
    print("eager: ok")
    run(COMPILED)
    print("compiled: ok")"""

_LOSES_CHECK = '''\
def ending(function):
    """How a call ends: the error that it raises, or its result."""
    try:
        result = run(function)
    except Exception as error:
        return type(error), f"raises {type(error).__name__}: {error}"
    return None, f"returns {result}"


if __name__ == "__main__":
    expected, eager = ending(fn)
    print("eager:", eager)
    raised, compiled = ending(COMPILED)
    print("compiled:", compiled)
    is_lost = expected and not (raised and issubclass(raised, expected))
    sys.exit(1 if is_lost else 0)'''

_DIFFERS = """\
if __name__ == "__main__":
    eager = run(fn)
    compiled = run(COMPILED)
    print("eager:   ", eager)
    print("compiled:", compiled)"""

_DIFFERS_IN_FILLED_MEMORY = _DIFFERS.replace(
    "    compiled = run(COMPILED)",
    """\
    function = COMPILED
    run(function)
    fill_free_memory()
    compiled = run(function)""",
)

_DIES = '''\
def ending(function):
    """The exit code of a child process, which this bug kills: minus the signal."""
    process = multiprocessing.get_context("fork").Process(target=run, args=[function])
    process.start()
    process.join()
    return process.exitcode


if __name__ == "__main__":
    eager = ending(fn)
    print("eager ended with", eager)
    compiled = ending(COMPILED)
    print("compiled ended with", compiled)
    sys.exit(0 if compiled == eager else 1)'''

_HANGS = '''\
def ending(function, seconds=60):
    """The exit code of a child process; None if it does not end in time."""
    process = multiprocessing.get_context("fork").Process(target=run, args=[function])
    process.start()
    process.join(seconds)
    code = process.exitcode
    process.kill()
    return code


if __name__ == "__main__":
    started = time.monotonic()
    print("eager ended with", ending(fn))
    # Many times as long as eager and a compile without Inductor take here and now.
    ending(torch.compile(lambda *inputs: torch.ones(3) + 1, backend="aot_eager"))
    limit = max(LEAST, 10 * (time.monotonic() - started))
    compiled = ending(COMPILED, limit)
    print("compiled ended with", compiled)
    sys.exit(0 if compiled == 0 else 1)'''

_IS_SLOW = '''\
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
    """Seconds that the first call takes longer than another one."""
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
