"""Under the doctor a program has one thread, and sees as many as it has without it."""

from __future__ import annotations

import os
import subprocess
import sys

# Modules that Inductor imports later are hooked as the doctor's agent hooks them.
_PROGRAM = """
import torch
from inductoscope.inside.doctor.checking_agent import ThreadLimit

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
# Dynamo traces it no more than torch's own function.
try:
    torch.compile(lambda x: x * torch.get_num_threads(), fullgraph=True)(torch.ones(2))
except torch._dynamo.exc.Unsupported:
    print("unsupported")
"""


def test_loops_are_generated_for_the_threads_that_the_program_has_without_the_doctor() -> None:
    command = [sys.executable, "-W", "ignore", "-c", _PROGRAM]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.stdout.splitlines() == ["3 3 1", "2", "unsupported"], run.stderr


# A library that OpenMP gives fewer threads than were set waits for ever, or computes a part only.
_CONVOLUTIONS = """
import threading
import torch
from inductoscope.inside.doctor.checking_agent import ThreadLimit

ThreadLimit().apply()
torch.set_num_threads(4)
from inductoscope.inside.search.forks import Forks

layer, x = torch.nn.Conv3d(3, 64, (3, 7, 7), (1, 2, 2), (1, 3, 3)), torch.randn(1, 3, 4, 32, 32)
found = []
def convolve():
    return float(layer(x).double().sum())
thread = threading.Thread(target=lambda: found.append(convolve()))
thread.start()
thread.join()
found += [convolve(), Forks(workers=1).ask(convolve).result]
print(torch.get_num_threads(), len(set(found)))
"""


def test_convolutions_are_right_in_every_thread_and_in_forks() -> None:
    command = [sys.executable, "-W", "ignore", "-c", _CONVOLUTIONS]
    environment = {**os.environ, "OMP_THREAD_LIMIT": "1", "OPENBLAS_NUM_THREADS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert run.stdout.split() == ["4", "1"], run.stderr
