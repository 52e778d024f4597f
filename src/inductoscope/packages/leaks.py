"""Whether something grows with every call: a pure function of samples taken between calls.

Memory that is set up once, caches that fill, and an allocator that keeps pages all level off. Only
what grows steadily, as much in the second half as in the first, is called growth.
"""

from __future__ import annotations

import itertools
import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from inductoscope.inside.packages.trials import REMEMBERED_CALLS
from inductoscope.packages.cpp_program import first_error, installed_compiler
from inductoscope.packages.execution import PackageFinding, RunRequest, run_package
from inductoscope.packages.package import Package, PackagedModel

# What is sampled, what it is called, and how much of it in all is worth a word.
_QUANTITIES = (
    ("allocated", "bytes allocated", 4 << 10),
    ("resident", "bytes of resident memory", 4 << 20),
    ("files", "open files", 5),
    ("threads", "threads", 5),
)
_MOST_IDLE = 0.2  # share of the windows that may pass without growth
_FAR_MORE = 4  # times as much
_LEAST_LATER = 0.35  # share of the growth that falls into the second half


@dataclass(frozen=True)
class Growth:
    """One quantity that grows with the calls."""

    quantity: str
    name: str
    total: int
    calls: int

    @property
    def per_call(self) -> float:
        """How much each call adds."""
        return self.total / self.calls

    @property
    def amount(self) -> str:
        """What each call adds, as part of a sentence."""
        name = self.name.removesuffix("s") if self.per_call == 1 else self.name
        return f"{self.per_call:.6g} {name}"

    @property
    def text(self) -> str:
        """What each call adds, in words."""
        return f"Every call adds {self.amount}, over {self.calls} calls."


def growths(samples: Sequence[Mapping[str, int]]) -> tuple[Growth, ...]:
    """Everything that grows steadily over the samples."""
    found = [_growth(quantity, name, least, samples) for quantity, name, least in _QUANTITIES]
    kept = [growth for growth in found if growth is not None]
    # Allocated bytes are exact; resident memory says the same less exactly. Tensors may lie in
    # memory that malloc does not know of, and then it says more.
    by_quantity = {growth.quantity: growth for growth in kept}
    exact, rough = by_quantity.get("allocated"), by_quantity.get("resident")
    if exact is not None and rough is not None:
        kept.remove(exact if rough.total > _FAR_MORE * exact.total else rough)
    return tuple(kept)


def _growth(
    quantity: str, name: str, least: int, samples: Sequence[Mapping[str, int]]
) -> Growth | None:
    values = [sample[quantity] for sample in samples]
    if len(values) < 5 or min(values) < 0:
        return None
    steps = [later - earlier for earlier, later in itertools.pairwise(values)]
    total = values[-1] - values[0]
    later = values[-1] - values[len(values) // 2]
    idle = sum(step <= 0 for step in steps)
    if total < least or idle > _MOST_IDLE * len(steps) or later < _LEAST_LATER * total:
        return None
    calls = samples[-1]["calls"] - samples[0]["calls"]
    # Less than one file or thread in ten calls may be something else's.
    if calls <= 0 or (quantity in ("files", "threads") and total < calls / 10):
        return None
    return Growth(quantity, name, total, calls)


# --------------------------------------------------------------------------------------------------
# What leaks where calls were seen to grow: an operator, a kernel, a library call, the container.
#
# Three trials in a child process decide: the native stacks of what was never given back, the model
# without its custom operators, and each of those operators alone.

_SOURCE = Path(__file__).with_name("leaks.cpp")
_SECONDS = 120.0
# Of what every call adds, this share has to come from one part for the part to be named.
_MOST_OF_IT = 0.7
# What so many of the calls have left is a leak of every call.
_STEADY = 0.9 * REMEMBERED_CALLS
_PROXY = ("aoti_torch_proxy_executor_call_function", "aoti_torch_call_dispatcher")
_SHIM = "aoti_torch_"
_MEMORY = ("allocated", "resident")


@dataclass(frozen=True)
class LeakedStack:
    """What one place asks for in every call and never gives back."""

    part: str  # operator, kernel, library, container, runner or unknown
    name: str  # of the kernel or the function of torch
    library: str  # the file whose code asked for it
    count: int
    bytes: int
    file: str  # what was opened; empty for memory


@dataclass(frozen=True)
class LeakTrials:
    """What the trials gave."""

    problem: str = ""  # why there were none
    stacks: tuple[LeakedStack, ...] = ()
    operators: Mapping[str, tuple[Growth, ...]] | None = None  # each alone
    without: tuple[Growth, ...] | None = None  # the model without them; None: not tried
    unread: str = ""  # why there are no stacks, though they were asked for


def look_for_leaks(
    package: Package,
    model: PackagedModel,
    request: RunRequest,
    folder: Path,
    on_step: Callable[[str], None],
) -> LeakTrials:
    """Run the trials. `folder` is for them alone."""
    folder.mkdir()
    library = folder / "leaks.so"
    problem = _build(library)
    if problem:
        return LeakTrials(problem)
    run = run_package(package, model, replace(request, leaks=library), folder, on_step)
    if run.outcome != "runs":
        return LeakTrials(f"a child process that looked for it {run.outcome}")
    names = [call.name for call in model.wrapper.calls] if model.wrapper else []
    operators, without = {}, None
    for event in run.measured:
        if event["what"] == "operator":
            operators[event["name"]] = growths(event["samples"])
        elif event["what"] == "without":
            without = growths(event["samples"])
    try:
        text = (folder / "leaks.jsonl").read_text("utf-8", "replace")
        stacks, unread = read_stacks(text, model.library_name, names), ""
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        stacks, unread = (), f"the stacks of what it asked for could not be read ({why})"
    return LeakTrials("", stacks, operators, without, unread)


def _build(target: Path) -> str:
    compiler = installed_compiler()
    if compiler is None:
        return "no C++ compiler is installed (set CXX, or install g++)"
    words = ["-O1", "-shared", "-fPIC", "-std=c++20", "-w", str(_SOURCE), "-o", str(target), "-ldl"]
    try:
        done = subprocess.run(
            [*compiler, *words], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"the compiler did not end within {_SECONDS:g} s"
    except OSError as error:
        return f"the compiler could not be started: {error}"
    return f"the compiler failed: {first_error(done.stderr)}" if done.returncode else ""


# --- stacks ---------------------------------------------------------------------------------------


def read_stacks(text: str, library: str, kernels: Sequence[str]) -> tuple[LeakedStack, ...]:
    """What was asked for in every call and not given back, by the part of the model that did."""
    rows = [json.loads(line) for line in text.splitlines()]
    frames = {row["frames_of"]: row["frames"] for row in rows if "frames" in row}
    counts: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    files: dict[int, str] = {}
    for row in rows:
        if "stack" in row:
            counts[row["stack"]] += 1
            sizes[row["stack"]] += row["bytes"]
            files[row["stack"]] = row.get("file", "")
    found = []
    for stack, count in counts.items():
        if count >= _STEADY:
            part = part_of(frames[stack], library, kernels)
            found.append(LeakedStack(*part, count, sizes[stack], files[stack]))
    return tuple(found)


def part_of(
    frames: Sequence[Sequence[str]], library: str, kernels: Sequence[str]
) -> tuple[str, str, str]:
    """Which part of the model a stack is in, its name, and the file whose code asked.

    Frames are innermost first, a function and the path of its file.
    """
    outside = [frame for frame in frames if not frame[1].endswith("/leaks.so")]
    own = next((n for n, frame in enumerate(outside) if Path(frame[1]).name == library), None)
    asking = next((Path(path).name for _, path in outside if not _is_system(path)), "")
    if own is None:
        runs = any("AOTIModel" in name for name, _ in outside)
        return ("runner" if runs else "unknown"), "", asking
    function = outside[own][0]
    if function in kernels:
        return "kernel", function, asking
    called = outside[own - 1][0] if own else ""
    if called in _PROXY:
        return "operator", "", asking
    if called in kernels:
        return "library", called, asking
    return "container", called if called.startswith(_SHIM) else "", asking


def _is_system(path: str) -> bool:
    return Path(path).name.startswith(("libc.so", "libstdc++", "libc10", "ld-linux", "libpython"))


# --- conclusions ----------------------------------------------------------------------------------


def findings_of_leaks(grown: Sequence[Growth], trials: LeakTrials) -> Iterator[PackageFinding]:
    """Who leaks each quantity that grows, as far as the trials show it."""
    for growth in grown:
        found = _operator(growth, trials) or _part_of_the_package(growth, trials)
        yield found or _not_found(growth, trials)


def _alone(growth: Growth, grown: Sequence[Growth]) -> Growth | None:
    """The same quantity among others; memory may be seen in either of two ways."""
    found = _same(growth, grown)
    enough = found is not None and found.per_call >= _MOST_OF_IT * growth.per_call
    return found if enough else None


def _operator(growth: Growth, trials: LeakTrials) -> PackageFinding | None:
    guilty = {
        name: found
        for name, alone in (trials.operators or {}).items()
        if (found := _alone(growth, alone)) is not None
    }
    if len(guilty) != 1:
        return None
    ((name, alone),) = guilty.items()
    how = "called it alone with copies of what the model gives it"
    others = {other: grown for other, grown in (trials.operators or {}).items() if other != name}
    how += "".join(f"; {other} alone {_said(growth, grown)}" for other, grown in others.items())
    is_cleared = trials.without is not None and _same(growth, trials.without) is None
    amount = f"{alone.amount}{_opened(growth, trials)}"
    text = f"The custom operator {name} leaks: alone, it adds {amount} for every call of the model."
    if is_cleared:
        whose = "their" if others else "its"
        how += f"; with {whose} earlier results in {whose} place the model does not grow"
        text += " The container and the kernels do not."
    return PackageFinding("leaks_operator", text, how, "proven" if is_cleared else "likely")


def _said(growth: Growth, grown: Sequence[Growth]) -> str:
    """How another operator does; it may leak a smaller part."""
    found = _same(growth, grown)
    return "does not grow" if found is None else f"adds {found.amount}"


def _same(growth: Growth, grown: Sequence[Growth]) -> Growth | None:
    names = _MEMORY if growth.quantity in _MEMORY else (growth.quantity,)
    return next((one for one in grown if one.quantity in names), None)


def _opened(growth: Growth, trials: LeakTrials) -> str:
    names = sorted({stack.file for stack in trials.stacks if stack.file})
    return f" ({', '.join(names[:3])})" if growth.quantity == "files" and names else ""


def _part_of_the_package(growth: Growth, trials: LeakTrials) -> PackageFinding | None:
    """By stacks: only if the model leaks without its custom operators, too, or has none."""
    if trials.operators and (trials.without is None or not _alone(growth, trials.without)):
        return None
    is_file = growth.quantity == "files"
    stacks = [stack for stack in trials.stacks if bool(stack.file) == is_file]
    total = sum(stack.count if is_file else stack.bytes for stack in stacks)
    parts: Counter[tuple[str, str]] = Counter()
    for stack in stacks:
        parts[_named(stack)] += stack.count if is_file else stack.bytes
    if growth.quantity == "threads" or not parts or not total:
        return None
    (part, name), most = parts.most_common(1)[0]
    if most < _MOST_OF_IT * max(total, growth.per_call * REMEMBERED_CALLS):
        return None
    how = (
        f"the native stack of what {REMEMBERED_CALLS} calls asked for and never gave back; every "
        "call adds one"
    )
    if trials.operators:
        how += "; the model grows without its custom operators, too"
    text = _TEXTS[part].format(name=name, opened=_opened(growth, trials))
    return PackageFinding(f"leaks_{part}", text, how)


def _named(stack: LeakedStack) -> tuple[str, str]:
    """Tensors that the wrapper makes belong together, whichever function makes them."""
    return stack.part, stack.name if stack.part in ("kernel", "library") else ""


_TEXTS = {
    "kernel": "The kernel {name} leaks{opened}: what it asks for is never given back.",
    "library": "The library call {name} leaks{opened}: what is asked for inside of it is never "
    "given back.",
    "container": "The package's container leaks{opened}: its own code, outside of every kernel, "
    "makes tensors or asks for memory in every call, and never gives them back.",
    "runner": "The runner of torch leaks{opened}, outside of the package's code: it is the "
    "container, not a kernel.",
    "operator": "A custom operator leaks{opened}.",
    "unknown": "It is asked for outside of the package and of torch's runner{opened}.",
}


def _not_found(growth: Growth, trials: LeakTrials) -> PackageFinding:
    why = trials.problem or trials.unread or "no part of it was seen to leak as much alone"
    text = f"What leaks {growth.name} was not found: {why}."
    stacks = "" if trials.unread else "stacks of allocations, "
    how = f"tried: {stacks}the model without custom operators, each of them alone"
    how = "not tried" if trials.problem else how
    return PackageFinding("leaks_unknown", text, how, "unknown", is_problem=False)
