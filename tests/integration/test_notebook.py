"""`%%inductoscope` in a real Jupyter kernel: what is typed into cells, and what they show."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest

from inductoscope.model.fold import load
from inductoscope.processes.status import all_pids
from inductoscope.processes.tree import environment_of
from inductoscope.recording.location import FOLDER_VARIABLE
from support.programs import Workplace

pytest.importorskip("torch")
pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install ipykernel")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install nbclient")
nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: pip install nbclient")

# The code of C++ kernels that have an exponential function is wrong.
WRONG_EXP = """
for overrides in (m.CppOverrides, m.CppVecOverrides):
    overrides.exp = staticmethod(lambda x: f"{x} + {x}")
"""

CELLS = {
    "load": "%load_ext inductoscope",
    "recorded": """%%inductoscope --fresh
import torch

@torch.compile
def double(x):
    return torch.relu(x) * 2

y = double(torch.ones(3))
y.sum().item()""",
    "kept": "print('still', float(y[0]))",
    "raises": """%%inductoscope --no-page
z = 5
raise ValueError("of the cell's own")""",
    "interrupted": """%%inductoscope
import os, signal, threading, time
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
time.sleep(60)""",
    "off": """
import sys
from inductoscope.inside.install import Installer
from inductoscope.inside.scope import SCOPE
print(SCOPE.active, any(isinstance(one, Installer) for one in sys.meta_path))""",
    "silent": "%%inductoscope --no-page\n1 + 1;",
    "magics": "%%inductoscope --no-page\nnumbers = !echo 42\nint(numbers[0])",
    "option": "%%inductoscope --frsh\n1",
    "broken": "%%inductoscope\ndef (",
    "script with magics": "%%inductoscope doctor\n%time 1",
    "no such cells": "%%inductoscope doctor --cells 99\n1",
    "undefined": "%%inductoscope doctor --quick --no-page\nprint(double)",
    "name": "what = 'five sensors'",
    "of earlier cells": """%%inductoscope doctor --quick --no-page --cells "1 14"
raise ValueError(what)""",
    "alarm": "threading.Timer(5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()",
    "ended": "%%inductoscope doctor\nimport time\ntime.sleep(60)",
    "examined": """%%inductoscope doctor --quick
import torch

def model(x):
    return torch.exp(x) + 1

x = torch.linspace(1, 2, 64)
torch.testing.assert_close(torch.compile(model)(x), model(x))""",
}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """The notebook run from top to bottom, once."""
    place = tmp_path_factory.mktemp("notebook")
    (place / "here").mkdir()
    workplace = Workplace(place / "here", place / "cache")
    planted = workplace.plant("torch._inductor.codegen.cpp", WRONG_EXP)
    book = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in CELLS.values()]
    )
    client = nbclient.NotebookClient(
        book,
        timeout=300,
        allow_errors=True,
        resources={"metadata": {"path": str(workplace.folder)}},
    )
    environment = workplace.environment(**planted)
    client.execute(env=environment)
    where = environment[FOLDER_VARIABLE]
    assert [pid for pid in all_pids() if environment_of(pid).get(FOLDER_VARIABLE) == where] == []
    return {name: cell.outputs for name, cell in zip(CELLS, book.cells, strict=True)}


def bundle(outputs: list[Any]) -> dict[str, str]:
    """Displayed output, in all its forms."""
    (found,) = (one for one in outputs if one.output_type == "display_data")
    data: dict[str, str] = found.data
    return data


def printed(outputs: list[Any]) -> str:
    return "".join(one.text for one in outputs if one.output_type == "stream")


def error(outputs: list[Any]) -> Any:
    (found,) = (one for one in outputs if one.output_type == "error")
    return found


def page_in(shown: str) -> str:
    """The page that the frame has, as a browser reads it."""
    found = re.search(r'<iframe [^>]*sandbox="allow-scripts"[^>]* srcdoc="([^"]*)">', shown)
    assert found is not None
    return html.unescape(found[1])


def test_a_recorded_cell_shows_findings_and_the_page(outputs: dict[str, list[Any]]) -> None:
    shown = bundle(outputs["recorded"])
    assert set(shown) == {"text/plain", "text/html"}
    assert "double" in shown["text/plain"]
    assert "In[2]:4" in shown["text/plain"]
    assert "ipykernel_" not in shown["text/plain"]
    page = page_in(shown["text/html"])
    assert page.startswith("<!doctype html>")
    assert page.endswith("</body></html>\n")
    assert 'id="index"' in page


def test_variables_and_the_last_value_stay(outputs: dict[str, list[Any]]) -> None:
    (value,) = (one for one in outputs["recorded"] if one.output_type == "execute_result")
    assert value.data["text/plain"] == "6.0"
    assert printed(outputs["kept"]) == "still 2.0\n"
    (number,) = (one for one in outputs["magics"] if one.output_type == "execute_result")
    assert number.data["text/plain"] == "42"
    assert not any(one.output_type == "execute_result" for one in outputs["silent"])


def test_a_cell_that_raises_shows_its_error_and_the_findings(outputs: dict[str, list[Any]]) -> None:
    raised = error(outputs["raises"])
    assert (raised.ename, raised.evalue) == ("ValueError", "of the cell's own")
    traceback = re.sub(r"\x1b\[[\d;]*m", "", "".join(raised.traceback))
    assert "Cell In[4], line 3" in traceback
    assert "inductoscope/notebook" not in traceback
    shown = bundle(outputs["raises"])
    assert "failed with ValueError at In[4]:3" in shown["text/plain"]
    assert "iframe" not in shown["text/html"]
    assert "of the cell&#x27;s own" in shown["text/html"]


def test_an_interrupted_cell_leaves_nothing_behind(outputs: dict[str, list[Any]]) -> None:
    assert error(outputs["interrupted"]).ename == "KeyboardInterrupt"
    assert printed(outputs["off"]) == "False False\n"
    said = bundle(outputs["interrupted"])["text/plain"]
    recording = load(Path(said.removeprefix("interrupted; recorded until then: ")))
    assert all(process.ended for process in recording.processes)


def test_an_examination_that_is_interrupted_ends(outputs: dict[str, list[Any]]) -> None:
    """That no process is left, `outputs` looks after the last cell."""
    assert error(outputs["ended"]).ename == "KeyboardInterrupt"
    assert "running the program" in printed(outputs["ended"])
    assert not any(one.output_type == "display_data" for one in outputs["ended"])


def test_the_doctor_examines_a_cell_alone(outputs: dict[str, list[Any]]) -> None:
    shown = bundle(outputs["examined"])
    assert "wrong-result: " in shown["text/plain"]
    assert "aten.exp.default" in shown["text/plain"]
    # The line has the number that it has in the cell.
    assert "cell.py:5" in shown["text/plain"]
    assert "wrong-result" in page_in(shown["text/html"])
    assert "s] " in printed(outputs["examined"])


def test_a_cell_that_needs_others_is_told_how_to_get_them(outputs: dict[str, list[Any]]) -> None:
    said = bundle(outputs["undefined"])["text/plain"]
    assert "not-a-bug: " in said
    assert "%%inductoscope doctor --cells 1-3" in said


def test_earlier_cells_are_put_before_it(outputs: dict[str, list[Any]]) -> None:
    """The first one is a magic of ours, which no script can have, and needs not to have."""
    assert "five sensors" in bundle(outputs["of earlier cells"])["text/plain"]


@pytest.mark.parametrize(
    ("cell", "kind", "said"),
    [
        ("option", "UsageError", "unrecognized arguments: --frsh"),
        ("broken", "SyntaxError", "invalid syntax"),
        ("no such cells", "UsageError", "--cells 99 names no cell that has run"),
        ("script with magics", "UsageError", "cannot have IPython's % and ! commands"),
    ],
)
def test_what_cannot_work_is_answered_plainly(
    outputs: dict[str, list[Any]], cell: str, kind: str, said: str
) -> None:
    found = [one for one in outputs[cell] if one.output_type == "error"]
    if found:
        assert (found[0].ename, said in found[0].evalue) == (kind, True)
    else:  # IPython prints its own kind of error on standard error.
        assert f"{kind}: " in printed(outputs[cell])
        assert said in printed(outputs[cell])
