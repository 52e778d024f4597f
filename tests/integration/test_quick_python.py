"""The Python that programs under test run with: what it keeps is what torch computes itself."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ASKS = """
import jinja2
import torch._inductor.codecache as codecache
from torch._inductor.cpu_vec_isa import pick_vec_isa

print(codecache.torch_key().hex(), codecache.triton_key(), pick_vec_isa())
for _ in range(2):
    template = jinja2.Environment().from_string("{% for i in x %}{{ i }},{% endfor %}{{ name }}")
    print(template.render(x=[1, 2], name="kernel"))
"""


def ask(**more: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", ASKS],
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stdout


def test_what_is_kept_is_what_torch_computes_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_VEC_ISA_OK", raising=False)
    kept = os.environ["QUICK_PYTHON_KEPT"]
    first, again = ask(), ask()
    assert len(os.listdir(kept)) > 4
    assert first == again == ask(PYTHONPATH="")
    assert first.count("1,2,kernel") == 2
