"""The end of a script that shows a compile which takes too long: it is timed beside a plain one."""

from __future__ import annotations

from inductoscope.doctor.search.candidate import Candidate

# The stage alone takes 1.5 times as long as a whole plain compile, the whole then 2.5 times.
_TIMES = 2

# The function that replaces parts of torch, if the program has done that.
REPLACE = "replace_parts_of_torch"

_TEXT = '''\
def plain(x):
    """Pointwise operations, as many as the graph has: what to expect of its compile."""
    for _ in range({nodes}):
        x = torch.sin(x)
    return x


def seconds(work):
    torch._dynamo.reset()
    with fresh_cache():  # Nothing comes from a cache, and torch's own cache stays as it is.
        started = time.monotonic()
        work()
        return time.monotonic() - started


if __name__ == "__main__":
    run(fn)
    print("eager: ok")
    torch.compile(plain)(torch.rand(64, 64))  # The first compile loads the compiler.
    usual = seconds(lambda: torch.compile(plain)(torch.rand(32, 64)))
{replaced}    own = seconds(lambda: run({compiled}))
    print(f"{nodes} pointwise operations: {{usual:.1f}} s, this graph: {{own:.1f}} s")
    if own > {times} * usual:
        print(f"compiled: too slow, {{own / usual:.1f}} times")
        sys.exit(1)'''


def slow_compile_text(candidate: Candidate, compiled: str, own: str) -> str:
    """The functions that time compiles, and the main part; `own` may define REPLACE.

    The plain graph is timed before anything of torch is replaced.
    """
    replaced = f"    {REPLACE}()\n" if f"def {REPLACE}()" in own else ""
    nodes = max(candidate.size, 3)
    return _TEXT.format(nodes=nodes, compiled=compiled, times=_TIMES, replaced=replaced)
