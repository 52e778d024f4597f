"""Runs the doctor on one test, in a process group that can be ended."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from inductoscope.processes.ending import end_child
from inductoscope.processes.limited import start_group
from inductoscope.processes.tool_command import tool_command
from inductoscope.pytest_plugin.words_of_run import words_of_run

_LONGEST, _GRACE = 1800.0, 5.0
# A worker of pytest-xdist has them; a child that inherited them would take itself for one.
_OF_WORKERS = ("PYTEST_XDIST_", "PYTEST_CURRENT_TEST")
# Options with a place that pytest writes to, with the names of their values: the child has its own.
_PLACES = {
    "--basetemp": "basetemp",
    "--junitxml": "xmlpath",
    "--log-file": "log_file",
    "--inductoscope-json": "inductoscope_json",
}


def name_for_pytest(config: pytest.Config, nodeid: str) -> str:
    """The test, as pytest takes it in the folder that it was started in."""
    file, _, inside = nodeid.partition("::")
    file = os.path.relpath(config.rootpath / file, config.invocation_params.dir)
    return f"{file}::{inside}" if inside else file


def command_to_type(config: pytest.Config, nodeid: str) -> str:
    """What finds the cause of what was found in a test."""
    return f"inductoscope doctor -m pytest {shlex.quote(name_for_pytest(config, nodeid))}"


class DoctorChild:
    """The doctor, on one test."""

    def __init__(self, item: pytest.Item, folder: Path, environment: Mapping[str, str]) -> None:
        """`environment` is the one that pytest was started in; tests may change theirs."""
        self._item, self._folder = item, folder
        self._environment = {
            name: value for name, value in environment.items() if not name.startswith(_OF_WORKERS)
        }

    def examine(self, *, quick: bool) -> tuple[dict[str, Any] | None, str]:
        """The verdict object; or None, and why there is none."""
        answer = self._folder.with_name(f"{self._folder.name}.json")
        said = self._folder.with_name(f"{self._folder.name}.txt")
        with said.open("wb") as output, self._own_place() as own:
            child = start_group(
                self._command(answer, quick, own),
                environment=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                folder=self._item.config.invocation_params.dir,
            )
            try:
                child.wait(_LONGEST)
            except subprocess.TimeoutExpired:
                return None, f"it took longer than {_LONGEST:.0f} s (see {said})"
            finally:
                end_child(child, grace=_GRACE if child.poll() is None else 0.0)
        try:
            verdict: dict[str, Any] = json.loads(answer.read_text("utf-8"))
        except (OSError, ValueError):
            return None, f"it ended with exit code {child.returncode} (see {said})"
        return verdict, ""

    def _own_place(self) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory(prefix="pytest-", dir=self._folder.parent)

    def _command(self, answer: Path, quick: bool, own: str) -> list[str]:
        config = self._item.config
        words = ["doctor", "--quiet", *(["--quick"] if quick else [])]
        words += ["--json", str(answer), "--output", str(self._folder), "-m", "pytest"]
        # As in this run; of options that are given twice, the last counts.
        words += [*words_of_run(config), "--rootdir", str(config.rootpath)]
        if config.inipath is not None:
            words += ["-c", str(config.inipath)]
        test = name_for_pytest(config, self._item.nodeid)
        return tool_command([*words, *self._kept_apart(own), test])

    def _kept_apart(self, own: str) -> list[str]:
        """What lets the child run in one process, and touch nothing that this run writes."""
        config = self._item.config
        words = ["-o", f"cache_dir={own}/cache"]
        words += [
            f"{option}={own}/{value}"
            for option, value in _PLACES.items()
            if config.getoption(value, None)
        ]
        if config.pluginmanager.hasplugin("xdist"):
            words += ["-n", "0"]
        if config.pluginmanager.hasplugin("pytest_cov"):
            words.append("--no-cov")
        return words
