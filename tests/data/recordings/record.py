"""Makes the recordings that tests without torch read: tests/data/recordings/record.py [NAME]…

Each folder here holds a script and the recording of one run of it. Paths of the machine that it
was recorded on are replaced by neutral ones, and the private cache is left out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUN_TWICE = {"cache_hit"}
PROFILED = {"profiled_layers"}
OTHER_PROFILES = ("--memory", "--compile")


def main() -> None:
    names = sys.argv[1:] or [n for n in _scripts() if not n.startswith("h200_")]
    for name in names:
        print(f"recording {name}", flush=True)
        record(HERE / name)


def _scripts() -> list[str]:
    return sorted(path.parent.name for path in HERE.glob("*/script.py"))


def record(folder: Path) -> None:
    target = folder / "recording"
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache}
        for _ in range(1 + (folder.name in RUN_TWICE)):
            shutil.rmtree(target, ignore_errors=True)
            how = ["profile", "--no-eager"] if folder.name in PROFILED else ["run"]
            command = [sys.executable, "-m", "inductoscope", *how, "--quiet", "--output"]
            command += [str(target), "script.py"]
            subprocess.run(command, cwd=folder, env=environment, check=False)
        if folder.name in PROFILED:
            add_profiles(folder, environment)
        neutralise(target, {cache: "/cache"})


def add_profiles(folder: Path, environment: dict[str, str]) -> None:
    """The program profiled in other ways, too: their results beside the times of its kernels."""
    for way in OTHER_PROFILES:
        with tempfile.TemporaryDirectory() as place:
            command = [sys.executable, "-m", "inductoscope", "profile", way, "--quiet", "--output"]
            command += [f"{place}/recording", "script.py"]
            subprocess.run(command, cwd=folder, env=environment, check=False)
            for found in Path(place).glob("recording/profile/[a-z]*.json"):
                shutil.copy(found, folder / "recording" / "profile" / found.name)


def neutralise(recording: Path, places: dict[str, str]) -> None:
    """Replace the places of this machine in every file of the recording."""
    places = {
        **places,
        str(HERE): "/scripts",
        sysconfig.get_paths()["purelib"]: "/python/site-packages",
        str(HERE.parent.parent): "/inductoscope",
        sys.prefix: "/python",
        sys.base_prefix: "/python",
        tempfile.gettempdir() + "/torchinductor_": "/cache_of_",
        tempfile.gettempdir(): "/temporary",
        str(Path.home()): "/home/user",
        os.environ.get("USER", "root"): "user",
    }
    for path in recording.rglob("*"):
        if path.is_file():
            text = path.read_text("utf-8")
            for place, neutral in places.items():
                text = text.replace(place, neutral)
            path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
