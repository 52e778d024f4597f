"""Compiles a kernel alone, in a child under limits: the work behind `inductoscope kernel`.

Nothing runs on a GPU, and you do not need one: Triton compiles for any given target.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from inductoscope.errors import ToolFailure, UsageError, unwritable
from inductoscope.kernels.plan import (
    Config,
    Plan,
    check_settings,
    configs_in_file,
    default_config,
    make_plan,
    open_arguments,
    script_text,
    with_settings,
)
from inductoscope.processes.children import (
    ChildCall,
    ChildEvent,
    ChildLimits,
    ChildResult,
    run_child,
)
from inductoscope.processes.tree import Observation, ProcessSample
from inductoscope.torch_facts.gpu_targets import Target, parse_target
from inductoscope.torch_facts.triton_kernels import (
    KernelFile,
    Resources,
    Scalar,
    amd_resources,
    code,
    is_plain,
    nvidia_resources,
)

FORMS = ("ttir", "ttgir", "llir", "ptx", "sass", "amdgcn")
_KEPT = (*FORMS, "cubin", "hsaco", "spv")
WORST_FIRST = ("does not end", "fails", "compiles")
_OUT_OF_MEMORY = re.compile(
    r"MemoryError|bad_alloc|out of memory|Cannot allocate memory|Memory allocation failure"
    r"|failed to map segment",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class TritonStage:
    """A compile stage of Triton; `seconds` is None if it did not end."""

    name: str
    seconds: float | None


@dataclass(frozen=True)
class Attempt:
    outcome: str  # 'compiles', 'does not end' or 'fails'
    seconds: float
    stages: tuple[TritonStage, ...]
    message: str = ""
    # The child process that the compile waited for at the timeout.
    waits_for: WaitingProcess | None = None
    itself: WaitingProcess | None = None
    resources: Resources = field(default_factory=Resources)
    triton: str = ""

    @property
    def unfinished(self) -> str:
        """The stage that began but did not end."""
        return next((stage.name for stage in self.stages if stage.seconds is None), "")


@dataclass(frozen=True)
class KernelTrial:
    """All attempts at one configuration, and the files of the last one."""

    plan: Plan
    limits: ChildLimits
    attempts: tuple[Attempt, ...]
    files: Mapping[str, Path]

    @property
    def outcome(self) -> str:
        return min((attempt.outcome for attempt in self.attempts), key=WORST_FIRST.index)

    @property
    def worst(self) -> Attempt:
        return next(a for a in self.attempts if a.outcome == self.outcome)


def check_triton(plan: Plan) -> None:
    """Raise ToolFailure, with what to install, if the kernel cannot be compiled here."""
    if importlib.util.find_spec("triton") is None:
        raise ToolFailure(
            "Triton is not installed, so nothing can be compiled. Install it (pip install "
            "triton; no GPU is needed), or write the script with --script and run it elsewhere."
        )
    if plan.needs_torch and not has_torch():
        raise ToolFailure(
            f"{plan.kernel.name} calls torch._inductor.runtime.triton_helpers, and torch is not "
            "installed. Install torch (a CPU build is enough)."
        )


@dataclass(frozen=True)
class KernelRequest:
    target: str | None = None
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    all_configs: bool = False
    limits: ChildLimits = field(default_factory=ChildLimits)
    times: int = 1
    output: Path | None = None  # where to keep what the stages made


def try_alone(plan: Plan, request: KernelRequest, say: Callable[[str], None]) -> KernelTrial:
    """Compile as often as requested, each time in a new process with an empty cache."""
    check_triton(plan)
    attempts = []
    files: dict[str, Path] = {}
    for number in range(request.times):
        count = f" ({number + 1} of {request.times})" if request.times > 1 else ""
        say(f"compiling {plan.kernel.name} for {plan.target}{count}: {plan.config}")
        with tempfile.TemporaryDirectory(prefix="inductoscope-kernel-") as name:
            attempts.append(_attempt(plan, request.limits, Path(name), say))
            if request.output is not None:
                files |= _keep(Path(name), request.output)
    return KernelTrial(plan, request.limits, tuple(attempts), files)


def _keep(folder: Path, output: Path) -> dict[str, Path]:
    try:
        output.mkdir(parents=True, exist_ok=True)
        kept = {}
        for form in _KEPT:
            made = folder / f"kernel.{form}"
            if made.exists():
                kept[form] = Path(shutil.copyfile(made, output / made.name))
        kept["script"] = Path(shutil.copyfile(folder / "alone.py", output / "alone.py"))
        return kept
    except OSError as error:
        raise unwritable(output, error) from error


def _attempt(plan: Plan, limits: ChildLimits, folder: Path, say: Callable[[str], None]) -> Attempt:
    script = folder / "alone.py"
    script.write_text(script_text(plan), "utf-8")
    call = ChildCall(
        "inductoscope.inside.triton_kernels:compile_alone",
        {"script": str(script), "folder": str(folder), "device": plan.target.kind},
        {
            **os.environ,
            "TRITON_CACHE_DIR": str(folder / "cache"),
            "TRITON_ALWAYS_COMPILE": "1",
            "TRITON_DUMP_PTXAS_LOG": "1",
            "TMPDIR": str(folder),  # What ptxas leaves when it is killed goes with the folder.
        },
        folder,
    )

    def tell(event: ChildEvent) -> None:
        if event["event"] == "start":
            say(f"stage {event['stage']}")

    ended = run_child(call, limits, tell)
    _check_start(plan, limits, ended)
    return _judged(plan, ended, folder)


def _check_start(plan: Plan, limits: ChildLimits, ended: ChildResult) -> None:
    """Raise if the child never started compiling: that is no result about the kernel."""
    if ended.find("ready"):
        return
    if ended.find("no backend"):
        raise ToolFailure(
            f"The installed Triton {_version(ended)} has no backend for {plan.target.kind}. "
            "Give another --target, or install a Triton that supports it."
        )
    message = ended.problem
    if ended.exit_code is None:
        message = f"it did not finish within {limits.start_seconds:g} s"
    advice = " Give more with --memory." if _OUT_OF_MEMORY.search(message + ended.output) else ""
    raise ToolFailure(f"The kernel's script could not be loaded: {message[:500]}.{advice}")


def _version(ended: ChildResult) -> str:
    return str((ended.find("triton") or {}).get("version", ""))


def _judged(plan: Plan, ended: ChildResult, folder: Path) -> Attempt:
    stages, began = _stages(ended)
    compiled = ended.find("compiled")
    finished = compiled["at"] if compiled else ended.stopped_at
    seconds = round(max(0.0, finished - began), 3)
    attempt = Attempt("fails", seconds, stages, triton=_version(ended))
    if compiled is not None:
        resources = _resources(plan, compiled["shared"], ended.output, folder)
        return replace(attempt, outcome="compiles", resources=resources)
    if ended.exit_code is None:
        observed = ended.observed
        group = [_described(one, observed) for one in observed.tree.processes] if observed else []
        return replace(
            attempt,
            outcome="does not end",
            waits_for=_blocking_child(group),
            itself=group[0] if group else None,
        )
    message = ended.problem
    if _OUT_OF_MEMORY.search(message):
        message = f"it ran out of the memory that --memory allows. {message}"
    return replace(attempt, message=message)


def _stages(ended: ChildResult) -> tuple[tuple[TritonStage, ...], float]:
    """Return the stages with their seconds, and when the first began.

    Time before the first stage counts as preparation: the versions of tools, the cache key.
    """
    started: dict[str, float] = {}
    seconds: dict[str, float | None] = {}
    for event in ended.events:
        name = "preparation" if event["event"] == "ready" else str(event.get("stage"))
        if event["event"] in ("ready", "start"):
            if seconds.get("preparation", 0.0) is None:
                seconds["preparation"] = round(event["at"] - started["preparation"], 4)
            started[name], seconds[name] = event["at"], None
        elif event["event"] == "end":
            seconds[name] = round(event["at"] - started[name], 4)
    stages = tuple(TritonStage(name, value) for name, value in seconds.items())
    return stages, min(started.values(), default=ended.stopped_at)


def _resources(plan: Plan, shared: int | None, output: str, folder: Path) -> Resources:
    if plan.target.kind == "hip":
        return amd_resources(read_form(folder, "amdgcn"), shared)
    return nvidia_resources(output, read_form(folder, "usage"), shared)


def read_form(folder: Path, form: str) -> str:
    """Read an intermediate form of the kernel that a stage wrote; empty if there is none."""
    path = folder / f"kernel.{form}"
    return path.read_text("utf-8", "replace") if path.exists() else ""


# --- Asks torch, in a child process, how it would configure a kernel at run time ------------------

_IMPORTS = """\
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import (
    AutotuneHint, DeviceProperties, ReductionHint, TileHint,
)
"""
# No cache may answer instead of torch: neither the user's nor one on the network.
_NO_CACHES = {
    "autotune_local_cache": False,
    "autotune_remote_cache": False,
    "bundled_autotune_remote_cache": False,
    "force_disable_caches": True,
}
_SECONDS = 120.0


def has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def ask_torch(kernel: KernelFile, limits: ChildLimits, folder: Path) -> tuple[list[Config], str]:
    """Return the configurations torch would try for this kernel, or why there are none."""
    if not has_torch():
        return [], "torch is not installed"
    module = folder / "asked.py"
    module.write_text(module_text(kernel), "utf-8")
    caches = {"TRITON_CACHE_DIR": str(folder / "cache"), "TORCHINDUCTOR_CACHE_DIR": str(folder)}
    call = ChildCall(
        "inductoscope.inside.triton_kernels:torch_configs",
        {"module": str(module)},
        {**os.environ, **caches},
        folder,
    )
    ended = run_child(call, ChildLimits(_SECONDS, _SECONDS, limits.memory_gib))
    answer = ended.find("configs")
    if answer is None:
        return [], f"torch did not answer ({ended.problem[:300]})"
    return _configs_from(kernel, answer), ""


def _configs_from(kernel: KernelFile, answer: ChildEvent) -> list[Config]:
    origin = f"the heuristics of the installed torch {answer['torch']}"
    own = (*kernel.body.constexpr_arguments, "num_warps", "num_stages")
    return [Config(_ordered(config, own), origin) for config in answer["configs"]]


def _ordered(config: Mapping[str, Any], first: tuple[str, ...]) -> dict[str, Any]:
    """Order a configuration: block sizes before warps and stages, without empty values."""
    names = dict.fromkeys((*first, *config))
    return {name: config[name] for name in names if config.get(name) is not None}


def module_text(kernel: KernelFile) -> str:
    """Write the kernel under its heuristic as a module, from parsed values."""
    keywords = {name: value for name, value in kernel.keywords.items() if is_plain(value)}
    about = {name: value for name, value in kernel.inductor_meta.items() if is_plain(value)}
    keywords["inductor_meta"] = {**about, **_NO_CACHES}
    words = [f"    {name}={code(v)}," for name, v in keywords.items() if name != "filename"]
    decorator = [f"@triton_heuristics.{kernel.heuristic}(", *words, "    filename=__file__,", ")"]
    parts = [_IMPORTS]
    for definition in kernel.definitions:
        if definition is kernel.kernel:
            parts.append("\n".join(decorator))
        parts.append(definition.source)
    return "\n".join(parts) + "\n"


# --- What a kernel's compile was doing when its time was up: the compiler itself, or its child ----

# A process with less than this share of CPU time was not computing.
_SPINNING = 0.2
_PTXAS_SETTINGS = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")


@dataclass(frozen=True)
class WaitingProcess:
    pid: int
    parent: int
    words: tuple[str, ...]  # its command line
    tool: str
    busy: float  # seconds of processor per second
    resident_mib: int

    @property
    def state(self) -> str:
        return "spinning" if self.busy >= _SPINNING else "sleeping"


def _described(process: ProcessSample, observed: Observation) -> WaitingProcess:
    did = observed.activity.get(process.pid)
    return WaitingProcess(
        pid=process.pid,
        parent=process.parent,
        words=process.command,
        tool=_tool_name(process.command),
        busy=did.cpu if did is not None else 0.0,
        resident_mib=process.memory >> 20,
    )


def _blocking_child(group: list[WaitingProcess]) -> WaitingProcess | None:
    """Return the leader's child that it waits for, with the CPU time of its descendants."""
    for process in group[1:]:
        # A fork with the leader's command line is the guard process of bounded.py.
        if process.parent == group[0].pid and process.words != group[0].words:
            below = sum(p.busy for p in group if p.parent == process.pid)
            return replace(process, busy=process.busy + below)
    return None


def _tool_name(words: tuple[str, ...]) -> str:
    """Return the tool of a command line; a stand-in set by a variable counts as the tool."""
    stand_ins = {os.environ[name] for name in _PTXAS_SETTINGS if os.environ.get(name)}
    for word in words[:3]:
        if word in stand_ins or "ptxas" in os.path.basename(word):
            return "ptxas"
    return os.path.basename(words[0]) if words and words[0] else "a process"


# --- The whole of `inductoscope kernel`: read, configure, write the script, compile alone ---------


def choose_target(kernel: KernelFile, asked: str | None) -> Target:
    """Return the requested target, or else the one that the kernel was generated for."""
    if asked:
        return parse_target(asked)
    if kernel.target is None:
        raise UsageError(
            f"{kernel.path} does not say which device {kernel.name} was generated for. "
            "Give a target, such as --target cuda:90."
        )
    return kernel.target


def make_plans(
    kernel: KernelFile, request: KernelRequest, say: Callable[[str], None] = lambda text: None
) -> list[Plan]:
    """Return plans to compile: one configuration, or all that would be tried."""
    check_settings(kernel, list(request.settings))
    target = choose_target(kernel, request.target)
    configs = _configs_to_try(kernel, request, say)
    chosen = configs if request.all_configs else configs[:1]
    plans = [make_plan(kernel, target, with_settings(c, request.settings)) for c in chosen]
    # A setting can make two configurations the same.
    return list({str(plan.config): plan for plan in plans}.values())


def _configs_to_try(
    kernel: KernelFile, request: KernelRequest, say: Callable[[str], None]
) -> list[Config]:
    found = configs_in_file(kernel)
    if found:
        return found
    given = {"num_warps", "num_stages"} <= set(request.settings)
    if given and not open_arguments(kernel, request.settings) and not request.all_configs:
        return [Config({}, "--config")]
    say("asking torch for the configuration")
    with tempfile.TemporaryDirectory(prefix="inductoscope-kernel-") as folder:
        asked, problem = ask_torch(kernel, request.limits, Path(folder))
    if asked:
        return asked
    default = default_config(kernel)
    return [replace(default, origin=f"{default.origin}: {problem}")]


def write_script(plan: Plan, path: Path) -> None:
    try:
        path.write_text(script_text(plan, path.name), "utf-8")
    except OSError as error:
        raise unwritable(path, error) from error


def try_plans(
    plans: list[Plan], request: KernelRequest, say: Callable[[str], None]
) -> list[KernelTrial]:
    """Compile each plan alone; with several, each keeps its files in its own folder."""
    output = request.output
    if output is None or len(plans) < 2:
        return [try_alone(plan, request, say) for plan in plans]
    return [
        try_alone(plan, replace(request, output=output / f"{number}"), say)
        for number, plan in enumerate(plans)
    ]
