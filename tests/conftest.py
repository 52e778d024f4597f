"""Surroundings that are the same on every machine."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from syrupy.assertion import SnapshotAssertion
from xdist.scheduler import LoadScopeScheduling

from everyday import has_everyday, is_everyday
from inductoscope.views.env.collection import Environment, collect_environment
from support.programs import QUICK_PYTHON, SEARCH_PATH, Workplace, install_compiler
from support.samples import DATE_VARIABLE, sample_date

# Every run tries the same examples, so a failure is never news from elsewhere. To look further:
# pytest --hypothesis-profile exploring tests/fuzz/test_damaged.py
settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)
settings.register_profile("exploring", deadline=None, print_blob=True)
settings.load_profile("repeatable")


# The order in which they run: tests that need no torch answer first. The longest files come next,
# because begun last they would run while other workers have nothing left to do.
FOLDERS = ("unit", "doctor", "integration", "browser", "fuzz")


def pytest_configure(config: pytest.Config) -> None:
    gc.set_threshold(50_000, 20, 100)
    for folder in FOLDERS:
        config.addinivalue_line("markers", f"{folder}: is in tests/{folder}")
    # Workers take it from here: they have to agree on the sample of the day at midnight, too.
    os.environ.setdefault(DATE_VARIABLE, sample_date().isoformat())
    _restore_default_signals()


def pytest_collection_finish() -> None:
    """Thousands of tests are there to stay: they need not be gone through for garbage."""
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"scripts of the day: {DATE_VARIABLE}={sample_date()}")


def _restore_default_signals() -> None:
    """Start programs with default signals, as a terminal does.

    A script that says `make test &` ignores SIGINT and SIGQUIT in everything it starts, and what
    is ignored is inherited: programs under test could not be interrupted.
    """
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
    ):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--everyday", action="store_true", help="only the tests of `make test`: see everyday.py"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --everyday, import only files that have such tests."""
    if not config.getoption("everyday") or not collection_path.name.startswith("test_"):
        return None
    return None if has_everyday(collection_path) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by folder, choose, and order them."""
    if config.getoption("everyday"):
        others = [item for item in items if not is_everyday(item.nodeid)]
        items[:] = [item for item in items if is_everyday(item.nodeid)]
        config.hook.pytest_deselected(items=others)
    for item in items:
        item.add_marker(_folder(item))
    items.sort(key=lambda item: (FOLDERS.index(_folder(item)), not _is_spread(item)))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return _Scheduling(config, log)


class _Scheduling(LoadScopeScheduling):
    """One worker takes a whole file, or one test function of a file that is spread.

    The process that gives out work has not read the tests, so it looks for the marker in the text.
    """

    def _split_scope(self, nodeid: str) -> str:
        path, _, _ = nodeid.partition("::")
        return nodeid.partition("[")[0] if self._has_spread(path) else path

    @functools.cache  # noqa: B019 - there is one scheduler.
    def _has_spread(self, path: str) -> bool:
        return "pytest.mark.spread" in (self.config.rootpath / path).read_text()


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).parts[0]


def _is_spread(item: pytest.Item) -> bool:
    return item.get_closest_marker("spread") is not None


@pytest.fixture
def snapshot(snapshot: SnapshotAssertion, tmp_path: Path) -> SnapshotAssertion:
    """The text that a user reads, without the name of this test's folder."""

    def without_folder(data: Any, path: Any) -> Any:
        return data.replace(str(tmp_path), "FOLDER") if isinstance(data, str) else data

    return snapshot(matcher=without_folder)


@pytest.fixture(scope="session")
def remembering_compiler(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """A folder with a g++ that keeps what it has compiled until all tests have ended."""
    if shutil.which("g++", path=SEARCH_PATH) is None:
        return None
    return install_compiler(_folder_of_all_workers(tmp_path_factory) / "remembering")


def _folder_of_all_workers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="session", autouse=True)
def _compile_once(
    remembering_compiler: Path | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Kernels are compiled once, unless a test takes the REAL_COMPILER.

    Programs do not collect garbage as often as they would, and have torch's digests of its files
    from each other, unless a test sets the PYTHONPATH or takes Python as it is.
    """
    kept = _folder_of_all_workers(tmp_path_factory) / "kept_by_quick_python"
    kept.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(QUICK_PYTHON))
        patch.setenv("QUICK_PYTHON_KEPT", str(kept))
        if remembering_compiler is not None:
            patch.setenv("PATH", os.pathsep.join([str(remembering_compiler), SEARCH_PATH]))
        yield


@pytest.fixture(scope="session")
def machine_limits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder of a user whose machine the first program that is profiled measures."""
    folder = _folder_of_all_workers(tmp_path_factory) / "machine_limits"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def python_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of ours is in a program, except what the tool puts there."""
    monkeypatch.delenv("PYTHONPATH")


@pytest.fixture(scope="session")
def folders_of_recordings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A path for each test. No folder: making thousands, most for nothing, would take long."""
    place = tmp_path_factory.mktemp("recordings")
    return (place / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def _plain_surroundings(
    monkeypatch: pytest.MonkeyPatch, folders_of_recordings: Iterator[Path]
) -> None:
    """80 columns without colour, and a folder of recordings that is the test's own."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("INDUCTOSCOPE_RECORDINGS", str(next(folders_of_recordings)))


@pytest.fixture
def public_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of recordings that every user can reach, other than those of pytest."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        monkeypatch.setenv("INDUCTOSCOPE_RECORDINGS", folder)
        yield Path(folder)
        for path in (Path(folder), *Path(folder).iterdir()):
            path.chmod(0o700)


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    """An empty folder to run programs in."""
    (tmp_path / "here").mkdir()
    return Workplace(tmp_path / "here", tmp_path / "cache")


@pytest.fixture(scope="session")
def environment() -> Environment:
    """The installed torch, asked once."""
    return collect_environment(sys.executable)


@pytest.fixture
def bugs_of_torch() -> None:
    """The bugs are known to be there in torch 2.13; in another one they may be gone."""
    torch = pytest.importorskip("torch")
    if not torch.__version__.startswith("2.13"):
        pytest.skip("the bugs are known for torch 2.13")
