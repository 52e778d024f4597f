"""Stalls for real, one in each child: python stalls.py NAME [NAME...]

The children are forks of one process that has the compiler loaded, which saves most of the time.
Loops pause on each round, so that many of them do not starve each other. `PID NAME` is printed for
each child.
"""

import contextlib
import os
import sys
import time
from pathlib import Path

import jobs
import torch
import torch._inductor.config as config
import torch._inductor.lowering as lowering
from torch._inductor import compile_fx, scheduler  # noqa: F401 - loaded before the forks
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.choices import InductorChoices
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.decomposition import decompositions, fast_random_decomps


def never_ends(*arguments, **options):
    while True:
        time.sleep(0.01)


def small(x):
    return torch.sin(x) + torch.cos(x).sum()


def compile_small(**options):
    torch.compile(small, **options)(torch.ones(8))


def endless_lowering():
    lowering.lowerings[torch.ops.aten.sin.default] = never_ends
    compile_small()


class NeverEnds(CustomGraphPass):
    def __call__(self, graph):
        never_ends()

    def uuid(self):
        return None


def endless_pass():
    config.post_grad_custom_post_pass = NeverEnds()
    compile_small()


def endless_fusion():
    InductorChoices.can_fuse = staticmethod(never_ends)
    compile_small()


def endless_tracing():
    def loops(x):
        while True:
            x = x + 1

    os.nice(10)
    torch.compile(loops, backend="eager")(torch.ones(2))


def endless_backend():
    torch.compile(small, backend=never_ends)(torch.ones(8))


def endless_decomposition():
    decompositions[torch.ops.aten.sin.default] = never_ends
    fast_random_decomps.cache_clear()
    compile_small()


def endless_kernel():
    """A sum of more elements than can be added in a day, of a tensor that takes no memory."""
    torch.set_num_threads(1)
    config.cpp_cache_precompile_headers = False
    many = torch.ones(1, 1).expand(1 << 21, 1 << 21)
    torch.compile(lambda x: (x * 1.5).sin().sum())(many)


def user_code():
    compile_small(backend="eager")
    time.sleep(1000)


COMPILERS = Path(__file__).parent / "compilers"


def compile_with(name, function, size=8):
    config.cpp.cxx = (str(COMPILERS / name),)
    config.cpp_cache_precompile_headers = False
    torch.compile(function)(torch.ones(size))


def compiler_sleeps():
    compile_with("sleeping", lambda x: torch.sin(x) + 1)


def same_compiler_sleeps():
    """The same kernel: one of the two has the lock, the other waits for it."""
    compile_with("sleeping", lambda x: torch.sin(x) + 1)


def slow_compiles():
    """One compile after another, a second each."""
    for size in range(8, 1000):
        torch.compiler.reset()
        with contextlib.suppress(Exception):
            compile_with("slow", torch.tan, size)


class WaitsForWorker(CustomGraphPass):
    """A pass that gives a compile worker of torch something to do, and waits for the answer."""

    def __init__(self, job):
        self.job = job

    def __call__(self, graph):
        AsyncCompile.process_pool().submit(self.job).result()

    def uuid(self):
        return None


def wait_for(job):
    config.compile_threads = 2
    config.post_grad_custom_post_pass = WaitsForWorker(job)
    compile_small()


def worker_stopped():
    wait_for(jobs.stop)


def worker_died():
    wait_for(jobs.lose_sidecar)


def pool_deadlock():
    wait_for(jobs.deadlock)


def raises(*arguments, **options):
    raise RuntimeError("far enough")


def warm_up():
    """Load what a compile needs, up to its first fusion, so that the forks need not."""
    InductorChoices.can_fuse, kept = staticmethod(raises), InductorChoices.__dict__["can_fuse"]
    with contextlib.suppress(Exception):
        compile_small()
    InductorChoices.can_fuse = kept
    torch.compiler.reset()


def main():
    warm_up()
    children = []
    for name in sys.argv[1:]:
        child = os.fork()
        if child == 0:
            globals()[name]()
            os._exit(0)
        print(child, name, flush=True)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
