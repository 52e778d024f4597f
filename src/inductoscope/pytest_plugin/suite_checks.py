"""The part of the plugin that runs beside the tests, in pytest itself or in a worker of it."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from inductoscope.capture.hooks import HOOKS
from inductoscope.capture.install import Installer
from inductoscope.capture.scope import SCOPE
from inductoscope.errors import InductoscopeError
from inductoscope.pytest_plugin.compile_errors import finding_of_exception, inductors_exception
from inductoscope.pytest_plugin.doctor_child import DoctorChild, command_to_type
from inductoscope.pytest_plugin.results import SuiteFinding, SuiteTest
from inductoscope.pytest_plugin.suite_options import SuiteOptions
from inductoscope.pytest_plugin.suite_recordings import SuiteRecordings
from inductoscope.pytest_plugin.time_limits import TimeLimits
from inductoscope.pytest_plugin.torch_hooks import suite_hooks
from inductoscope.pytest_plugin.verdict_text import text_of_findings, text_when_right

if TYPE_CHECKING:
    from inductoscope.pytest_plugin.graph_watch import GraphWatch, SeenInTest

# The attribute of a report, and the name of a property, under which everything is handed over.
HANDED_OVER = "inductoscope"
_SECTION = "inductoscope"


class SuiteChecks:
    """Keeps calls while a test runs, checks them when it is over, and puts that in its report."""

    def __init__(self, options: SuiteOptions, root: Path, worker: str, limits: TimeLimits) -> None:
        self._options = options
        self._limits = limits
        self._prefix = f"{worker}-" if worker else ""
        self._root = root
        self._environment = dict(os.environ)
        self._recordings = SuiteRecordings(root, self._prefix)
        self._installer = Installer((*HOOKS, *suite_hooks(self._get_watch)))
        self._watch: GraphWatch | None = None
        self._seen: SeenInTest | None = None
        self._test = SuiteTest("")
        self._is_on = False
        # Whether the test fails because of what was found, and for no other reason.
        self._is_own_failure = False
        # Of tests that may be run again: what they compiled the first time is not compiled again,
        # so that less is known of it then.
        self._found_before: dict[str, dict[tuple[str, str], SuiteFinding]] = {}

    # --- the session --------------------------------------------------------------------------

    def start(self) -> None:
        """Before tests are imported, and torch with them."""
        self._recordings.begin()
        self._installer.start()

    def pytest_unconfigure(self) -> None:
        """Torch is as it was."""
        self._installer.stop()
        self._recordings.finish()

    def _get_watch(self) -> GraphWatch:
        """Imports torch, which is there when something is compiled."""
        if self._watch is None:
            # What torch warns of when it is imported is no warning of the test.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                from inductoscope.pytest_plugin.graph_watch import GraphWatch

            self._watch = GraphWatch(self._options.calls, self._prefix, self._recordings.note_use)
            # It is the running test that compiles the first graph.
            self._begin_to_watch()
        return self._watch

    def _begin_to_watch(self) -> None:
        if self._watch is None or not self._is_on:
            return
        from inductoscope.pytest_plugin.graph_watch import SeenInTest

        self._watch.seen = self._seen = SeenInTest()

    # --- one test -----------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """A test begins, perhaps for another time."""
        self._test, self._is_own_failure = SuiteTest(item.nodeid), False
        item.user_properties[:] = [one for one in item.user_properties if one[0] != HANDED_OVER]
        self._is_on = item.get_closest_marker("no_inductoscope") is None
        self._seen = None
        if self._watch is not None:
            self._watch.seen = None
        self._recordings.begin()
        self._begin_to_watch()
        return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """The test itself; what it called is checked before its fixtures are torn down."""
        try:
            result = yield
        except (Exception, pytest.fail.Exception) as error:
            self._check(item, error)
            raise
        except pytest.skip.Exception:
            self._check(item, None)
            raise
        # unittest keeps its exceptions, for pytest to find them later.
        kept_back = getattr(item, "_excinfo", None)
        self._check(item, kept_back[0].value if kept_back else None)
        if self._options.fails and self._test.findings and not kept_back:
            self._is_own_failure = True
            pytest.fail(f"inductoscope: {text_of_findings(self._test.findings)}", pytrace=False)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Nothing is kept any more; what is kept for this test goes when its fixtures have gone."""
        self._is_on = False
        if self._watch is not None:
            self._watch.seen = None
        try:
            return (yield)
        finally:
            self._end()

    def _end(self) -> None:
        self._seen = None
        if self._watch is not None:
            from inductoscope.pytest_plugin.quick_look import forget_wrappers

            forget_wrappers()
        here = self._recordings.path
        self._recordings.end(keep=any(one.recording == here for one in self._test.findings))

    def _check(self, item: pytest.Item, failure: BaseException | None) -> None:
        """Compare what the test called with eager; `failure` is what the test itself raised."""
        with self._limits.paused(item):
            self._compare(item, failure)

    def _compare(self, item: pytest.Item, failure: BaseException | None) -> None:
        seen, watch = self._seen, self._watch
        if seen is None or watch is None:
            return
        from inductoscope.pytest_plugin.call_checks import check_calls

        began = time.monotonic()
        watch.seen, watch.is_busy = None, True
        try:
            calls, findings = check_calls(seen.calls, failure)
        except pytest.fail.Exception as error:
            # A time limit of the test, which had passed until now, ran out.
            self._test.off = f"stopped: {error.msg}".partition("\n")[0]
            calls, findings = [], []
        finally:
            watch.is_busy = False
            seen.calls.clear()
        self._test.graphs = list(seen.graphs)
        self._test.calls = [*calls, *seen.not_kept.values()]
        self._test.seconds = round(time.monotonic() - began, 3)
        self._test.findings = self._completed(item, findings)

    # --- its report ---------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[Any]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """What is known goes with the report of the phase in which it is known."""
        report = yield
        if report.when == "call" or (report.when == "setup" and call.excinfo is not None):
            if self._seen is not None and not self._test.graphs:
                self._test.graphs = list(self._seen.graphs)
            if call.excinfo is not None and (report.failed or hasattr(report, "wasxfail")):
                self._look_at_exception(item, call.excinfo.value)
            self._attach(item, report)
        return report

    def _look_at_exception(self, item: pytest.Item, raised: BaseException) -> None:
        """The test failed by itself: perhaps because Inductor did."""
        error = inductors_exception(raised) if self._is_on else None
        if error is not None:
            found = SCOPE.attempt(finding_of_exception, error, self._recordings.path)
            if isinstance(found, SuiteFinding):
                self._test.findings += self._completed(item, [found])

    def _completed(self, item: pytest.Item, findings: list[SuiteFinding]) -> list[SuiteFinding]:
        """With where the recording is, and what the doctor says; or as they were found before."""
        before = self._found_before.setdefault(item.nodeid, {})
        new = [one for one in findings if one.identity not in before]
        for finding in new:
            finding.recording = self._recordings.path
            finding.command = command_to_type(item.config, item.nodeid)
            here = f"{item.config.invocation_params.dir}{os.sep}"
            finding.source = finding.source.removeprefix(here)
            before[finding.identity] = finding
        if new and self._options.doctor:
            said, why = self._ask_doctor(item)
            for finding in new:
                finding.doctor, finding.no_doctor = said, why
        return [before[one.identity] for one in findings]

    def _ask_doctor(self, item: pytest.Item) -> tuple[dict[str, Any] | None, str]:
        folder = self._root / f"doctor-{self._prefix}{os.getpid()}-{time.time_ns():x}"
        try:
            child = DoctorChild(item, folder, self._environment)
            return child.examine(quick=self._options.doctor == "quick")
        except (OSError, InductoscopeError, pytest.fail.Exception) as error:
            return None, str(error)

    def _attach(self, item: pytest.Item, report: pytest.TestReport) -> None:
        test = self._test
        if test.says_something:
            setattr(report, HANDED_OVER, test.as_data())
        if test.findings:
            if not self._is_own_failure:
                report.sections.append((_SECTION, text_of_findings(test.findings)))
            found = test.as_data()["findings"]
            # On the test as well: the JUnit file is written from the last report.
            for place in (report, item):
                place.user_properties.append((HANDED_OVER, json.dumps(found)))
        elif report.failed and (text := text_when_right(test)):
            report.sections.append((_SECTION, text))
