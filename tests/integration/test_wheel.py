"""The package as users install it: a wheel, in an environment that has no torch."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from inductoscope.version import __version__
from support.examples import stored

ROOT = Path(__file__).resolve().parents[2]
# What the build reads; the checkout itself stays as it is.
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "src")
# What the tool depends on, with what that needs.
DEPENDENCIES = (
    *("click", "jinja2", "markupsafe", "msgspec", "psutil"),
    *("rich", "markdown_it", "mdurl", "pygments", "typing_extensions"),
)


def call(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command that has to succeed."""
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the checkout, with the setuptools that is installed."""
    folder = tmp_path_factory.mktemp("build")
    for name in SOURCES:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(
                path, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
            )
        else:
            shutil.copy(path, folder / name)
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index")
    call(*pip, "--wheel-dir", "out", ".", cwd=folder)
    (built,) = (folder / "out").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment that has the wheel and its dependencies alone."""
    folder = tmp_path_factory.mktemp("environment")
    call(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index")
    call(*pip, "--no-compile", wheel, cwd=folder)
    (folder / "dependencies").mkdir()
    for name in DEPENDENCIES:
        link_module(name, folder / "dependencies")
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{folder / 'dependencies'}\n")
    return python.parent


def link_module(name: str, folder: Path) -> None:
    found = importlib.util.find_spec(name)
    if found is not None and found.origin is not None:
        origin = Path(found.origin)
        path = origin.parent if origin.name == "__init__.py" else origin
        (folder / path.name).symlink_to(path)


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("inductoscope/")}
        licence = archive.read(f"inductoscope-{__version__}.dist-info/licenses/LICENSE").decode()
    package = ROOT / "src" / "inductoscope"
    assert packed == {
        f"inductoscope/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert "inductoscope/py.typed" in packed
    assert "inductoscope/inside/bootstrap/sitecustomize.py" in packed
    assert "inductoscope/views/page/assets/page.js" in packed
    assert "Apache License" in licence


def test_the_installed_command_works_without_torch(installed: Path, tmp_path: Path) -> None:
    command, recording = installed / "inductoscope", stored("relu_add_sum")
    assert call(command, "--version", cwd=tmp_path).stdout == (
        f"inductoscope, version {__version__}\n"
    )
    assert "fusion" in call(command, "explain", "scheduler", cwd=tmp_path).stdout
    assert "cpp_fused_add_relu_sum_0" in call(command, "show", recording, cwd=tmp_path).stdout
    call(command, "report", recording, "--assembly", "0", "-o", "page.html", cwd=tmp_path)
    assert "<title>" in (tmp_path / "page.html").read_text("utf-8")
    where = call(
        installed / "python",
        "-c",
        "import inductoscope; print(inductoscope.__file__)",
        cwd=tmp_path,
    ).stdout
    assert str(installed.parent) in where


def test_a_recorded_program_finds_the_hooks(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('trained')")
    done = call(installed / "inductoscope", "run", "--output", "rec", "train.py", cwd=tmp_path)
    assert done.stdout == "trained\n"
    assert list((tmp_path / "rec" / "streams").glob("*.jsonl"))
