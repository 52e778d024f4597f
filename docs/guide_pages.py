"""The guides of docs/guides: their commands are run, and what they print is kept and shown.

    python docs/guide_pages.py                 runs the commands of all guides (`make guides`)
    python docs/guide_pages.py hang nan        only those of these guides

A guide is a page with two kinds of generated parts:

    <!-- generated: script tiles.py -->                         a script of docs/guides/scripts
    <!-- generated: ran 1,Workaround $ inductoscope doctor tiles.py -->     what a command prints

The commands of a page run in their order, in one new folder with its scripts. What they print is
kept in docs/guides/ran, with a digest of the scripts and commands that made it. `make docs` pastes
it; a test notices a script or a command that has changed since. Of the output, `ran` shows
paragraphs by their number, the rest of a paragraph from a line that begins with given words (with
_ for blanks), or `all`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

GUIDES = Path(__file__).resolve().parent / "guides"
SCRIPTS, RAN = GUIDES / "scripts", GUIDES / "ran"

_SCRIPT = re.compile(r"<!-- generated: script (\S+) -->")
_COMMAND = re.compile(r"<!-- generated: ran (\S+) \$ (.+?) -->")
_PROGRESS = re.compile(r"\[ *\d+\.\d s\] ")
# A command that does not end is the subject of one guide, and its limit is in the command.
_LIMIT = 900


@dataclass(frozen=True)
class GuideCommand:
    """A command of a guide as it was run: what made its output, and the output."""

    command: str
    digest: str
    exit_code: int
    seconds: float
    output: tuple[str, ...]


def guides() -> dict[str, Path]:
    """Every guide by its name."""
    return {path.stem: path for path in sorted(GUIDES.glob("*.md")) if path.stem != "index"}


def scripts_of(text: str) -> list[str]:
    """The scripts that a guide shows."""
    return list(dict.fromkeys(_SCRIPT.findall(text)))


def commands_of(text: str) -> list[str]:
    """The commands that a guide runs, in their order; what is shown twice runs once."""
    return list(dict.fromkeys(command for _, command in _COMMAND.findall(text)))


def digests_of(text: str) -> dict[str, str]:
    """For each command a digest of all that its output depends on: scripts, earlier commands."""
    so_far = hashlib.sha256()
    for name in scripts_of(text):
        so_far.update(name.encode() + (SCRIPTS / name).read_bytes())
    found = {}
    for command in commands_of(text):
        so_far.update(command.encode() + b"\n")
        found[command] = so_far.hexdigest()[:16]
    return found


# --- running --------------------------------------------------------------------------------------


def run_guide(
    text: str, folder: Path, say: Callable[[str], None] = print
) -> Iterator[GuideCommand]:
    """Run the commands of a guide in a folder, which is to be new."""
    for name in scripts_of(text):
        shutil.copy(SCRIPTS / name, folder)
    environment = {
        **os.environ,
        "COLUMNS": "80",
        "NO_COLOR": "1",
        # What torch says on a machine without NumPy has nothing to do with the guide.
        "PYTHONWARNINGS": "ignore:Failed to initialize NumPy:UserWarning",
        "INDUCTOSCOPE_RECORDINGS": str(folder / "recordings"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
    }
    for command, digest in digests_of(text).items():
        started = time.monotonic()
        done = subprocess.run(
            _as_run(command),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_LIMIT,
            check=False,
        )
        seconds = time.monotonic() - started
        say(f"{command}: exit code {done.returncode} after {seconds:.0f} s")
        printed = done.stdout.decode("utf-8", "replace")
        lines = tuple(neutral_lines(printed, folder))
        yield GuideCommand(command, digest, done.returncode, round(seconds, 1), lines)


def _as_run(command: str) -> list[str]:
    """The words of a command, with the Python that runs this; `timeout 60` may come first."""
    words = shlex.split(command)
    before = words[:2] if words[0] == "timeout" else []
    first, *others = words[len(before) :]
    starts = {"inductoscope": [sys.executable, "-m", "inductoscope"], "python": [sys.executable]}
    return [*before, *starts[first], *others]


def neutral_lines(text: str, folder: Path) -> Iterator[str]:
    """Output, without the progress and without the paths of this machine."""
    places = {
        str(folder): "...",
        str(folder.resolve()): "...",
        f"{folder.name}/": "",  # torch shows the last two parts of a path.
        sys.prefix: ".venv",
    }
    for line in text.splitlines():
        if _PROGRESS.match(line):
            continue
        for place, instead in places.items():
            line = line.replace(place, instead)
        yield line.rstrip()


def keep(name: str, ran: Sequence[GuideCommand]) -> None:
    """Keep what the commands of a guide printed."""
    made_with = {
        "torch": version("torch"),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    kept = {"made_with": made_with, "commands": [asdict(one) for one in ran]}
    RAN.mkdir(exist_ok=True)
    (RAN / f"{name}.json").write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def kept(name: str) -> dict[str, GuideCommand]:
    """Output of the commands of a guide when they last ran."""
    path = RAN / f"{name}.json"
    if not path.exists():
        return {}
    found = json.loads(path.read_text("utf-8"))["commands"]
    return {
        one["command"]: GuideCommand(**{**one, "output": tuple(one["output"])}) for one in found
    }


def stale(name: str) -> list[str]:
    """The commands of a guide whose scripts or earlier commands have changed since they ran."""
    ran = kept(name)
    wanted = digests_of(guides()[name].read_text("utf-8"))
    return [
        command
        for command, digest in wanted.items()
        if command not in ran or ran[command].digest != digest
    ] + [command for command in ran if command not in wanted]


# --- showing --------------------------------------------------------------------------------------


def script(name: str) -> str:
    """A script of the guides, as it is."""
    return f'```python title="{name}"\n{(SCRIPTS / name).read_text("utf-8").strip()}\n```'


def ran(parts: str, dollar: str, *words: str) -> str:
    """Output of a command of a guide, as far as PARTS says."""
    command = " ".join(words)
    assert dollar == "$", f"write: ran PARTS $ COMMAND, not {dollar} {command}"
    found = [one for name in guides() for one in kept(name).values() if one.command == command]
    if not found:
        return f"    $ {command}\n    [not run yet: make guides]"
    lines = [f"$ {command}", *shown_lines(found[0].output, parts)]
    return "\n".join(f"    {line}".rstrip() for line in lines)


def shown_lines(output: Sequence[str], parts: str) -> list[str]:
    """The parts of an output that are asked for; what lies between is counted."""
    shown: list[str] = []
    hidden = 0
    for number, paragraph in enumerate(paragraphs_of(output)):
        begins = _shown_from(number, paragraph, parts)
        hidden += begins
        if begins == len(paragraph):
            continue
        shown += [left_out(hidden)] if hidden else [""] if number else []
        shown += paragraph[begins:]
        hidden = 0
    for part in set(parts.split(",")) - {"all"}:
        assert any(
            _shown_from(number, paragraph, part) < len(paragraph)
            for number, paragraph in enumerate(paragraphs_of(output))
        ), f"no part of the output is '{part}'"
    return shown + ([left_out(hidden)] if hidden else [])


def paragraphs_of(output: Sequence[str]) -> list[list[str]]:
    """Lines that no empty line parts."""
    paragraphs: list[list[str]] = [[]]
    for line in output:
        if line.strip():
            paragraphs[-1].append(line)
        elif paragraphs[-1]:
            paragraphs.append([])
    return [paragraph for paragraph in paragraphs if paragraph]


def _shown_from(number: int, paragraph: Sequence[str], parts: str) -> int:
    """The first line of a paragraph that is asked for; its length if none is."""
    asked = parts.split(",")
    if "all" in asked or str(number + 1) in asked:
        return 0
    words = [part.replace("_", " ") for part in asked if not part.isdigit()]
    starts = (
        place
        for place, line in enumerate(paragraph)
        if any(line.strip().startswith(word) for word in words)
    )
    return next(starts, len(paragraph))


def left_out(count: int) -> str:
    """A line in the place of others."""
    return f"[... {count} more line{'' if count == 1 else 's'}]"


def main() -> int:
    """Run the guides that are named, or all, and keep what they print."""
    parser = argparse.ArgumentParser(description="Run the commands of the guides.")
    parser.add_argument("names", nargs="*", metavar="GUIDE", help="all of them if none is named")
    for name in parser.parse_args().names or list(guides()):
        print(f"--- {name}")
        with tempfile.TemporaryDirectory(prefix="guide", dir="/tmp") as folder:
            keep(name, list(run_guide(guides()[name].read_text("utf-8"), Path(folder))))
    print("Now: make docs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
