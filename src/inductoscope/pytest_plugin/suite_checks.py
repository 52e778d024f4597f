"""The part of the plugin that runs beside the tests, in pytest itself or in a worker of it."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from inductoscope.analysis.rules.endings import compile_error
from inductoscope.errors import InductoscopeError, ToolFailure
from inductoscope.inside.doctor.checking_agent import KEEPING_WRAPPERS
from inductoscope.inside.hooks import HOOKS
from inductoscope.inside.hooks.inductor import phase_of_wrapper
from inductoscope.inside.install import Installer
from inductoscope.inside.observe import Arguments, Keywords, current_compile_id, watch
from inductoscope.inside.scope import BROKEN, SCOPE, chain_of
from inductoscope.model.fold import load
from inductoscope.processes.children import start_group, tool_command
from inductoscope.processes.ending import end_child
from inductoscope.pytest_plugin.results import (
    SuiteFinding,
    SuiteTest,
    text_of_findings,
    text_when_right,
)
from inductoscope.recording.location import create_recording
from inductoscope.torch_facts import private_names as hooked
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.torch_names import Hook, Wrap
from inductoscope.verdicts import COMPILE_ERROR, CRASH

if TYPE_CHECKING:
    from inductoscope.inside.pytest_calls import GraphWatch, SeenInTest


_CALLS = 4


@dataclass(frozen=True)
class SuiteOptions:
    # Whether wrong compiled code fails its test.
    fails: bool
    # The number of checked calls per graph and test.
    calls: int
    # How the doctor examines findings: 'full' or 'quick'; empty if it does not.
    doctor: str
    # The path of the JSON file; empty for none.
    json: str


def options_of(config: pytest.Config) -> SuiteOptions:
    calls: Any = config.getoption("inductoscope_calls")
    path = config.getoption("inductoscope_json") or ""
    if calls is not None and calls < 1:
        raise pytest.UsageError(f"--inductoscope-calls {calls} checks nothing. Give at least 1.")
    whole = Path(config.invocation_params.dir, path) if path else None
    if whole is not None and (whole.is_dir() or not whole.parent.is_dir()):
        wrong = "is a folder" if whole.is_dir() else "is in a folder that does not exist"
        raise pytest.UsageError(f"--inductoscope-json {path} {wrong}. Name a file to write.")
    return SuiteOptions(
        fails=config.getoption("inductoscope_mode") != "report",
        calls=calls or _CALLS,
        doctor=str(config.getoption("inductoscope_doctor") or ""),
        json=str(whole or ""),
    )


# --- Time limits of pytest-timeout, which are suspended while calls are checked -------------------


class TimeLimits:
    """The current time limit of the test, tracked through pytest-timeout's hooks."""

    def __init__(self) -> None:
        # The test, pytest-timeout's settings for it, and when its time ends.
        self._limit: tuple[pytest.Item, Any, float] | None = None

    @pytest.hookimpl(wrapper=True, optionalhook=True)
    def pytest_timeout_set_timer(
        self, item: pytest.Item, settings: Any
    ) -> Generator[None, Any, Any]:
        self._limit = item, settings, time.monotonic() + float(settings.timeout)
        return (yield)

    @pytest.hookimpl(wrapper=True, optionalhook=True)
    def pytest_timeout_cancel_timer(self) -> Generator[None, Any, Any]:
        self._limit = None
        return (yield)

    @contextlib.contextmanager
    def paused(self, item: pytest.Item) -> Iterator[None]:
        """Suspend the test's time limit; its fixtures get the remaining time."""
        if self._limit is None or self._limit[0] is not item:
            yield
            return
        _, settings, end = self._limit
        left, hooks = end - time.monotonic(), item.config.hook
        hooks.pytest_timeout_cancel_timer(item=item)
        try:
            yield
        finally:
            if left > 0:  # Otherwise the time limit has expired for good.
                rest = settings._replace(timeout=left)
                hooks.pytest_timeout_set_timer(item=item, settings=rest)


# --------------------------------------------------------------------------------------------------
# A recording of each test that compiles, in a private folder; it stays if something was found.


class SuiteRecordings:
    """The current recording, and the folder of all recordings of one process."""

    def __init__(self, root: Path, prefix: str) -> None:
        self._root, self._prefix = root, prefix
        self._count = 0
        self._current: Path | None = None
        self._is_used = False

    def begin(self) -> None:
        """Open a recording, unless the current one is still empty."""
        if self._current is not None:
            return
        self._count += 1
        folder = self._root / f"{self._prefix}{self._count}"
        command = [str(word) for word in getattr(sys, "orig_argv", sys.argv)]
        try:
            self._current = create_recording(command, output=folder, inside=True)
        except ToolFailure:
            return  # The disk is full; calls are checked anyway.
        SCOPE.open(self._current)

    def note_use(self) -> bool:
        """Note a compile; return whether it is the first in a recording other than the first."""
        is_first, self._is_used = not self._is_used, True
        return is_first and self._count > 1

    @property
    def path(self) -> str:
        return str(self._current or "")

    def end(self, *, keep: bool) -> None:
        """Close the test's recording, and delete it unless `keep` is set."""
        if self._current is None or not (self._is_used or keep):
            return
        SCOPE.close()
        if not keep:
            shutil.rmtree(self._current, ignore_errors=True)
        self._current, self._is_used = None, False

    def finish(self) -> None:
        """Close and delete the open recording at the end of the suite."""
        self._is_used = True
        self.end(keep=False)


# --- The hooks into torch that tell what a test compiles. They need no torch to be defined --------


def suite_hooks(get_watch: Callable[[], GraphWatch]) -> tuple[Hook, ...]:
    """Return the hooks around Dynamo's backend and around the creation of backward graphs.

    `get_watch` creates the watch, which needs torch, when the first graph is compiled.
    """

    def keeping_calls(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call_user_compiler(output: Any, module: Any, examples: Any) -> Any:
            __tracebackhide__ = True
            found: Any = BROKEN if SCOPE.is_redirected else SCOPE.guard(get_watch)
            if found is BROKEN:
                return original(output, module, examples)
            return found.compile(original, output, module, examples)

        return call_user_compiler

    def note_ready(args: Arguments, kwargs: Keywords) -> None:
        source = getattr(args[0], "source_code", None) or ""
        options = args[3] if len(args) > 3 else kwargs.get("graph_kwargs") or {}
        if phase_of_wrapper(source) == "backward" or options.get("is_backward"):
            get_watch().note_backward(current_compile_id())

    return (
        KEEPING_WRAPPERS,
        Hook(
            stage=stages.DYNAMO,
            records="the first calls of each graph in a test, to be compared with eager later",
            wraps=(Wrap(hooked.CALL_USER_COMPILER, keeping_calls),),
        ),
        Hook(
            stage=stages.INDUCTOR,
            records="which graphs have a compiled backward graph",
            wraps=(Wrap(hooked.POST_COMPILE, watch(note_ready)),),
        ),
    )


# --------------------------------------------------------------------------------------------------
# The words that pytest was called with, for a child that is to run one test in the same way.

_HANDED_OVER = "inductoscope_words"
# These options wait for input.
_ASKING = ("--pdb", "--trace")


def words_of_run(config: pytest.Config) -> list[str]:
    """Return pytest's command-line options without the tests that it names."""
    handed_over = getattr(config, "workerinput", {}).get(_HANDED_OVER)
    if handed_over is not None:
        return list(handed_over)
    words = [str(word) for word in config.invocation_params.args if str(word) not in _ASKING]
    return _without_tests(words, config.getoption("file_or_dir", None) or ())


def hand_words_over(node: Any) -> None:
    """Pass the command line to a pytest-xdist worker, which does not see it."""
    node.workerinput[_HANDED_OVER] = words_of_run(node.config)


def _without_tests(words: Sequence[str], tests: Sequence[str]) -> list[str]:
    left = list(words)

    def follows_an_option(number: int) -> bool:
        return number > 0 and left[number - 1].startswith("-")

    for test in tests:
        places = [number for number, word in enumerate(left) if word == test]
        if places:
            # The value of an option may be spelt like a test, as in `-k model model`.
            del left[min(places, key=follows_an_option)]
    return left


# --- Runs the doctor on one test, in a process group that can be ended ----------------------------

_LONGEST, _GRACE = 1800.0, 5.0
# Variables of pytest-xdist workers; a child that inherited them would act as a worker.
_OF_WORKERS = ("PYTEST_XDIST_", "PYTEST_CURRENT_TEST")
# Options for paths that pytest writes to, with their destinations; the child has its own.
_PLACES = {
    "--basetemp": "basetemp",
    "--junitxml": "xmlpath",
    "--log-file": "log_file",
    "--inductoscope-json": "inductoscope_json",
}


def name_for_pytest(config: pytest.Config, nodeid: str) -> str:
    """Return a test's node id relative to the folder in which pytest was started."""
    file, _, inside = nodeid.partition("::")
    file = os.path.relpath(config.rootpath / file, config.invocation_params.dir)
    return f"{file}::{inside}" if inside else file


def command_to_type(config: pytest.Config, nodeid: str) -> str:
    return f"inductoscope doctor -m pytest {shlex.quote(name_for_pytest(config, nodeid))}"


def doctors_verdict(
    item: pytest.Item, folder: Path, environment: Mapping[str, str], *, quick: bool
) -> tuple[dict[str, Any] | None, str]:
    """Run the doctor on one test; return its verdict, or None and the reason.

    `environment` is that of pytest's start, since tests may change os.environ.
    """
    answer, said = (folder.with_name(f"{folder.name}.{ending}") for ending in ("json", "txt"))
    words = ["doctor", "--quiet", "--json", str(answer), "--output", str(folder)]
    words += ["--quick"] if quick else []
    own_place = tempfile.TemporaryDirectory(prefix="pytest-", dir=folder.parent)
    with said.open("wb") as output, own_place as own:
        child = start_group(
            tool_command([*words, "-m", "pytest", *_words_for_child(item, own)]),
            environment={n: v for n, v in environment.items() if not n.startswith(_OF_WORKERS)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            folder=item.config.invocation_params.dir,
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


def _words_for_child(item: pytest.Item, own: str) -> list[str]:
    """Return this run's options, changed so that the child uses one process and own paths.

    If an option is given twice, the last one wins.
    """
    config = item.config
    words = [*words_of_run(config), "--rootdir", str(config.rootpath)]
    if config.inipath is not None:
        words += ["-c", str(config.inipath)]
    words += ["-o", f"cache_dir={own}/cache"]
    words += [
        f"{option}={own}/{value}"
        for option, value in _PLACES.items()
        if config.getoption(value, None)
    ]
    if config.pluginmanager.hasplugin("xdist"):
        words += ["-n", "0"]
    if config.pluginmanager.hasplugin("pytest_cov"):
        words.append("--no-cov")
    return [*words, name_for_pytest(config, item.nodeid)]


def inductors_exception(error: BaseException) -> BaseException | None:
    """Find Inductor's exception in the chain of causes of `error`; None if there is none."""
    dynamo: Any = sys.modules.get("torch._dynamo.exc")
    wrapping: tuple[()] | type[Exception] = getattr(dynamo, "BackendCompilerFailed", ())
    for one in chain_of(error):
        if (
            f"{type(one).__module__}.{type(one).__qualname__}"
            == "torch._inductor.exc.InductorError"
        ):
            return one
        # Dynamo wraps the exceptions of a backend. For Inductor, it names the stage.
        if isinstance(one, wrapping) and getattr(one, "backend_name", "") == stages.INDUCTOR:
            return one
    return None


_NATIVE = (stages.CPP_COMPILE, stages.TRITON_COMPILE)


def finding_of_exception(error: BaseException, recording: str) -> SuiteFinding:
    """Return the finding of the test's recording, else one for the exception alone."""
    said = f"{type(error).__name__}: {error}".partition("\n")[0][:400]
    finding = SuiteFinding(
        CRASH,
        f"Inductor failed to compile a graph: {said}",
        known_by=["the test failed with this exception, or while it handled it"],
    )
    found = compile_error(load(Path(recording))) if recording else ()
    # The last exception: earlier ones did not end the test.
    for last in [one for one in found if one.is_problem][-1:]:
        finding.verdict = COMPILE_ERROR if last.stage in _NATIVE else CRASH
        finding.summary, finding.stage, finding.source = last.title, last.stage, last.source
        finding.compile = last.compile
        finding.known_by += last.evidence
    return finding


# --- The part of the plugin that runs beside the tests, in pytest itself or in a worker of it -----

# The attribute of a report, and the name of a property, under which everything is handed over.
HANDED_OVER = "inductoscope"
_SECTION = "inductoscope"


class SuiteChecks:
    """The pytest hooks that capture calls during a test, check them, and report the result."""

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
        # Whether only the findings make the test fail.
        self._is_own_failure = False
        # Findings of earlier runs of a test: a rerun compiles less anew, so less is known then.
        self._found_before: dict[str, dict[tuple[str, str], SuiteFinding]] = {}

    # --- the session --------------------------------------------------------------------------

    def start(self) -> None:
        """Start recording before tests, and torch with them, are imported."""
        self._recordings.begin()
        self._installer.start()

    def pytest_unconfigure(self) -> None:
        self._installer.stop()
        self._recordings.finish()

    def _get_watch(self) -> GraphWatch:
        """Return the graph watch; on first use this imports torch, which is loaded by then."""
        if self._watch is None:
            # Warnings from importing torch are not the test's.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                from inductoscope.inside.pytest_calls import GraphWatch

            self._watch = GraphWatch(self._options.calls, self._prefix, self._recordings.note_use)
            # The first graph belongs to the running test.
            self._begin_to_watch()
        return self._watch

    def _begin_to_watch(self) -> None:
        self._seen = None
        if self._watch is not None:
            from inductoscope.inside.pytest_calls import SeenInTest

            self._watch.seen = self._seen = SeenInTest() if self._is_on else None

    # --- one test -----------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._test, self._is_own_failure = SuiteTest(item.nodeid), False
        item.user_properties[:] = [one for one in item.user_properties if one[0] != HANDED_OVER]
        self._is_on = item.get_closest_marker("no_inductoscope") is None
        self._recordings.begin()
        self._begin_to_watch()
        return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Run the test, then check its calls before its fixtures are torn down."""
        try:
            result = yield
        except (Exception, pytest.fail.Exception) as error:
            self._check(item, error)
            raise
        except pytest.skip.Exception:
            self._check(item, None)
            raise
        # unittest stores its exceptions for pytest to find later.
        kept_back = getattr(item, "_excinfo", None)
        self._check(item, kept_back[0].value if kept_back else None)
        if self._options.fails and self._test.findings and not kept_back:
            self._is_own_failure = True
            pytest.fail(f"inductoscope: {text_of_findings(self._test.findings)}", pytrace=False)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Stop capturing calls; those of this test are freed after its fixtures."""
        self._is_on = False
        if self._watch is not None:
            self._watch.seen = None
        try:
            return (yield)
        finally:
            self._seen = None
            if self._watch is not None:
                from inductoscope.inside.pytest_calls import forget_wrappers

                forget_wrappers()
            here = self._recordings.path
            self._recordings.end(keep=any(one.recording == here for one in self._test.findings))

    def _check(self, item: pytest.Item, failure: BaseException | None) -> None:
        """Compare the test's calls with eager; `failure` is the exception of the test itself."""
        seen, watch = self._seen, self._watch
        if seen is None or watch is None:
            return
        from inductoscope.inside.pytest_calls import check_calls

        with self._limits.paused(item):
            began = time.monotonic()
            watch.seen, watch.is_busy = None, True
            try:
                calls, findings = check_calls(seen.calls, failure)
            except pytest.fail.Exception as error:
                # The test's time limit, which had passed until now, expired.
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
        report = yield
        if report.when == "call" or (report.when == "setup" and call.excinfo is not None):
            if self._seen is not None and not self._test.graphs:
                self._test.graphs = list(self._seen.graphs)
            if call.excinfo is not None and (report.failed or hasattr(report, "wasxfail")):
                self._look_at_exception(item, call.excinfo.value)
            self._attach(item, report)
        return report

    def _look_at_exception(self, item: pytest.Item, raised: BaseException) -> None:
        """Add a finding if the test's own exception came from Inductor."""
        error = inductors_exception(raised) if self._is_on else None
        if error is not None:
            found = SCOPE.attempt(finding_of_exception, error, self._recordings.path)
            if isinstance(found, SuiteFinding):
                self._test.findings += self._completed(item, [found])

    def _completed(self, item: pytest.Item, findings: list[SuiteFinding]) -> list[SuiteFinding]:
        """Add recording, command and doctor's verdict to findings; reuse those of earlier runs."""
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
            quick = self._options.doctor == "quick"
            return doctors_verdict(item, folder, self._environment, quick=quick)
        except (OSError, InductoscopeError, pytest.fail.Exception) as error:
            return None, str(error)

    def _attach(self, item: pytest.Item, report: pytest.TestReport) -> None:
        test = self._test
        if test.graphs or test.calls or test.findings:
            setattr(report, HANDED_OVER, asdict(test))
        if test.findings:
            if not self._is_own_failure:
                report.sections.append((_SECTION, text_of_findings(test.findings)))
            found = asdict(test)["findings"]
            # Also stored on the item: the JUnit file is written from the last report.
            for place in (report, item):
                place.user_properties.append((HANDED_OVER, json.dumps(found)))
        elif report.failed and (text := text_when_right(test)):
            report.sections.append((_SECTION, text))
