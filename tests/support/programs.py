"""Runs the tool and plain Python on small programs, for the tests that need real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from inductoscope.model.entities import Recording
from inductoscope.model.fold import load
from support.json_schema import violations

TOOL = (sys.executable, "-m", "inductoscope")

# For tests that are not about how often a reproducer fails.
ONE_PROOF = ("--proofs", "1")

# Where programs are found, but for the compiler that remembers what it has compiled.
SEARCH_PATH = os.environ.get("PATH", os.defpath)

# On the PYTHONPATH of programs, unless a test sets another one.
QUICK_PYTHON = Path(__file__).with_name("quick_python")

# The environment of tests in which it matters that the compiler works, and how.
REAL_COMPILER = {"PATH": SEARCH_PATH}


def install_compiler(folder: Path, path: str = SEARCH_PATH) -> Path:
    """Put a g++ into the folder that remembers what the one on `path` compiles.

    Several processes may do so at once, and use it while another one does.
    """
    (folder / "kept").mkdir(parents=True, exist_ok=True)
    script = Path(__file__).resolve().with_name("remembering_cxx").read_text()
    for name, text in (("path", f"{path}\n"), ("g++", script)):
        written = folder / f"{name}.{os.getpid()}"
        written.write_text(text)
        written.chmod(0o755)
        written.replace(folder / name)
    return folder


def with_small_disk(disk: Path, size: str = "64k") -> tuple[str, ...]:
    """A command prefix so that a new folder is a disk of that size."""
    disk.mkdir()
    return with_mount(f"-t tmpfs -o size={size} none", disk)


def with_mount(what: str, place: Path) -> tuple[str, ...]:
    """A command prefix so that it sees something else in a folder.

    Only the command sees it, so that nothing is left behind.
    """
    text = f'mount {what} "$1" && shift && exec "$@"'
    mounted = ("unshare", "--map-root-user", "--mount", "sh", "-c", text, "sh", str(place))
    if subprocess.run([*mounted, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets no program mount a disk of its own")
    return mounted


@dataclass(frozen=True)
class Outcome:
    """Output and exit code of a program."""

    exit_code: int
    stdout: str
    stderr: str
    recording_path: Path

    @property
    def recording(self) -> Recording:
        return load(self.recording_path)

    @property
    def program_stderr(self) -> str:
        """Standard error without the tool's summary."""
        return self.stderr.partition("inductoscope: the program")[0]


@dataclass(frozen=True)
class Diagnosis:
    """Output of an examination, and the verdict object."""

    exit_code: int
    stdout: str
    stderr: str
    verdict: dict[str, Any]

    @property
    def names(self) -> str:
        """Everything that the verdict says, to look for names in."""
        return json.dumps(self.verdict)


@dataclass(frozen=True)
class Workplace:
    """A folder with programs in it, and a private cache that the programs may share."""

    folder: Path
    cache: Path

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def plant(self, module: str, body: str) -> dict[str, str]:
        """Write a hook that changes the module `m`; return the environment that brings it in."""
        lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
        quick = (QUICK_PYTHON / "sitecustomize.py").read_text()
        self.write("plant/sitecustomize.py", quick + _PLANT.format(module=module, body=lines))
        return {"PYTHONPATH": str(self.folder / "plant")}

    def environment(self, **more: str) -> dict[str, str]:
        found = {k: v for k, v in os.environ.items() if not k.startswith(("INDUCTOSCOPE", "TORCH"))}
        found.update(TORCHINDUCTOR_CACHE_DIR=str(self.cache), COLUMNS="80")
        # Otherwise what runs without --output would be kept in the home of whoever runs the tests.
        found["INDUCTOSCOPE_RECORDINGS"] = str(self.cache.parent / "recordings")
        # torch tries in every process whether libraries for this processor load. They do.
        found.update({"TORCHINDUCTOR_VEC_ISA_OK": "1", **more})
        return found

    def start(
        self, *words: str, options: tuple[str, ...] = (), **more: str
    ) -> subprocess.Popen[str]:
        """`inductoscope run OPTIONS WORDS`, not waited for."""
        recording = self.folder / "recording"
        return subprocess.Popen(
            [*TOOL, "run", "--output", str(recording), *options, *words],
            cwd=self.folder,
            env=self.environment(**more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, options: tuple[str, ...] = (), **more: str) -> Outcome:
        """`inductoscope run OPTIONS WORDS`, to its end."""
        child = self.start(*words, options=options, **more)
        stdout, stderr = child.communicate(timeout=300)
        return Outcome(child.returncode, stdout, stderr, self.folder / "recording")

    def doctor(self, *words: str, options: tuple[str, ...] = ONE_PROOF, **more: str) -> Diagnosis:
        """`inductoscope doctor OPTIONS WORDS`, to its end."""
        output = self.folder / "examination"
        command = [*TOOL, "doctor", "--output", str(output), "--json", "verdict.json"]
        done = self.call([*command, *options, *words], **more)
        verdict = json.loads((self.folder / "verdict.json").read_text())
        assert violations("doctor", verdict) == []
        return Diagnosis(done.returncode, done.stdout, done.stderr, verdict)

    def call(
        self, command: Sequence[str], *, given: str = "", **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Any command in the folder, to its end; `given` is its standard input."""
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment(**more),
            input=given,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )

    def run_plain(self, *words: str, **more: str) -> Outcome:
        """The same program without the tool."""
        done = self.call([sys.executable, *words], **more)
        return Outcome(done.returncode, done.stdout, done.stderr, self.folder / "none")

    def run_plain_in_forks(self, scripts: Sequence[Path], **more: str) -> list[Outcome]:
        """Scripts without the tool, each in a fork of one process that has torch loaded.

        For scripts to which it does not matter how their process came to load torch.
        """
        self.call([sys.executable, "-c", _FORKS, *map(str, scripts)], **more)
        return [self._forked(script) for script in scripts]

    def _forked(self, script: Path) -> Outcome:
        folder = self.folder / f"{script.stem}-fork"
        stdout, stderr, code = ((folder / name).read_text() for name in ("out", "err", "code"))
        return Outcome(int(code), stdout, stderr, self.folder / "none")


# Runs scripts one after the other, each in a fork and in an empty folder of its own.
_FORKS = """
import os, pathlib, runpy, sys
import torch, torch._dynamo

for script in map(pathlib.Path, sys.argv[1:]):
    place = pathlib.Path(f"{script.stem}-fork").absolute()
    (place / "work").mkdir(parents=True)
    child = os.fork()
    if child == 0:
        os.chdir(place / "work")
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(place / name, os.O_WRONLY | os.O_CREAT), number)
        sys.argv = [str(script)]
        runpy.run_path(str(script), run_name="__main__")
        sys.exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    (place / "code").write_text(str(status))
"""

# A start-up hook that changes a module when it is imported.
_PLANT = """
import importlib.machinery, sys

def change(m):
{body}

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != "{module}":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            change(module)
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
"""

# A function of nine operations, right in eager, with a comparison at its end.
SMALL_MODEL = """
import sys, torch

def model(x, w):
    h = torch.tanh(x @ w)
    h = torch.relu(h - h.mean(dim=0))
    return torch.softmax(h, dim=-1).sum(dim=0) + h.amax(dim=0)

torch.manual_seed(0)
x, w = torch.randn(6, 8), torch.randn(8, 5)
want = model(x, w)
got = torch.compile(model)(x, w)
sys.exit(0 if torch.allclose(want, got, atol=1e-4) else 1)
"""

# The same with three of them, where it is not the point that the graph is cut down.
TINY_MODEL = SMALL_MODEL.replace(
    """    h = torch.relu(h - h.mean(dim=0))
    return torch.softmax(h, dim=-1).sum(dim=0) + h.amax(dim=0)
""",
    "    return torch.relu(h)\n",
)
