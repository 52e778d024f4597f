"""The end of a script that shows a compile which takes too long: it is timed beside plain ones."""

from __future__ import annotations

from inductoscope.doctor.search.candidate import Candidate
from inductoscope.vocabulary.flows import AOT_INDUCTOR

# The stage alone takes 1.5 times as long as a whole plain compile, the whole then 2.5 times.
_TIMES = 2

# The function that replaces parts of torch, if the program has done that.
REPLACE = "replace_parts_of_torch"

_TEXT = '''\
def plain(x):
    """Pointwise operations, as many as the graph is lowered to: what to expect of its compile."""
    for _ in range({nodes}):
        x = torch.sin(x)
    return x


def run_plain(function):
    result = function(torch.rand(32, 64, requires_grad={backward}))
    if result.requires_grad:
        result.sum().backward()


def clocks():
    """Seconds; the same without those spent waiting for a processor; seconds of processors."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            delayed = int(file.read().split()[1]) / 1e9
    except OSError:  # Only Linux says so.
        delayed = 0.0
    return time.monotonic(), time.monotonic() - delayed, sum(os.times()[:4])


def seconds(work):
    started = clocks()
    work()
    return [after - before for before, after in zip(started, clocks())]


def compile_seconds(function, call, again):
    """What the first call takes longer than another one."""
    torch._dynamo.reset()
    with fresh_cache():  # Nothing comes from a cache, and torch's own cache stays as it is.
        first = seconds(lambda: call(function))
        return [a - b for a, b in zip(first, seconds(lambda: call(again)))]


def plain_seconds():
    function = torch.compile(plain{dynamic})
    return compile_seconds(function, run_plain, function)


if __name__ == "__main__":
    run(fn)
    print("eager: ok")
    plain_seconds()  # The first compile loads the compiler.
    usual = [plain_seconds(), plain_seconds()]
{replaced}    function = {compiled}
    own = compile_seconds(function, run, {again})
{after}    usual = [max(each) for each in zip(*usual)]
    print(f"{nodes} pointwise operations: {{usual[0]:.1f}} s, this graph: {{own[0]:.1f}} s")
    is_longer = own[0] > {times} * usual[0] and own[1] > {times} * usual[1]
    # A busy machine is no reason: it has to compute for longer, or to wait for something else.
    if is_longer and (own[2] > {times} * usual[2] or own[2] < own[1] / 3):
        print(f"compiled: too slow, {{own[0] / usual[0]:.1f}} times")
        sys.exit(1)'''


def slow_compile_text(candidate: Candidate, compiled: str, own: str, lowered: int = 0) -> str:
    """The functions that time compiles, and the main part; `own` may define REPLACE.

    Plain graphs are timed before anything of torch is replaced, and after the graph if nothing is.
    `lowered` is how many nodes the graph is lowered to, those of its backward included.
    """
    is_replaced = f"def {REPLACE}()" in own
    nodes = max(candidate.size, lowered, 3)
    is_dynamic = candidate.dynamic or bool(candidate.marks)
    return _TEXT.format(
        nodes=(nodes + 1) // 2 if candidate.backward else nodes,
        backward=candidate.backward,
        dynamic=", dynamic=True" if is_dynamic else "",
        compiled=compiled,
        again="fn" if candidate.flow == AOT_INDUCTOR else "function",
        times=_TIMES,
        replaced=f"    {REPLACE}()\n" if is_replaced else "",
        after="" if is_replaced else "    usual.append(plain_seconds())\n",
    )
