"""Data of `inductoscope env`: the machine, the installed torch, and what it lacks."""

from __future__ import annotations

import mmap
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from inductoscope.inside.hooks import HOOKS
from inductoscope.processes.children import NO_LIMIT, ChildCall, ChildLimits, run_child
from inductoscope.processes.status import own_cores
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.log_lines import PATTERNS, PatternCheck, check_pattern, release
from inductoscope.torch_facts.messages import last_lines
from inductoscope.torch_facts.private_names import declared_names
from inductoscope.torch_facts.stage_lookup import stage_of_module
from inductoscope.torch_facts.torch_names import TorchName
from inductoscope.views.env.flags import ARTIFACT, FLAGS, VARIABLE, Flag

CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
_SECONDS_FOR_A_VERSION = 20


@dataclass(frozen=True)
class Machine:
    system: str
    cpu: str
    cores: int


@dataclass(frozen=True)
class Tool:
    """A program that Inductor or Triton starts."""

    path: str
    version: str | None  # None if the tool does not start


@dataclass(frozen=True)
class Cache:
    """The folder in which Inductor keeps what it compiled."""

    path: str
    private: bool  # chosen for this run; otherwise all runs of this user share it


def find_tool(candidates: Sequence[str]) -> Tool | None:
    """Return the first of `candidates` that exists, with its version; None if there is none."""
    for candidate in candidates:
        # CXX may carry options, or a launcher such as ccache, before the compiler.
        words = shlex.split(candidate)
        path = shutil.which(words[0]) if words else None
        if path is not None:
            return Tool(shlex.join([path, *words[1:]]), _version([path, *words[1:]]))
    return None


def find_cache(default: str | None) -> Cache | None:
    """Return the cache folder in use: the configured one, else torch's `default`."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        path = os.path.abspath(chosen)
        return Cache(path, private=path != default)
    return Cache(default, private=False) if default else None


def _cpu() -> str:
    """Return the CPU's model name, if the system reports one, and the architecture."""
    machine, name = platform.machine(), platform.processor()
    with suppress(OSError):
        told = Path("/proc/cpuinfo").read_text("utf-8", "replace")
        name = next(iter(re.findall(r"^model name\s*: *(.+?) *$", told, re.MULTILINE)), name)
    return f"{name} ({machine})" if name and name != machine else machine


def _version(command: Sequence[str]) -> str | None:
    """Return the informative line of `--version`: with "release" (ptxas), else the first."""
    try:
        done = subprocess.run(
            [*command, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS_FOR_A_VERSION,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    telling = [line for line in lines if "release" in line]
    return next(iter(telling or lines), None)


# --- Where the files of an installed torch name an environment variable ---------------------------
#
# A variable is known when code that reads the environment names it: in the Python files of the
# compiler, or as a whole string in the libraries, where the C++ side keeps its names. Comments,
# messages and tests prove nothing and are ignored.

_FOLDERS = ("_inductor", "_dynamo", "_functorch", "_logging", "compiler", "fx", "utils")

# Where the C++ side reads its variables. The library of CUDA kernels is left out: it is large,
# and what it reads does not concern the compiler.
_LIBRARIES = ("c10_cuda", "c10_hip", "c10", "torch_cpu", "torch_python")

# What stands shortly before a name that is read: os.environ.get(, getenv(, env_name_force=[,
# LOG_ENV_VAR =, get_tristate_env(. A brace means that the variable is set for another process.
_READ = re.compile(rb"(?:environ|getenv|env_name|_env\(|ENV_VAR)[^;#{]{0,60}$")
_REACH = 100
_ASSIGNED = re.compile(rb"\]\s*=[^=]")


def find_variables(root: Path, names: Iterable[str]) -> dict[str, str]:
    """Return where torch at `root` reads each environment variable; omit those not found.

    >>> find_variables(root, ["TORCHINDUCTOR_NAN_ASSERTS"])
    {'TORCHINDUCTOR_NAN_ASSERTS': 'read in torch/_inductor/config.py:233'}
    """
    names = set(names)
    quoted = re.compile(rb"[\"'](%s)[\"']" % "|".join(sorted(names)).encode())
    files = [path for folder in _FOLDERS for path in sorted((root / folder).rglob("*.py"))]
    found: dict[str, str] = {}
    # Config modules first: where several files read a variable, they are the ones to cite.
    for path in sorted(files, key=lambda path: path.name != "config.py"):
        source = path.read_bytes()
        for match in quoted.finditer(source):
            before = source[max(0, match.start() - _REACH) : match.start()]
            if _READ.search(before) and not _ASSIGNED.match(source, match.end()):
                line = source.count(b"\n", 0, match.start()) + 1
                place = f"read in torch/{path.relative_to(root).as_posix()}:{line}"
                found.setdefault(match[1].decode(), place)
    for stem in _LIBRARIES:
        for library in (root / "lib").glob(f"*{stem}.*"):
            is_library = library.suffix in (".so", ".dylib", ".dll") and library.is_file()
            # An empty file cannot be mapped.
            for name in names - found.keys() if is_library and library.stat().st_size else ():
                if _holds(library, name):
                    found[name] = f"string in {library.name}"
    return found


def _holds(library: Path, name: str) -> bool:
    """Check for the name as a whole C string; inside a message it would not be terminated."""
    with (
        library.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        return data.find(b"\0" + name.encode() + b"\0") >= 0


# --- Questions to the torch of another Python, in a process with a time limit ---------------------
#
# torch is never imported here: the installed version may crash or hang on import, and the Python
# that runs the user's script is often not the one that runs inductoscope.

SECONDS = 120.0


@dataclass(frozen=True)
class Question:
    """The questions to ask another Python, besides its versions and devices."""

    names: Sequence[tuple[str, str]] = ()  # module and dotted path of private names
    settings: Sequence[tuple[str, str]] = ()  # module and dotted path of config keys
    artifacts: Sequence[str] = ()


def ask(python: str, question: Question, *, seconds: float = SECONDS) -> dict[str, Any]:
    """Run `inside.torch_probe` in `python` and return its answer.

    If there is no answer, "problem" says why, and there are no other keys.
    """
    # TORCH_TRACE would add a trace of this process to those of the user's program.
    inherited = {name: value for name, value in os.environ.items() if name != "TORCH_TRACE"}
    # Importing Inductor creates its cache folder; we must not create the user's.
    with tempfile.TemporaryDirectory(prefix="inductoscope-env-") as cache:
        call = ChildCall(
            "inductoscope.inside.torch_probe:describe_torch",
            {"question": asdict(question)},
            {**inherited, CACHE_VARIABLE: cache},
            python=(python,),
        )
        try:
            ended = run_child(call, ChildLimits(seconds, seconds, memory_gib=NO_LIMIT))
        except OSError as error:
            return {"problem": f"it cannot be started: {error.strerror}"}
    said = ended.find("answer")
    if said is not None:
        answer: dict[str, Any] = said["answer"]
        return answer
    if ended.exit_code is None:
        return {"problem": f"importing torch did not end within {seconds:g} s"}
    code, last = ended.exit_code, "".join(last_lines(ended.output, 1))
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return {
        "problem": f"it ended with {how} before it could answer" + (f": {last}" if last else "")
    }


# --- The data of `inductoscope env` ---------------------------------------------------------------

OLDEST_TORCH, NEWEST_TORCH = "2.11", "2.15"


@dataclass(frozen=True)
class Device:
    kind: str
    index: int
    name: str
    architecture: str | None
    memory: int | None


@dataclass(frozen=True)
class Torch:
    """The installed torch and what belongs to it."""

    version: str
    git: str | None
    cuda: str | None
    hip: str | None
    root: str
    triton: str | None
    isa: str | None
    devices: tuple[Device, ...]

    @property
    def supported(self) -> bool:
        return release(OLDEST_TORCH) <= release(self.version) <= release(NEWEST_TORCH)

    @property
    def builds(self) -> tuple[str, ...]:
        """The device backends besides the CPU that this torch was built for."""
        return tuple(name for name, value in (("CUDA", self.cuda), ("HIP", self.hip)) if value)


@dataclass(frozen=True)
class NameCheck:
    """The check of one private torch name that inductoscope uses."""

    stage: str
    name: str
    found: bool
    reason: str | None  # the reason why the name was not found
    absent: str | None  # the optional package, such as Triton, that is not installed

    @property
    def ok(self) -> bool:
        return self.found or self.absent is not None


@dataclass(frozen=True)
class FlagCheck:
    """The check of one flag against the installed torch."""

    flag: Flag
    known: bool
    how: str  # the evidence for the answer
    value: str | None  # the current value; None if unset or unknown
    config_value: str | None = None  # of a variable: the current value of its config key

    @property
    def ok(self) -> bool:
        """Whether the check passed: only a flag that inductoscope sets must be known to torch."""
        return self.known or not self.flag.set_by


@dataclass(frozen=True)
class Environment:
    """The result of `env`. Without torch, `problem` says why, and the checks are empty."""

    python: str
    python_version: str | None
    machine: Machine
    compiler: Tool | None
    ptxas: Tool | None
    cache: Cache | None
    problem: str | None = None
    torch: Torch | None = None
    names: tuple[NameCheck, ...] = ()
    patterns: tuple[PatternCheck, ...] = ()
    flags: tuple[FlagCheck, ...] = ()
    notes: tuple[str, ...] = ()  # gaps in the result, with their reasons

    @property
    def missing(self) -> tuple[NameCheck | PatternCheck | FlagCheck, ...]:
        checks: tuple[NameCheck | PatternCheck | FlagCheck, ...] = (
            *self.names,
            *self.patterns,
            *self.flags,
        )
        return tuple(check for check in checks if not check.ok)


def collect_environment(python: str) -> Environment:
    """Collect the environment from the torch of `python` and from this machine."""
    needed = _needed_names()
    artifacts = [flag.name for flag in FLAGS if flag.kind == ARTIFACT]
    settings = {flag.name: flag.setting for flag in FLAGS if flag.setting}
    answer = ask(
        python,
        Question(
            names=[(name.module, name.attribute) for name in needed],
            settings=list(settings.values()),
            artifacts=artifacts,
        ),
    )
    triton = answer.get("triton") or {}
    found = Environment(
        python=python,
        python_version=(answer.get("python") or {}).get("version"),
        machine=Machine(platform.platform(), _cpu(), len(own_cores())),
        compiler=find_tool(answer.get("compilers") or [os.environ.get("CXX", "g++")]),
        ptxas=find_tool([path for path in (triton.get("ptxas"), "ptxas") if path]),
        cache=find_cache(answer.get("default_cache")),
        problem=answer.get("problem"),
        notes=tuple(answer.get("notes") or ()),
    )
    if answer.get("torch") is None:
        return found
    torch = Torch(
        **answer["torch"],
        triton=triton.get("version"),
        isa=answer["isa"],
        devices=tuple(Device(**device) for device in answer["devices"] or ()),
    )
    replies = dict(zip(settings, answer["settings"], strict=True))
    replies |= dict(zip(artifacts, answer["artifacts"] or (), strict=False))
    return replace(
        found,
        torch=torch,
        names=tuple(
            NameCheck(stage=stage, name=str(name), **{"absent": None, **reply})
            for (name, stage), reply in zip(needed.items(), answer["names"], strict=True)
        ),
        patterns=tuple(
            check_pattern(one, _source(torch, one.module), version=torch.version)
            for one in PATTERNS
        ),
        flags=tuple(_flag_checks(torch, replies)),
    )


def _needed_names() -> dict[TorchName, str]:
    """Return each needed name with the stage of the first hook that needs it, or of its module."""
    needed: dict[TorchName, str] = {}
    for hook in HOOKS:
        for name in hook.names:
            needed.setdefault(name, hook.stage)
    for name in declared_names():
        stage = stage_of_module(name.module.replace(".", "/"))
        needed.setdefault(name, stages.NO_STAGE if stage == stages.USER else stage)
    return needed


def _source(torch: Torch, module: str) -> str:
    with suppress(OSError):
        return (Path(torch.root).parent / module).read_text("utf-8", "replace")
    return ""


def _flag_checks(torch: Torch, replies: Mapping[str, dict[str, Any]]) -> Iterator[FlagCheck]:
    """Check every flag; `replies` has torch's answers on config keys and artifacts, by flag."""
    variables = find_variables(Path(torch.root), [f.name for f in FLAGS if f.kind == VARIABLE])
    for flag in FLAGS:
        reply = replies.get(flag.name, {"known": False, "value": None})
        known, value = reply["known"], reply["value"]
        if flag.kind == VARIABLE:
            known = flag.name in variables
            how = variables.get(flag.name) or _not_found(flag, torch)
            yield FlagCheck(flag, known, how, os.environ.get(flag.name), config_value=value)
            continue
        key = f"key of {flag.setting[0]}" if flag.setting and known else None
        yield FlagCheck(flag, known, reply.get("how") or key or "not found", value)


def _not_found(flag: Flag, torch: Torch) -> str:
    if flag.needs is not None and flag.needs not in torch.builds:
        return f"not found: this torch is built without {flag.needs}"
    if flag.since is not None and release(torch.version) < release(flag.since):
        return f"not found: new in torch {flag.since}"
    return "not found"
