"""`inductoscope run` on programs that misbehave: the program must not notice the tool."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from inductoscope.analysis.rules import diagnose
from support.programs import TOOL, Workplace
from support.waiting import wait_until

pytestmark = [pytest.mark.spread, pytest.mark.usefixtures("python_as_it_is")]

# What a program can see of how it was started, printed as JSON.
INTROSPECT = """
import json, os, sys, signal
print(json.dumps({
    "argv": sys.argv,
    "cwd": os.getcwd(),
    "path": sys.path,
    "name": __name__,
    "interrupt": str(signal.getsignal(signal.SIGINT)),
    "blocked": sorted(str(s) for s in signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "descriptors": sorted(int(f) for f in os.listdir("/proc/self/fd"))[:-1],
    "modules": sorted(m for m in sys.modules if "custom" in m and "site" in m) ,
    "hook": sys.excepthook is sys.__excepthook__,
}))
"""


# --- the program sees no difference ---------------------------------------------------------------


def test_arguments_folder_path_and_signals_are_those_of_a_plain_run(workplace: Workplace) -> None:
    workplace.write("look.py", INTROSPECT)
    words = ("look.py", "--epochs", "1", "-m", "x y")

    plain, recorded = workplace.run_plain(*words), workplace.run(*words)

    expected, seen = json.loads(plain.stdout), json.loads(recorded.stdout)
    # Python lists the start-up hook's module; everything else is the same.
    assert seen.pop("modules") == ["sitecustomize"]
    expected.pop("modules")
    assert seen == expected


def test_a_module_runs_with_dash_m(workplace: Workplace) -> None:
    workplace.write("package/__init__.py", "")
    workplace.write("package/__main__.py", INTROSPECT)

    plain, recorded = workplace.run_plain("-m", "package", "a"), workplace.run("-m", "package", "a")

    assert json.loads(recorded.stdout)["argv"] == json.loads(plain.stdout)["argv"]
    assert recorded.exit_code == 0


def test_standard_input_reaches_the_program(workplace: Workplace, tmp_path: Path) -> None:
    workplace.write("echo.py", "import sys; print(sys.stdin.read().upper())")
    done = subprocess.run(
        [*TOOL, "run", "--quiet", "--output", str(tmp_path / "r"), "echo.py"],
        cwd=workplace.folder,
        input="typed",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "TYPED\n"
    assert done.stderr == ""


def test_descriptors_of_the_shell_reach_the_program(workplace: Workplace) -> None:
    """As in: inductoscope run script.py <(command)."""
    workplace.write("read.py", "import sys; print(open(sys.argv[1]).read())")
    reading, writing = os.pipe()
    os.write(writing, b"handed over")
    os.close(writing)
    done = subprocess.run(
        [*TOOL, "run", "--quiet", "--output", "recording", "read.py", f"/dev/fd/{reading}"],
        cwd=workplace.folder,
        pass_fds=[reading],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "handed over\n", done.stderr


def test_the_users_own_sitecustomize_still_runs_once(workplace: Workplace) -> None:
    workplace.write("hooks/sitecustomize.py", "import sys; sys.runs = getattr(sys, 'runs', 0) + 1")
    workplace.write("look.py", "import sys, sitecustomize; print(sys.runs, sitecustomize.__file__)")
    more = {"PYTHONPATH": str(workplace.folder / "hooks")}

    plain, recorded = workplace.run_plain("look.py", **more), workplace.run("look.py", **more)

    assert recorded.stdout == plain.stdout
    assert recorded.stdout.startswith("1 ")


def test_a_sitecustomize_that_fails_fails_as_without_the_tool(workplace: Workplace) -> None:
    workplace.write("hooks/sitecustomize.py", "raise ImportError('the user planted this')")
    workplace.write("look.py", "print('went on')")
    more = {"PYTHONPATH": str(workplace.folder / "hooks")}

    plain, recorded = workplace.run_plain("look.py", **more), workplace.run("look.py", **more)

    assert "the user planted this" in plain.stderr
    assert "the user planted this" in recorded.program_stderr
    assert recorded.stdout == plain.stdout == "went on\n"


def test_torch_may_be_imported_by_the_users_own_sitecustomize(workplace: Workplace) -> None:
    workplace.write("hooks/sitecustomize.py", "import torch, torch._inductor.compile_fx")
    workplace.write(
        "script.py",
        "import torch\nprint(torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2)))",
    )

    recorded = workplace.run("script.py", PYTHONPATH=str(workplace.folder / "hooks"))

    assert recorded.stdout == "tensor([2., 2.])\n"
    assert [compile_.id for compile_ in recorded.recording.compiles] == ["0/0"]


def test_a_planted_import_hook_still_patches_torch_and_is_recorded_around(
    workplace: Workplace,
) -> None:
    """Start-up hooks that patch torch modules on import act first; ours wrap what they leave."""
    planted = workplace.plant("torch._dynamo.guards", 'm.PLANTED = "yes"')
    workplace.write(
        "script.py",
        "import torch, torch._dynamo.guards as g\n"
        "torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2))\n"
        "print(g.PLANTED)",
    )

    outcome = workplace.run("script.py", **planted)

    assert outcome.stdout == "yes\n", outcome.stderr
    assert outcome.recording.compiles[0].guard_count > 0


# --- endings --------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 2, 3, 7, 127, 255])
def test_the_exit_code_is_the_programs_own(workplace: Workplace, code: int) -> None:
    workplace.write("script.py", f"raise SystemExit({code})")
    outcome = workplace.run("script.py")
    assert outcome.exit_code == code
    assert outcome.recording.ending is not None
    assert outcome.recording.ending.exit_code == code


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGABRT", "SIGTERM"])
def test_a_signal_ends_the_tool_the_way_it_ended_the_program(
    workplace: Workplace, name: str
) -> None:
    number = getattr(signal, name)
    workplace.write("script.py", f"import os; os.kill(os.getpid(), {int(number)})")

    outcome = workplace.run("script.py")

    assert outcome.exit_code == -number
    titles = [finding.title for finding in diagnose(outcome.recording)]
    assert any(name in title for title in titles), titles
    assert f"signal {int(number)}" in outcome.stderr


def test_os_exit_is_no_problem_and_what_was_recorded_stays(workplace: Workplace) -> None:
    workplace.write("script.py", "import os, torch; print('hello', flush=True); os._exit(5)")
    outcome = workplace.run("script.py")
    assert (outcome.exit_code, outcome.stdout) == (5, "hello\n")
    assert [p.torch["version"][:1] for p in outcome.recording.processes if p.torch] == ["2"]
    assert not [f for f in diagnose(outcome.recording) if f.is_problem]


def test_a_signal_sent_to_the_tool_reaches_the_program(workplace: Workplace) -> None:
    workplace.write(
        "script.py",
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(42))\n"
        "open('ready', 'w').close()\n"
        "time.sleep(60)",
    )
    child = workplace.start("script.py")
    assert wait_until((workplace.folder / "ready").exists)
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=30) == 42


def test_an_interrupt_sent_to_the_tool_alone_reaches_the_program(workplace: Workplace) -> None:
    workplace.write(
        "script.py",
        "import time\n"
        "open('ready', 'w').close()\n"
        "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('tidied up')",
    )
    child = workplace.start("script.py")
    assert wait_until((workplace.folder / "ready").exists)
    child.send_signal(signal.SIGINT)
    stdout, _ = child.communicate(timeout=30)
    assert (stdout, child.returncode) == ("tidied up\n", 0)


def test_killing_the_tool_leaves_the_program_and_its_recording(workplace: Workplace) -> None:
    workplace.write(
        "script.py",
        "import time, torch, os\n"
        "open('ready', 'w').write(str(os.getpid()))\n"
        "while not os.path.exists('go'): time.sleep(0.05)\n"
        "torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2))\n"
        "open('done', 'w').close()",
    )
    child = workplace.start("script.py")
    assert wait_until((workplace.folder / "ready").exists)
    child.kill()
    child.wait(timeout=30)
    (workplace.folder / "go").touch()
    assert wait_until((workplace.folder / "done").exists)

    from inductoscope.model.fold import load

    recording = load(workplace.folder / "recording")
    assert recording.ending is None
    assert [compile_.outcome for compile_ in recording.compiles] == ["compiled"]


# --- commands that cannot be run ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("missing.py",), "missing.py does not exist"),
        ((), "Nothing to run"),
        (("no-such-program",), "neither a script"),
        (("-m",), "-m needs an argument"),
        (("folder",), "without a __main__.py"),
        (("cells.ipynb",), "cells.ipynb is a notebook"),
    ],
)
def test_what_cannot_be_run_is_said_and_exits_with_2(
    workplace: Workplace, words: tuple[str, ...], message: str
) -> None:
    (workplace.folder / "folder").mkdir()
    outcome = workplace.run(*words)
    assert outcome.exit_code == 2
    assert message in outcome.stderr
    assert not outcome.recording_path.exists()


def test_a_failing_import_prints_the_traceback_of_a_plain_run(workplace: Workplace) -> None:
    """Modules that the scope waits for are imported through it, and it must not show."""
    other = Workplace(workplace.folder.parent / "other", workplace.cache)
    other.folder.mkdir()
    script = workplace.write(
        "../fails.py", "import os, torch\nos.rmdir(os.getcwd())\nimport torch._dynamo"
    )

    plain = other.run_plain(str(script))
    recorded = workplace.run(str(script), options=("--output", str(script.parent / "kept")))

    assert "FileNotFoundError" in plain.stderr
    assert recorded.program_stderr == plain.stderr


def test_a_script_that_is_not_python_fails_as_python_says(workplace: Workplace) -> None:
    (workplace.folder / "binary.py").write_bytes(bytes(range(256)))
    plain, recorded = workplace.run_plain("binary.py"), workplace.run("binary.py")
    assert recorded.exit_code == plain.exit_code == 1
    assert recorded.program_stderr == plain.stderr


def test_a_program_without_torch_says_that_nothing_was_recorded(workplace: Workplace) -> None:
    workplace.write("script.py", "print('no torch here')")
    outcome = workplace.run("script.py")
    assert (outcome.exit_code, outcome.stdout) == (0, "no torch here\n")
    assert "No process of the command imported torch" in outcome.stderr


def test_an_output_folder_that_is_in_use_is_not_overwritten(workplace: Workplace) -> None:
    workplace.write("script.py", "print('ran')")
    kept = workplace.write("recording/precious.txt", "mine")
    outcome = workplace.run("script.py")
    assert outcome.exit_code == 2
    assert "not an empty folder" in outcome.stderr
    assert kept.read_text() == "mine"
    assert outcome.stdout == ""
