"""The machine, the installed torch, and whether all that inductoscope relies on exists."""

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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from inductoscope.inside.hooks import HOOKS
from inductoscope.processes.children import NO_LIMIT, ChildCall, ChildLimits, run_child
from inductoscope.processes.status import own_cores
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.log_lines import (
    PATTERNS,
    PatternCheck,
    check_pattern,
    release,
)
from inductoscope.torch_facts.private_names import declared_names
from inductoscope.torch_facts.stage_lookup import stage_of_module
from inductoscope.torch_facts.torch_names import TorchName
from inductoscope.views.env.flags import FLAGS, Flag, FlagKind

CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
_SECONDS_FOR_A_VERSION = 20


@dataclass(frozen=True)
class Machine:
    """The operating system and the CPU."""

    system: str
    cpu: str
    cores: int


@dataclass(frozen=True)
class Tool:
    """A program that Inductor or Triton starts."""

    path: str
    version: str | None  # None where it does not start


@dataclass(frozen=True)
class Cache:
    """The folder in which Inductor keeps what it compiled."""

    path: str
    private: bool  # chosen for this run; otherwise all runs of this user share it


def read_machine() -> Machine:
    """The machine that this process runs on."""
    return Machine(system=platform.platform(), cpu=_cpu(), cores=len(own_cores()))


def find_tool(candidates: Sequence[str]) -> Tool | None:
    """The first of `candidates` that is there, asked for its version; None where none is."""
    for candidate in candidates:
        # CXX may carry options, or a launcher such as ccache, before the compiler.
        words = shlex.split(candidate)
        path = shutil.which(words[0]) if words else None
        if path is not None:
            return Tool(shlex.join([path, *words[1:]]), _version([path, *words[1:]]))
    return None


def find_cache(default: str | None) -> Cache | None:
    """The cache folder in use: the one that was chosen, else torch's `default`."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        path = os.path.abspath(chosen)
        return Cache(path, private=path != default)
    return Cache(default, private=False) if default else None


def _cpu() -> str:
    """The name of the CPU where the system tells it, and the architecture."""
    machine = platform.machine()
    name = _cpu_name() or platform.processor()
    return f"{name} ({machine})" if name and name != machine else machine


def _cpu_name() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, None)


def _version(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(
            [*command, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS_FOR_A_VERSION,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _version_line(done.stdout) if done.returncode == 0 else None


def _version_line(text: str) -> str | None:
    """The line that tells: the one with "release" (ptxas), else the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
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
    """How each of `names` was found in the torch package at `root`; those not found are left out.

    >>> find_variables(root, ["TORCHINDUCTOR_NAN_ASSERTS"])
    {'TORCHINDUCTOR_NAN_ASSERTS': 'read in torch/_inductor/config.py:233'}
    """
    wanted = set(names)
    found = _in_python(root, wanted)
    return found | _in_libraries(root, wanted - found.keys())


def _in_python(root: Path, names: set[str]) -> dict[str, str]:
    quoted = re.compile(rb"[\"'](%s)[\"']" % b"|".join(name.encode() for name in sorted(names)))
    found: dict[str, str] = {}
    for path in _python_files(root):
        source = path.read_bytes()
        for match in quoted.finditer(source):
            name = match[1].decode()
            if name not in found and _is_read(source, match):
                line = source.count(b"\n", 0, match.start()) + 1
                found[name] = f"read in torch/{path.relative_to(root).as_posix()}:{line}"
    return found


def _is_read(source: bytes, match: re.Match[bytes]) -> bool:
    before = source[max(0, match.start() - _REACH) : match.start()]
    return bool(_READ.search(before)) and not _ASSIGNED.match(source, match.end())


def _python_files(root: Path) -> Iterator[Path]:
    """Config modules first: where several files read a variable, they are the ones to cite."""
    files = [path for folder in _FOLDERS for path in sorted((root / folder).rglob("*.py"))]
    yield from sorted(files, key=lambda path: path.name != "config.py")


def _in_libraries(root: Path, names: set[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for library in _libraries(root):
        for name in sorted(names - found.keys()):
            if _holds(library, name):
                found[name] = f"string in {library.name}"
    return found


def _libraries(root: Path) -> Iterator[Path]:
    for stem in _LIBRARIES:
        for name in (f"lib{stem}.so", f"lib{stem}.dylib", f"{stem}.dll"):
            path = root / "lib" / name
            if path.is_file() and path.stat().st_size:
                yield path


def _holds(library: Path, name: str) -> bool:
    """Whether the name is a whole C string: in a message it would have neighbours."""
    with (
        library.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        return data.find(b"\0" + name.encode() + b"\0") >= 0


# --- Asks the torch of another Python, in a process with a time limit -----------------------------
#
# torch is never imported here: the installed version may crash or hang on import, and the Python
# that runs the user's script is often not the one that runs inductoscope.

SECONDS = 120.0


@dataclass(frozen=True)
class Question:
    """A question for another Python, besides its versions and devices."""

    names: Sequence[tuple[str, str]] = ()  # module and dotted path of private names
    settings: Sequence[tuple[str, str]] = ()  # module and dotted path of config keys
    artifacts: Sequence[str] = ()


def ask(python: str, question: Question, *, seconds: float = SECONDS) -> dict[str, Any]:
    """The answer of `python`, as `inside.torch_probe` gives it.

    If there is no answer, "problem" says why, and there are no other keys.
    """
    # Importing Inductor creates its cache folder; we must not create the user's.
    with tempfile.TemporaryDirectory(prefix="inductoscope-env-") as cache:
        call = ChildCall(
            "inductoscope.inside.torch_probe:describe_torch",
            {"question": asdict(question)},
            _environment(cache),
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
    return {"problem": _ending(ended.exit_code, ended.output)}


def _environment(cache: str) -> dict[str, str]:
    environment = {**os.environ, CACHE_VARIABLE: cache}
    # A trace of this process would end up among those of the user's program.
    environment.pop("TORCH_TRACE", None)
    return environment


def _ending(returncode: int, errors: str) -> str:
    last = next((line for line in reversed(errors.splitlines()) if line.strip()), "")
    how = f"signal {-returncode}" if returncode < 0 else f"exit code {returncode}"
    return f"it ended with {how} before it could answer" + (f": {last}" if last else "")


# --- Collects what `inductoscope env` reports, as data --------------------------------------------

OLDEST_TORCH, NEWEST_TORCH = "2.11", "2.15"


@dataclass(frozen=True)
class Device:
    """One accelerator that torch can use."""

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
        """Whether inductoscope supports this version."""
        return release(OLDEST_TORCH) <= release(self.version) <= release(NEWEST_TORCH)

    @property
    def builds(self) -> tuple[str, ...]:
        """The kinds of device besides the CPU that this torch was built for."""
        return tuple(name for name, value in (("CUDA", self.cuda), ("HIP", self.hip)) if value)


@dataclass(frozen=True)
class NameCheck:
    """One private torch name that inductoscope uses."""

    stage: str
    name: str
    found: bool
    reason: str | None  # why it was not found
    absent: str | None  # the optional package, such as Triton, that is not installed

    @property
    def ok(self) -> bool:
        return self.found or self.absent is not None


@dataclass(frozen=True)
class FlagCheck:
    """One flag, checked against the installed torch."""

    flag: Flag
    known: bool
    how: str  # how this was established
    value: str | None  # now; None where it is not set or not known
    config_value: str | None = None  # of a variable: the value of its config key now

    @property
    def ok(self) -> bool:
        """Only a flag that we set and torch does not know is a failure."""
        return self.known or not self.flag.set_by


@dataclass(frozen=True)
class Environment:
    """Everything that `env` found. Without torch, `problem` says why, and the checks are empty."""

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
    notes: tuple[str, ...] = ()  # what could not be determined, and why

    @property
    def missing(self) -> tuple[NameCheck | PatternCheck | FlagCheck, ...]:
        """Names, log lines and flags that this torch lacks."""
        checks: tuple[NameCheck | PatternCheck | FlagCheck, ...] = (
            *self.names,
            *self.patterns,
            *self.flags,
        )
        return tuple(check for check in checks if not check.ok)


def collect_environment(python: str) -> Environment:
    """Ask the torch of `python`, and look at the machine."""
    needed = _needed_names()
    answer = ask(
        python,
        Question(
            names=[(name.module, name.attribute) for name in needed],
            settings=[flag.setting for flag in FLAGS if flag.setting],
            artifacts=[flag.name for flag in _of_kind(FlagKind.ARTIFACT)],
        ),
    )
    torch = _torch(answer)
    triton = answer.get("triton") or {}
    return Environment(
        python=python,
        python_version=(answer.get("python") or {}).get("version"),
        machine=read_machine(),
        compiler=find_tool(answer.get("compilers") or [os.environ.get("CXX", "g++")]),
        ptxas=find_tool([path for path in (triton.get("ptxas"), "ptxas") if path]),
        cache=find_cache(answer.get("default_cache")),
        problem=answer.get("problem"),
        torch=torch,
        names=_names(needed, answer) if torch else (),
        patterns=_patterns(torch) if torch else (),
        flags=_flags(torch, answer) if torch else (),
        notes=tuple(answer.get("notes") or ()),
    )


def _needed_names() -> dict[TorchName, str]:
    """Each name once, with the stage of the first hook that needs it, or else of its module."""
    needed: dict[TorchName, str] = {}
    for hook in HOOKS:
        for name in hook.names:
            needed.setdefault(name, hook.stage)
    for name in declared_names():
        needed.setdefault(name, _stage_of(name))
    return needed


def _stage_of(name: TorchName) -> str:
    stage = stage_of_module(name.module.replace(".", "/"))
    return stages.NO_STAGE if stage == stages.USER else stage


def _of_kind(kind: FlagKind) -> list[Flag]:
    return [flag for flag in FLAGS if flag.kind is kind]


def _torch(answer: dict[str, Any]) -> Torch | None:
    torch = answer.get("torch")
    if torch is None:
        return None
    return Torch(
        **torch,
        triton=(answer["triton"] or {}).get("version"),
        isa=answer["isa"],
        devices=tuple(Device(**device) for device in answer["devices"] or ()),
    )


def _names(needed: Mapping[TorchName, str], answer: dict[str, Any]) -> tuple[NameCheck, ...]:
    return tuple(
        NameCheck(
            stage=stage,
            name=str(name),
            found=reply["found"],
            reason=reply["reason"],
            absent=reply.get("absent"),
        )
        for (name, stage), reply in zip(needed.items(), answer["names"], strict=True)
    )


def _patterns(torch: Torch) -> tuple[PatternCheck, ...]:
    folder = Path(torch.root).parent
    sources = {pattern.module: _source(folder / pattern.module) for pattern in PATTERNS}
    return tuple(
        check_pattern(pattern, sources[pattern.module], version=torch.version)
        for pattern in PATTERNS
    )


def _source(path: Path) -> str:
    """The text of a torch module; empty if the module is gone."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _flags(torch: Torch, answer: dict[str, Any]) -> tuple[FlagCheck, ...]:
    variables = find_variables(
        Path(torch.root), [flag.name for flag in _of_kind(FlagKind.VARIABLE)]
    )
    settings = _by_name([flag for flag in FLAGS if flag.setting], answer["settings"])
    artifacts = _by_name(_of_kind(FlagKind.ARTIFACT), answer["artifacts"])

    def check(flag: Flag) -> FlagCheck:
        if flag.kind is FlagKind.ARTIFACT:
            return _check_artifact(flag, artifacts.get(flag.name, _UNKNOWN))
        setting = settings.get(flag.name, _UNKNOWN)
        if flag.kind is FlagKind.SETTING:
            return _check_setting(flag, setting)
        how = variables.get(flag.name) or _not_found(flag, torch)
        return _check_variable(flag, how, setting, known=flag.name in variables)

    return tuple(check(flag) for flag in FLAGS)


_UNKNOWN: dict[str, Any] = {"known": False, "how": None, "value": None}


def _by_name(
    flags: Sequence[Flag], replies: Sequence[dict[str, Any]] | None
) -> dict[str, dict[str, Any]]:
    """The replies by flag; none if torch could not be asked."""
    return {flag.name: reply for flag, reply in zip(flags, replies or (), strict=False)}


def _check_variable(flag: Flag, how: str, setting: dict[str, Any], *, known: bool) -> FlagCheck:
    value = os.environ.get(flag.name)
    return FlagCheck(flag, known=known, how=how, value=value, config_value=setting["value"])


def _not_found(flag: Flag, torch: Torch) -> str:
    if flag.needs is not None and flag.needs not in torch.builds:
        return f"not found: this torch is built without {flag.needs}"
    if flag.since is not None and release(torch.version) < release(flag.since):
        return f"not found: new in torch {flag.since}"
    return "not found"


def _check_setting(flag: Flag, reply: dict[str, Any]) -> FlagCheck:
    module = flag.setting[0] if flag.setting else ""
    how = f"key of {module}" if reply["known"] else "not found"
    return FlagCheck(flag, known=reply["known"], how=how, value=reply["value"])


def _check_artifact(flag: Flag, reply: dict[str, Any]) -> FlagCheck:
    how = reply["how"] or "not found"
    return FlagCheck(flag, known=reply["known"], how=how, value=reply["value"])
