"""A stranger's recording: none of its texts is executed when its graphs are compiled again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from inductoscope.inside.rebuilding import Names, Unbuildable, read_arguments, resolve_function

NAMES = Names({}, {})


@pytest.mark.parametrize(
    "text",
    [
        "{'a=exec(bytes([112])), b': 1}",  # FX writes names of arguments into code as they are.
        "{'class': 1}",
        "{'a b': 1}",
        "('x) or print(1',)",
        "('__import__(0)',)",
        "('a;b',)",
        "('a[0]',)",
        "('a=1',)",
        '("it\'s",)',
        "('back\\\\slash',)",
        "('line\\nbreak',)",
    ],
)
def test_texts_that_mean_something_in_code_are_refused(text: str) -> None:
    with pytest.raises(Unbuildable):
        read_arguments(text, NAMES)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("('bij,bjk->bik',)", ("bij,bjk->bik",)),
        ("{'mode': 'bilinear', 'align_corners': False}", None),
        ("('reduce-overhead', 'cuda:0')", ("reduce-overhead", "cuda:0")),
    ],
)
def test_what_graphs_hold_is_read(text: str, value: Any) -> None:
    found = read_arguments(text, NAMES)
    assert value is None or found == value


@pytest.mark.parametrize(
    "name",
    [
        "aten.relu.__getattr__",
        "aten.relu.__init__",
        "aten.relu.__call__",
        "aten.relu.op",
        "aten.chr.default",  # TorchScript's: makes text that no check has seen.
        "aten.format.default",
        "aten.str.default",
        "aten.from_file.default",
        "aten.__class__.__init__",
        "prims.__getattr__",
        "builtins.exec",
        "torch.load",
        "torch.ops.load_library",
        "torch.utils.cpp_extension.load",
        "flex_attention",
    ],
)
def test_what_is_no_computation_is_in_no_table(name: str) -> None:
    with pytest.raises(Unbuildable):
        resolve_function(name, name)


@pytest.mark.parametrize(
    "name",
    [
        "aten.relu.default",
        "aten.relu",
        "aten.add.Tensor",
        "aten.sym_size.int",
        "prims.convert_element_type.default",
        "aten._scaled_dot_product_efficient_attention.default",
        "aten.native_layer_norm.default",
        "torch._C._nn.scaled_dot_product_attention",
    ],
)
def test_what_computes_is(name: str) -> None:
    assert callable(resolve_function(name, name))


# --- the second wall ------------------------------------------------------------------------------

WALLED = """
import os, sys
from inductoscope.inside.confinement import Refused, stay_inside
stay_inside([{own!r}])
try:
    {action}
except Refused as error:
    print("refused", error)
else:
    print("done")
"""


@pytest.mark.parametrize(
    ("action", "outcome"),
    [
        ("open({own!r} + '/x', 'w').close()", "done"),
        ("open({other!r} + '/x', 'w').close()", "refused"),
        ("os.open({other!r} + '/x', os.O_CREAT | os.O_WRONLY)", "refused"),
        ("open({own!r} + '/../other/x', 'w')", "refused"),
        ("open(os.devnull, 'w').close()", "done"),
        ("open({other!r} + '/there').read()", "done"),
        ("os.remove({other!r} + '/there')", "refused"),
        ("os.rename({own!r}, {other!r} + '/moved')", "refused"),
        ("os.system('true')", "refused"),
        ("__import__('subprocess').run(['sh', '-c', 'true'])", "refused"),
        ("os.execv('/bin/true', ['true'])", "refused"),
        ("__import__('socket').socket().connect(('127.0.0.1', 9))", "refused"),
    ],
)
def test_a_process_that_compiles_for_a_stranger_stays_inside(
    action: str, outcome: str, tmp_path: Path
) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    (other / "there").write_text("kept")
    places = {"own": str(own), "other": str(other)}
    source = WALLED.format(own=str(own), action=action.format(**places))
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.stdout.split()[0] == outcome, done.stdout + done.stderr
    assert [path.name for path in other.iterdir()] == ["there"]
