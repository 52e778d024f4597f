"""The vector instructions of the processor are probed once, not in every private cache."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from inductoscope.launch import environment as launch_environment
from inductoscope.launch import vector_probes

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"),
    reason="torch builds probes for this processor's instructions only on x86",
)

_ASKS = """
import os
import torch
from torch._inductor import codecache, cpp_builder, cpu_vec_isa
from inductoscope.inside import private_cache
built = []
class Builder(cpp_builder.CppBuilder):
    def build(self):
        built.append(self)
        return super().build()
cpp_builder.CppBuilder = Builder
cpu_vec_isa.supported_vec_isa_list = [cpu_vec_isa.VecAVX2()]
if "learns" in os.environ:
    private_cache.learn_answers()
else:
    for work in private_cache.on_import().values():
        work()
found = cpu_vec_isa.pick_vec_isa()
print(len(built), found)
"""


def _ask(folder: Path, **more: str) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "TORCHINDUCTOR_VEC_ISA_OK"}
    environment.update(launch_environment.private_cache(folder), **more)
    done = subprocess.run(
        [sys.executable, "-c", _ASKS],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def kept(tmp_path, monkeypatch, python_as_it_is):
    """A folder of the tool's own, with nothing in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TORCHINDUCTOR_VEC_ISA_OK", raising=False)
    return tmp_path


def test_the_second_private_cache_builds_no_probes(kept):
    assert vector_probes.variables(os.environ) == {}
    assert _ask(kept / "first") == "1 avx2"
    assert _ask(kept / "second") == "0 avx2"
    # A process without the scope, such as a reproducer's, need not ask either.
    assert vector_probes.variables(os.environ) == {"TORCHINDUCTOR_VEC_ISA_OK": "1"}
    # And a process that is forked from one that knows builds none.
    assert _ask(kept / "third", learns="yes") == "0 avx2"
    # What the user says about it stays as it is.
    assert vector_probes.variables({**os.environ, "TORCHINDUCTOR_VEC_ISA_OK": "0"}) == {}


def test_a_compiler_that_fails_is_asked_again_and_never_trusted(kept):
    compiler = kept / "broken" / "g++"
    compiler.parent.mkdir()
    compiler.write_text('#!/bin/sh\ncase "$*" in *--version*) exec g++ "$@";; esac\nexit 1\n')
    compiler.chmod(0o755)
    assert _ask(kept / "first") == "1 avx2"
    for name in ("second", "third"):
        assert _ask(kept / name, CXX=str(compiler)) == "1 INVALID_VEC_ISA"
    assert vector_probes.variables({**os.environ, "CXX": str(compiler)}) == {}
