"""Tries every ending and writes docs/endings.md: make endings, or python -m battery.endings.run."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from battery.endings.catalogue import ENDINGS
from battery.endings.commands import Commands
from battery.endings.ending import COMMANDS
from battery.endings.page import render_page
from battery.endings.trial import Heard, try_ending
from battery.paths import without_folders

# Compiled once, it leaves a cache in which torch has found out what the machine can.
_PROBE = "import torch\ntorch.compile(lambda x: x.exp2())(torch.ones(4))\n"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", default="", metavar="NAME,NAME", help="endings that contain a NAME"
    )
    parser.add_argument("--commands", default="", metavar="NAME,NAME", help="only these commands")
    parser.add_argument(
        "--markdown", type=Path, help="write the table to this file, if all commands are tried"
    )
    parser.add_argument("--jobs", type=int, default=2, help="endings at a time")
    parser.add_argument("--keep", type=Path, help="a new folder for all that is printed")
    chosen = parser.parse_args(words)
    only = [name for name in chosen.commands.split(",") if name]
    unknown = sorted({*only} - {*COMMANDS})
    if unknown:
        parser.error(f"no such command: {', '.join(unknown)}; there are {', '.join(COMMANDS)}")
    wanted = [one for one in ENDINGS if any(part in one.name for part in chosen.only.split(","))]
    if not wanted:
        names = ", ".join(ending.name for ending in ENDINGS)
        parser.error(f"no ending contains {chosen.only!r}; there are {names}")
    if chosen.keep and chosen.keep.exists():
        parser.error(f"{chosen.keep} exists already")
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(chosen.jobs) as pool:
        folder = (chosen.keep or Path(temporary)).resolve()
        probed = _probe(folder / "probe")
        tried = pool.map(lambda one: list(try_ending(one, folder / one.name, only, probed)), wanted)
        heard: list[Heard] = []
        for some in tried:
            heard += _printed(some)
            if chosen.markdown and not only:
                _write(chosen.markdown, heard)
    return 0 if heard and all(one.is_right for one in heard) else 1


def _write(path: Path, heard: Sequence[Heard]) -> None:
    """After every ending; what was not tried stays on the page as it was."""
    before = path.read_text("utf-8") if path.exists() else ""
    path.write_text(without_folders(render_page(heard, before)), "utf-8")


def _probe(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "probe.py").write_text(_PROBE)
    code, output = Commands(folder).run([sys.executable, "probe.py"])
    if code:
        raise SystemExit(f"torch.compile does not work on this machine:\n{output}")
    return folder / "cache"


def _printed(heard: Sequence[Heard]) -> Sequence[Heard]:
    for one in heard:
        state = "right" if one.is_right else "WRONG"
        where = f"{one.ending:18} {one.command:13} {one.exit_code:3}"
        print(f"{state}  {where}  {one.first_line[:150]}", flush=True)
    return heard


if __name__ == "__main__":
    sys.exit(main())
