"""What happens before a graph exists: the user's code, Dynamo, guards, breaks, recompiles."""

from __future__ import annotations

from inductoscope.views.explain.entities import StageEntry, log, setting, variable
from inductoscope.vocabulary import stages

USER = StageEntry(
    name=stages.USER,
    summary="The program itself, outside of everything that is compiled.",
    does="Runs as Python. What fails in eager as well, waits for another rank, or is not seeded is "
    "the program's own, whatever the compiler did before.",
    look_here_when=(
        "the failure is there with TORCH_COMPILE_DISABLE=1 as well",
        "results differ from run to run in eager too",
    ),
    symptoms=(
        "fails in eager too",
        "waits in a collective for another rank",
        "unseeded random numbers or uninitialised memory",
    ),
    elsewhere=(("fails only when compiled", stages.DYNAMO),),
    flags=(variable("TORCH_COMPILE_DISABLE", "1 runs the program without the compiler"),),
    commands=(("inductoscope doctor SCRIPT", "compares with eager before it blames anything"),),
)

DYNAMO = StageEntry(
    name=stages.DYNAMO,
    summary="Dynamo reads the bytecode of a frame and takes an FX graph of torch operations from "
    "it.",
    does="Before a frame runs, Dynamo interprets its bytecode symbolically. Tensor operations go "
    "into an FX graph, Python is executed away, and what the graph relies on becomes guards. Where "
    "it cannot go on it breaks the graph and lets Python run.",
    lives=("torch/_dynamo/symbolic_convert.py", "torch/_dynamo/output_graph.py"),
    notions=(
        ("frame", "one call of a Python function; the unit that is compiled"),
        ("FX graph", "operations as Python calls them (torch.relu), one node each"),
        ("guard", "what has to hold for the compiled code to be used again"),
        ("graph break", "where one graph ends, Python runs, and another graph begins"),
    ),
    look_here_when=(
        "the graph misses an operation or has a wrong constant",
        "the Python around the tensors behaves differently when compiled",
    ),
    symptoms=(
        "graph break, or torch._dynamo.exc.Unsupported",
        "a Python side effect is lost or happens in another order",
        "a value of the first call is baked into the graph",
        "compile time grows with the number of calls",
    ),
    elsewhere=(
        ("the graph is right and the numbers are wrong", stages.AOT),
        ("the same frame compiles again and again", "recompiles"),
    ),
    flags=(
        log("dynamo", "everything that Dynamo says"),
        log("graph_code", "the graph it took, as Python"),
        log("trace_source", "each line of the program as it is traced"),
        log("bytecode", "the bytecode before and after"),
        variable("TORCHDYNAMO_VERBOSE", "1 gives internal stacks of errors"),
    ),
    commands=(
        ("inductoscope show --stage dynamo", "the graph with the user's lines"),
        ("inductoscope show --runnable '0/0 dynamo' --to graph.py", "the graph as a script"),
    ),
    aliases=("fx", "capture", "pre-dispatch"),
)

BREAKS = StageEntry(
    name="breaks",
    summary="Places where Dynamo had to stop, with the reason and the line.",
    does="At a construct that it cannot trace, Dynamo compiles what it has, lets Python "
    "execute the construct and starts a new graph behind it. A loop or a `with` block "
    "around the place can make it leave the whole frame to eager.",
    lives=("torch/_dynamo/graph_break_hints.py", "torch/_dynamo/exc.py"),
    notions=(
        ("resume function", "the rest of a frame behind a break, compiled as a frame of its own"),
        ("fullgraph", "torch.compile(fullgraph=True) makes every break an error"),
    ),
    look_here_when=("the compiled program is no faster than eager", "there are many small graphs"),
    symptoms=("slow although it compiles", "many small kernels", "data-dependent control flow"),
    elsewhere=(("one graph, many kernels", "fusion"),),
    flags=(log("graph_breaks", "every break with its reason and stack"),),
    commands=(("inductoscope show --stage breaks", "all breaks with torch's hints"),),
)

GUARDS = StageEntry(
    name="guards",
    summary="What has to hold for compiled code to be used again, checked on every call.",
    does="Each assumption that tracing made becomes a check: types, shapes, strides, global "
    "values, object identities. If one fails, the next entry for the frame is tried, then "
    "it is compiled anew.",
    lives=("torch/_dynamo/guards.py", "torch/_guards.py"),
    notions=(
        ("shape guard", "a relation between sizes, such as Ne(s0, 1)"),
        ("dynamic shape", "a size that is a symbol (s0) and not a number in the graph"),
    ),
    look_here_when=("small calls are slow although nothing compiles", "something recompiles"),
    symptoms=("overhead per call", "a stale value is used because nothing guards it"),
    elsewhere=(("compiles on every call", "recompiles"),),
    flags=(
        log("guards", "the guards of every compile"),
        log("dynamic", "how symbols and shape guards come about"),
    ),
    commands=(("inductoscope show --stage guards", "guards with the lines that made them"),),
)

RECOMPILES = StageEntry(
    name="recompiles",
    summary="Frames that were compiled again because a guard failed.",
    does="A call with another shape, type or Python value fails a guard and compiles the frame "
    "again. After recompile_limit compiles torch gives up and runs the frame in eager.",
    lives=("torch/_dynamo/guards.py", "torch/_dynamo/config.py"),
    notions=(
        ("automatic dynamic", "a size that changed once is made a symbol in the second compile"),
        ("recompile limit", "after this many compiles a frame is left to eager"),
    ),
    look_here_when=("every step is slow, not only the first",),
    symptoms=(
        "compiles at every call",
        "recompile limit reached",
        "slow with changing shapes or batch sizes",
    ),
    elsewhere=(("the first call alone is slow", "native"),),
    flags=(
        log("recompiles", "which guard failed"),
        setting("torch._dynamo.config.recompile_limit", "compiles per frame, 8 by default"),
        setting("torch._dynamo.config.automatic_dynamic_shapes", "sizes become symbols"),
    ),
    commands=(("inductoscope show --stage recompiles", "each recompile with its reason"),),
)

FRONTEND = (USER, DYNAMO, BREAKS, GUARDS, RECOMPILES)
