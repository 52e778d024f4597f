"""What happens before a graph exists: the user's code, Dynamo, guards, breaks, recompiles."""

from __future__ import annotations

from inductoscope.views.explain.entities import StageEntry, log, setting, variable
from inductoscope.vocabulary import stages

USER = StageEntry(
    name=stages.USER,
    summary="The program itself, outside the compiled code.",
    does="Runs as ordinary Python. If it also fails in eager, waits for another rank, or is not "
    "seeded, the problem is in the program, not in the compiler.",
    look_here_when=(
        "it also fails with TORCH_COMPILE_DISABLE=1",
        "results differ from run to run in eager too",
    ),
    symptoms=(
        "fails in eager too",
        "waits in a collective for another rank",
        "unseeded random numbers or uninitialised memory",
    ),
    elsewhere=(("fails only when compiled", stages.DYNAMO),),
    flags=(variable("TORCH_COMPILE_DISABLE", "1 turns torch.compile off"),),
    commands=(("inductoscope doctor SCRIPT", "compares with eager before it blames a stage"),),
)

DYNAMO = StageEntry(
    name=stages.DYNAMO,
    summary="Dynamo reads a frame's bytecode and captures its torch operations in an FX graph.",
    does="Before a frame runs, Dynamo interprets its bytecode symbolically. Tensor operations go "
    "into an FX graph, Python code runs at trace time, and assumptions become guards. Where "
    "Dynamo cannot continue, it breaks the graph and lets Python run.",
    lives=("torch/_dynamo/symbolic_convert.py", "torch/_dynamo/output_graph.py"),
    notions=(
        ("frame", "one call of a Python function; the unit that is compiled"),
        ("FX graph", "operations as Python calls them (torch.relu), one node each"),
        ("guard", "a condition that must hold to reuse the compiled code"),
        ("graph break", "where one graph ends, Python runs, and another graph begins"),
    ),
    look_here_when=(
        "the graph lacks an operation or has a wrong constant",
        "Python code around the tensors behaves differently when compiled",
    ),
    symptoms=(
        "graph break, or torch._dynamo.exc.Unsupported",
        "a Python side effect is lost or happens in another order",
        "a value from the first call is baked into the graph",
        "compile time grows with the number of calls",
    ),
    elsewhere=(
        ("the graph is right but the numbers are wrong", stages.AOT),
        ("the same frame compiles again and again", "recompiles"),
    ),
    flags=(
        log("dynamo", "everything that Dynamo logs"),
        log("graph_code", "the captured graph, as Python"),
        log("trace_source", "each line of the program as it is traced"),
        log("bytecode", "the bytecode before and after"),
        variable("TORCHDYNAMO_VERBOSE", "1 shows internal stack traces"),
    ),
    commands=(
        ("inductoscope show --stage dynamo", "the graph with the user's lines"),
        ("inductoscope show --runnable '0/0 dynamo' --to graph.py", "the graph as a script"),
    ),
    aliases=("fx", "capture", "pre-dispatch"),
)

BREAKS = StageEntry(
    name="breaks",
    summary="Places where Dynamo had to end a graph, with the reason and the line.",
    does="At a construct that it cannot trace, Dynamo compiles what it has, lets Python "
    "run the construct and starts a new graph after it. A loop or a `with` block around "
    "the break can make Dynamo run the whole frame in eager.",
    lives=("torch/_dynamo/graph_break_hints.py", "torch/_dynamo/exc.py"),
    notions=(
        ("resume function", "the rest of a frame after a break, compiled separately"),
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
    summary="Conditions under which compiled code may be used.",
    does="Each assumption that tracing made becomes a check in every call: types, shapes, strides, "
    "global values, object identities. If one fails, torch tries the frame's next cache entry, and "
    "recompiles if none matches. A package of AOTInductor has demands on its inputs instead, and "
    "checks them only with AOTI_RUNTIME_CHECK_INPUTS=1.",
    lives=("torch/_dynamo/guards.py", "torch/_guards.py"),
    notions=(
        ("shape guard", "a relation between sizes, such as Ne(s0, 1)"),
        ("dynamic shape", "a size that is a symbol (s0) in the graph, not a number"),
    ),
    look_here_when=("short calls are slow although nothing compiles", "something recompiles"),
    symptoms=("overhead per call", "a stale value is used because nothing guards it"),
    elsewhere=(("compiles on every call", "recompiles"),),
    flags=(
        log("guards", "the guards of each compile"),
        log("dynamic", "how symbols and shape guards are created"),
    ),
    commands=(("inductoscope show --stage guards", "guards with the lines that made them"),),
)

RECOMPILES = StageEntry(
    name="recompiles",
    summary="Frames that were compiled again because a guard failed.",
    does="A call with another shape, type or Python value fails a guard and compiles the frame "
    "again. After recompile_limit compiles, torch compiles the frame no more: inputs "
    "that fit a compiled version run compiled, all others in eager.",
    lives=("torch/_dynamo/guards.py", "torch/_dynamo/config.py"),
    notions=(
        ("automatic dynamic", "a size that changed becomes a symbol in the next compile"),
        ("recompile limit", "after this many compiles, inputs that fit none of them run in eager"),
    ),
    look_here_when=("every step is slow, not only the first",),
    symptoms=(
        "compiles at every call",
        "recompile limit reached",
        "slow with changing shapes or batch sizes",
    ),
    elsewhere=(("only the first call is slow", "native"),),
    flags=(
        log("recompiles", "which guard failed"),
        setting("torch._dynamo.config.recompile_limit", "compiles per frame, 8 by default"),
        setting("torch._dynamo.config.automatic_dynamic_shapes", "sizes become symbols"),
    ),
    commands=(("inductoscope show --stage recompiles", "each recompile with its reason"),),
)

FRONTEND = (USER, DYNAMO, BREAKS, GUARDS, RECOMPILES)
