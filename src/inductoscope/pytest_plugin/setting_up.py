"""Sets the plugin up: what collects in the main process, what checks where tests run."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from pathlib import Path

import pytest

from inductoscope.capture.scope import SCOPE
from inductoscope.capture.scope_variables import RECORDING_VARIABLE
from inductoscope.pytest_plugin.suite_checks import SuiteChecks
from inductoscope.pytest_plugin.suite_options import options_of
from inductoscope.pytest_plugin.suite_summary import SuiteSummary, root_for_worker
from inductoscope.pytest_plugin.time_limits import TimeLimits


def set_up(config: pytest.Config) -> None:
    """Called when pytest has read its options, and before it imports any test."""
    options = options_of(config)
    why_not = why_nothing_is_checked()
    is_worker = hasattr(config, "workerinput")
    given = root_for_worker(config)
    root = Path(given or tempfile.mkdtemp(prefix="inductoscope-pytest-")) if not why_not else None
    plugins = config.pluginmanager
    if not is_worker:
        plugins.register(SuiteSummary(options, root, why_not), "inductoscope-summary")
    if root is not None and (is_worker or not _has_workers(config)):
        worker = str(getattr(config, "workerinput", {}).get("workerid", ""))
        limits = TimeLimits()
        plugins.register(limits, "inductoscope-limits")
        checks = SuiteChecks(options, root, worker, limits)
        plugins.register(checks, "inductoscope-checks")
        checks.start()


def why_nothing_is_checked() -> str:
    """A reason, if this process cannot check anything."""
    if "torch" not in sys.modules and importlib.util.find_spec("torch") is None:
        return f"torch is not installed for {sys.executable}"
    if SCOPE.active or os.environ.get(RECORDING_VARIABLE):
        return "inductoscope already records this process"
    return ""


def _has_workers(config: pytest.Config) -> bool:
    """Whether pytest-xdist runs the tests in other processes."""
    return getattr(config.option, "dist", "no") != "no"
