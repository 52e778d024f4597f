"""Under the doctor a program has one thread, and is compiled for as many as it has without it."""

from __future__ import annotations

import subprocess
import sys

# Modules that Inductor imports later are hooked as the doctor's agent hooks them.
_PROGRAM = """
import torch
from inductoscope.doctor.inside.threads import ThreadLimit

torch.set_num_threads(3)
limit = ThreadLimit()
limit.apply()
import torch._inductor.utils
hooks = limit.on_import()
hooks["torch._inductor.utils"]()
import torch._inductor.compile_fx
import torch._inductor.codegen.cpp as loops
import torch._inductor.codegen.cpp_gemm_template as products
hooks["torch._inductor.codegen.cpp_gemm_template"]()
print(torch.get_num_threads(), loops.parallel_num_threads(), products.parallel_num_threads())
torch.set_num_threads(2)
print(loops.parallel_num_threads())
"""


def test_loops_are_generated_for_the_threads_that_the_program_has_without_the_doctor() -> None:
    command = [sys.executable, "-W", "ignore", "-c", _PROGRAM]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.stdout.split("\n")[:2] == ["1 3 1", "2"], run.stderr
