"""Setup of the plugin, and the summary of all reports: pytest's output and the JSON file."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from inductoscope.errors import unwritable
from inductoscope.inside.scope import SCOPE
from inductoscope.launch.environment import RECORDING_VARIABLE
from inductoscope.pytest_plugin.results import (
    SuiteTest,
    sentences_about,
    suite_test_from,
    totals_of,
)
from inductoscope.pytest_plugin.suite_checks import (
    HANDED_OVER,
    SuiteChecks,
    SuiteOptions,
    TimeLimits,
    command_to_type,
    hand_words_over,
    options_of,
)
from inductoscope.version import __version__
from inductoscope.views.plain_text import visible

_WORKER_ROOT = "inductoscope_root"


class SuiteSummary:
    def __init__(self, options: SuiteOptions, root: Path | None, why_not: str) -> None:
        """`why_not` is the reason why nothing is checked; `root` is None then."""
        self._options, self._root, self._why_not = options, root, why_not
        self._of_test: dict[str, SuiteTest] = {}
        self._unwritten = ""

    def pytest_report_header(self) -> str:
        if self._why_not:
            return f"inductoscope: nothing is checked: {self._why_not}"
        return "inductoscope: checks every graph that Inductor compiles against eager"

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Pass folder and command line to a pytest-xdist worker about to start."""
        if self._root is not None:
            node.workerinput[_WORKER_ROOT] = str(self._root)
            hand_words_over(node)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = getattr(report, HANDED_OVER, None)
        if isinstance(data, Mapping):
            test = suite_test_from(dict(data))
            earlier = self._of_test.get(test.test)
            self._of_test[test.test] = test.after(earlier) if earlier else test

    @property
    def _tests(self) -> list[SuiteTest]:
        return list(self._of_test.values())

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any, sched: Any) -> None:
        """Suggest the doctor for a test whose worker died; the crash may be compiled code's."""
        text = (
            "The process died in this test. If compiled code is to blame, this finds out:\n"
            f"  {command_to_type(sched.config, crashitem)}"
        )
        report.sections.append(("inductoscope", visible(text)))

    # --- the end ------------------------------------------------------------------------------

    def pytest_sessionfinish(self) -> None:
        """Write the JSON file at the end of the session, even after Ctrl-C."""
        if not self._options.json:
            return
        try:
            text = json.dumps({"schema": 1, **self._view()}, indent=1)
            Path(self._options.json).write_text(f"{text}\n", "utf-8")
        except OSError as error:
            self._unwritten = str(unwritable(self._options.json, error))

    def _view(self) -> dict[str, Any]:
        return {
            "tool": f"inductoscope {__version__}",
            "not_checked": self._why_not,
            "totals": totals_of(self._tests),
            "tests": [asdict(test) for test in self._tests],
        }

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, config: pytest.Config
    ) -> None:
        if config.option.collectonly:
            return
        found = [(test.test, finding) for test in self._tests for finding in test.findings]
        terminalreporter.write_sep("=", "inductoscope", red=bool(found))
        lines = [f"nothing was checked: {self._why_not}"] if self._why_not else None
        for line in lines or sentences_about(totals_of(self._tests)):
            terminalreporter.write_line(line)
        for test, finding in found:
            text = visible(f"{finding.verdict} in {test}: {finding.summary}")
            terminalreporter.write_line(text, red=True)
        if self._unwritten:
            terminalreporter.write_line(f"--inductoscope-json: {self._unwritten}", red=True)
        if found and self._root is not None:
            terminalreporter.write_line(f"recordings of these tests: {self._root}")

    def pytest_unconfigure(self) -> None:
        """Remove recordings unless something was found."""
        if self._root is not None and not any(test.findings for test in self._tests):
            shutil.rmtree(self._root, ignore_errors=True)


# --- Sets the plugin up: what collects in the main process, what checks where tests run -----------


def set_up(config: pytest.Config) -> None:
    """Register the plugin, after pytest has read its options and before it imports tests."""
    options = options_of(config)
    why_not = why_nothing_is_checked()
    is_worker = hasattr(config, "workerinput")
    # What pytest-xdist's main process gave to a worker; empty anywhere else.
    given: Mapping[str, Any] = getattr(config, "workerinput", {})
    root = None
    if not why_not:
        root = Path(given.get(_WORKER_ROOT) or tempfile.mkdtemp(prefix="inductoscope-pytest-"))
    plugins = config.pluginmanager
    if not is_worker:
        plugins.register(SuiteSummary(options, root, why_not), "inductoscope-summary")
    # Whether pytest-xdist runs the tests in other processes.
    has_workers = getattr(config.option, "dist", "no") != "no"
    if root is not None and (is_worker or not has_workers):
        limits = TimeLimits()
        plugins.register(limits, "inductoscope-limits")
        checks = SuiteChecks(options, root, str(given.get("workerid", "")), limits)
        plugins.register(checks, "inductoscope-checks")
        checks.start()


def why_nothing_is_checked() -> str:
    """Return the reason why this process cannot check anything; empty if it can."""
    if "torch" not in sys.modules and importlib.util.find_spec("torch") is None:
        return f"torch is not installed for {sys.executable}"
    if SCOPE.active or os.environ.get(RECORDING_VARIABLE):
        return "inductoscope already records this process"
    return ""
