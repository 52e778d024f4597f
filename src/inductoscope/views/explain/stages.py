"""The texts of `explain`: stages of the compiler, and views of the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from inductoscope.torch_facts import stages


@dataclass(frozen=True)
class TorchSwitch:
    # A word for TORCH_LOGS, a name in a config module, or an environment variable.
    kind: Literal["log", "setting", "variable"]
    name: str
    what: str

    @property
    def text(self) -> str:
        """The switch as a user types it."""
        return f"TORCH_LOGS={self.name}" if self.kind == "log" else self.name


def log(name: str, what: str) -> TorchSwitch:
    return TorchSwitch("log", name, what)


def setting(name: str, what: str) -> TorchSwitch:
    """Build a switch for a config key of Inductor, or of torch if `name` is a full path."""
    full = name if name.startswith("torch.") else f"torch._inductor.config.{name}"
    return TorchSwitch("setting", full, what)


def variable(name: str, what: str) -> TorchSwitch:
    return TorchSwitch("variable", name, what)


@dataclass(frozen=True)
class StageEntry:
    """One stage of the compiler, or one view of what it did."""

    name: str
    # One sentence that makes sense alone.
    summary: str
    # The stage's inputs, outputs and method.
    does: str
    # The source files in torch.
    lives: tuple[str, ...] = ()
    notions: tuple[tuple[str, str], ...] = ()
    look_here_when: tuple[str, ...] = ()
    symptoms: tuple[str, ...] = ()
    # Symptoms that look like this stage's but belong to another: (symptom, stage).
    elsewhere: tuple[tuple[str, str], ...] = ()
    flags: tuple[TorchSwitch, ...] = ()
    # inductoscope commands, with what they show.
    commands: tuple[tuple[str, str], ...] = ()
    aliases: tuple[str, ...] = ()


# --- What happens before a graph exists: the user's code, Dynamo, guards, breaks, recompiles ------

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


# --- What happens to a graph before it is lowered: AOTAutograd, decompositions, passes ------------

AOT = StageEntry(
    name=stages.AOT,
    summary="AOTAutograd traces forward and backward into ATen graphs without mutation or aliases.",
    does="Runs Dynamo's graph on fake tensors and traces autograd with it. Mutations become "
    "functional, views are regenerated, operations are decomposed into ATen, and the "
    "joint graph is partitioned into forward and backward.",
    lives=(
        "torch/_functorch/aot_autograd.py",
        "torch/_functorch/partitioners.py",
        "torch/_subclasses/fake_tensor.py",
    ),
    notions=(
        ("joint graph", "forward and backward in one"),
        ("partitioner", "decides what the forward saves and what the backward recomputes"),
        ("fake tensor", "a tensor with shape, stride and dtype but no data"),
        ("functionalization", "an in-place operation becomes a new value, written back at the end"),
    ),
    look_here_when=(
        "gradients are wrong but the forward is right",
        "a mutation of an input is lost, or an output has a wrong alias",
    ),
    symptoms=(
        "gradient missing or wrong",
        "input mutation lost",
        "FakeTensor or meta kernel mismatch of shape or stride",
        "memory use of training too high",
    ),
    elsewhere=(
        ("an operation was decomposed wrongly", stages.DECOMPOSITION),
        ("the AOT graphs are right but the result is not", stages.POST_GRAD_PASS),
    ),
    flags=(
        log("aot_graphs", "forward and backward graphs"),
        log("aot_joint_graph", "the joint graph"),
        variable("AOT_PARTITIONER_DEBUG", "1 prints what the partitioner saves and why"),
        variable("TORCHDYNAMO_REPRO_AFTER", "dumps the graph that fails: dynamo or aot"),
    ),
    commands=(("inductoscope show --stage aot", "joint, forward and backward graphs"),),
    aliases=("autograd", "aten"),
)

DECOMPOSITION = StageEntry(
    name=stages.DECOMPOSITION,
    summary="Replaces an operation with simpler ATen or prims operations.",
    does="While AOTAutograd traces, operations in Inductor's table are replaced: layer_norm "
    "becomes var_mean, sub, rsqrt, mul, add. Fewer operations then need a lowering, and "
    "the parts can fuse.",
    lives=("torch/_inductor/decomposition.py", "torch/_decomp/decompositions.py"),
    notions=(("prims", "the smallest operations that a decomposition may use"),),
    look_here_when=("a single operation is wrong when compiled, in every dtype and shape",),
    symptoms=("an operation's result or dtype differs from eager", "an edge case is mishandled"),
    elsewhere=(("the decomposed graph is right", stages.LOWERING),),
    flags=(
        log("aot_graphs", "the graphs after decomposition"),
        setting("fallback_by_default", "calls ATen's kernels, except for annotated nodes"),
    ),
    commands=(("inductoscope show --stage aot", "what was decomposed, and how often"),),
)

PRE_GRAD = StageEntry(
    name=stages.PRE_GRAD_PASS,
    summary="Passes over Dynamo's graph, before autograd: torch operations, not yet ATen.",
    does="Patterns of whole torch operations are rewritten: conv with batch norm, split and cat, "
    "batches of linear layers. The graph may still mutate and is not normalised.",
    lives=("torch/_inductor/fx_passes/pre_grad.py",),
    look_here_when=("the pre-grad graph is the first with a different result",),
    symptoms=("wrong result with a pattern of split, cat, stack or conv and batch norm",),
    elsewhere=(("the pre-grad graph is right", stages.AOT),),
    flags=(
        log("pre_grad_graphs", "the graph after these passes"),
        setting("use_pre_grad_passes", "False skips all of them"),
        setting("fx_passes_numeric_check", "compares results before and after"),
        variable("TORCHINDUCTOR_DISABLED_PASSES", "skips passes by part of their name"),
    ),
    commands=(("inductoscope show --stage passes", "each pass that changed the graph, as a diff"),),
    aliases=("pre-grad",),
)

JOINT = StageEntry(
    name=stages.JOINT_PASS,
    summary="Passes over the joint graph, before it is partitioned into forward and backward.",
    does="Constant folding, removal of operations that do nothing, attention patterns and other "
    "rewrites that need to see forward and backward together.",
    lives=(
        "torch/_inductor/fx_passes/joint_graph.py",
        "torch/_inductor/fx_passes/fuse_attention.py",
    ),
    notions=(("pattern matcher", "finds a subgraph and replaces it"),),
    look_here_when=("attention or a constant is wrong only when compiled",),
    symptoms=("attention pattern replaced wrongly", "a folded constant has a wrong dtype or shape"),
    elsewhere=(("the joint graph is right", stages.POST_GRAD_PASS),),
    flags=(
        setting("use_joint_graph_passes", "False skips all of them"),
        setting("joint_graph_constant_folding", "False skips constant folding"),
        setting("pattern_matcher", "False skips all pattern passes"),
        variable("TORCHINDUCTOR_DISABLED_PASSES", "skips passes by part of their name"),
    ),
    commands=(("inductoscope show --stage passes", "each pass that changed the graph, as a diff"),),
    aliases=("joint", "joint-graph"),
)

POST_GRAD = StageEntry(
    name=stages.POST_GRAD_PASS,
    summary="The last passes over the ATen graph; what they leave is what Inductor lowers.",
    does="Patterns over ATen, reordering for locality, reinplacing of mutations, removal of views "
    "and casts. They run separately for forward and backward.",
    lives=("torch/_inductor/fx_passes/post_grad.py", "torch/_inductor/fx_passes/reinplace.py"),
    notions=(("reinplacing", "an operation writes in place again where that is safe"),),
    look_here_when=("the AOT graph gives the right result but the post-grad graph does not",),
    symptoms=("an update is lost or happens twice", "a matched pattern changes the result"),
    elsewhere=(("the post-grad graph is right", stages.LOWERING),),
    flags=(
        log("post_grad_graphs", "the graph that Inductor lowers"),
        setting("use_post_grad_passes", "False skips all of them"),
        setting("reorder_for_locality", "False keeps the order"),
        variable("TORCHINDUCTOR_DISABLED_PASSES", "skips passes by part of their name"),
    ),
    commands=(
        ("inductoscope show --stage passes", "each pass that changed the graph, as a diff"),
        ("inductoscope show --runnable '0/0 post-grad' --to graph.py", "the graph as a script"),
    ),
    aliases=("post-grad",),
)

PASSES = StageEntry(
    name="passes",
    summary="All passes that changed a graph: pre-grad, joint and post-grad, with a diff each.",
    does="A view of the three groups of passes, without those that changed nothing.",
    lives=("torch/fx/passes/graph_transform_observer.py", "torch/_inductor/pattern_matcher.py"),
    look_here_when=("a graph is right before a pass and wrong after it",),
    symptoms=("an operation vanished, or another one took its place",),
    elsewhere=(("no pass touched the operation", stages.LOWERING),),
    flags=(
        variable("TORCHINDUCTOR_DISABLED_PASSES", "skips passes by part of their name"),
        setting("trace.log_url_for_graph_xform", "folder for pictures of each change"),
    ),
    commands=(
        ("inductoscope show --stage passes", "each pass with a diff"),
        ("inductoscope diff A B", "passes that apply in only one of two runs"),
    ),
)


# --- Inductor's own stages: IR, scheduler, fusion, loop bodies, code, memory ----------------------

INDUCTOR = StageEntry(
    name=stages.INDUCTOR,
    summary="The compiler backend: turns an ATen graph into kernels and a program that calls them.",
    does="Lowering, scheduling, fusion, code generation and native compile, once per graph. Its "
    "time excludes that of these inner stages.",
    lives=("torch/_inductor/compile_fx.py", "torch/_inductor/graph.py"),
    look_here_when=("Inductor is at fault but the stage is not known yet",),
    symptoms=("fails with backend='inductor' but not with backend='aot_eager'",),
    elsewhere=(("also fails with backend='eager'", stages.DYNAMO),),
    flags=(
        log("inductor", "everything that Inductor logs"),
        variable("TORCH_COMPILE_DEBUG", "1 writes graphs, IR and code to ./torch_compile_debug"),
        setting("trace.enabled", "the same, from Python"),
    ),
    commands=(("inductoscope show", "the summary of all stages"),),
)

LOWERING = StageEntry(
    name=stages.LOWERING,
    summary="Each ATen operation becomes Inductor IR: a loop over an index, or a library call.",
    does="GraphLowering walks the post-grad graph. Most operations become a Pointwise or Reduction "
    "whose inner_fn computes one element; matrix products and unknown operations become extern "
    "kernels. A value has no memory until it is realized as a buffer.",
    lives=("torch/_inductor/lowering.py", "torch/_inductor/ir.py", "torch/_inductor/graph.py"),
    notions=(
        ("Pointwise, Reduction", "a loop whose inner_fn(index) gives one element"),
        ("inner_fn", "the computation of one element, in ops.* calls"),
        ("ranges", "how far each loop variable runs"),
        ("ComputedBuffer", "IR that was realized: it has memory and a name such as buf0"),
        ("fallback", "an operation without a lowering, which calls eager's kernel"),
        ("layout", "size and stride of a buffer, fixed or still flexible"),
    ),
    look_here_when=(
        "an operation is missing or unsupported",
        "the IR of a node does not match the node",
    ),
    symptoms=(
        "LoweringException, or MissingOperatorWithoutDecomp",
        "wrong shape or dtype in the IR",
        "an operation falls back to eager",
        "wrong stride or layout",
    ),
    elsewhere=(
        ("the graph is already wrong before lowering", stages.POST_GRAD_PASS),
        ("the IR is right, but two loops should be one", "fusion"),
    ),
    flags=(
        log("ir_pre_fusion", "the IR before fusion"),
        setting("implicit_fallbacks", "False makes a missing lowering an error"),
        setting("debug_ir_traceback", "keeps the stack that created each IR node"),
    ),
    commands=(
        ("inductoscope show --stage ir", "what every node became"),
        ("inductoscope show --op NAME", "one operation at every level"),
    ),
    aliases=("ir", "inductor-ir"),
)

SCHEDULER = StageEntry(
    name=stages.SCHEDULER,
    summary="Wraps IR in nodes that track dependencies, then orders and fuses them.",
    does="Every IR operation is wrapped in a SchedulerNode, every buffer in a SchedulerBuffer "
    "with its users. Reads and writes give dependencies; dead nodes are removed; the rest "
    "are sorted, fused and ordered for memory. IR says what to compute, scheduler nodes "
    "say when and in which kernel.",
    lives=("torch/_inductor/scheduler.py", "torch/_inductor/dependencies.py"),
    notions=(
        ("SchedulerNode", "one IR operation with its reads, writes and iteration space"),
        ("FusedSchedulerNode", "several nodes that share a kernel"),
        ("ExternKernelSchedulerNode", "a library call: matmul, convolution"),
        ("group", "device and iteration space; nodes of the same group fuse most easily"),
        ("unmet dependencies", "what must be computed first"),
    ),
    look_here_when=("the order of kernels is wrong", "the scheduler takes long"),
    symptoms=(
        "a buffer is read before it is written",
        "a mutation happens too early or too late",
        "scheduling takes minutes on a large graph",
        "peak memory too high",
    ),
    elsewhere=(("two nodes that should share a kernel do not", "fusion"),),
    flags=(
        log("schedule", "nodes and order; silent on CPU"),
        log("compute_dependencies", "reads, writes and users"),
        setting("reorder_for_peak_memory", "False keeps the order of the graph"),
    ),
    commands=(("inductoscope show --stage scheduler", "nodes, buffers, dependencies, order"),),
)

FUSION = StageEntry(
    name="fusion",
    summary="Puts scheduler nodes that can share a loop into one kernel.",
    does="In up to ten rounds, the scheduler tries pairs that share data: can they share a loop, "
    "and how many bytes would that save? Vertical fusion joins a producer with its "
    "consumer, horizontal fusion two nodes that read the same data. A template may absorb "
    "a prologue or an epilogue.",
    lives=("torch/_inductor/scheduler.py", "torch/_inductor/choices.py"),
    notions=(
        ("vertical", "producer and consumer: the value between them stays out of memory"),
        ("horizontal", "two nodes with a common input, which is then read once"),
        ("reduction fusion", "a reduction with the producer of its input or a user of its result"),
        ("score", "decides the order: kind of nodes, bytes saved, distance between them"),
        ("no shared data", "torch's words for a pair whose fusion would save nothing"),
    ),
    look_here_when=(
        "there are more kernels than expected",
        "a kernel spends its time reading what another has just written",
    ),
    symptoms=(
        "missed fusion, too many kernels",
        "an intermediate buffer is written and read again",
        "a fused kernel is slower than its parts, or runs out of registers",
        "fusion rounds take minutes",
    ),
    elsewhere=(
        ("the operations are in different graphs", "breaks"),
        ("the value must be stored because it is an output", stages.AOT),
        ("the sizes already differ in the IR", stages.LOWERING),
    ),
    flags=(
        log("fusion", "each pair: fused, or why not"),
        log("loop_ordering", "loops that are reordered to allow a fusion"),
        setting("max_fusion_size", "maximum number of nodes in one kernel"),
        setting("score_fusion_memory_threshold", "minimum number of bytes that a fusion must save"),
        setting("loop_ordering_after_fusion", "reorder loops where that allows a fusion"),
        setting("epilogue_fusion", "fuse into matrix products"),
        setting("aggressive_fusion", "fuse even nodes that share no reads"),
        setting("benchmark_fusion", "time fused and separate kernels, keep the faster"),
    ),
    commands=(
        ("inductoscope show --stage fusion", "rounds, fusions and refusals with reasons"),
        ("inductoscope fusion --why A B", "one pair: every time it was considered"),
    ),
    aliases=("ledger",),
)

LOOP_BODY = StageEntry(
    name=stages.LOOP_BODY,
    summary="One iteration as ops.load, ops.store and arithmetic: the last level before code.",
    does="The inner_fn of a node is traced into an FX graph of ops.* calls; index expressions are "
    "kept separate and simplified. Backends turn each call into a line of code.",
    lives=("torch/_inductor/loop_body.py", "torch/_inductor/ops_handler.py"),
    notions=(
        ("index", "where to read or write; an expression of the loop variables"),
        ("value", "what is computed; has its own dtype"),
        ("ops.index_expr", "turns an index into a value, in the dtype that it names"),
        ("ops.load, ops.store", "memory; the index is an address, the value is data"),
        ("var_ranges", "the loop variables and how far they run"),
    ),
    look_here_when=(
        "the wrong dtype is used for an intermediate value",
        "an index is used as a value, or a value as an index",
    ),
    symptoms=(
        "integer overflow with arange or large indices",
        "wrong dtype in the middle of a kernel",
        "masked loads give wrong values",
    ),
    elsewhere=(
        ("the loop body is right but the code is not", stages.CODEGEN),
        ("the loop body computes something else", stages.LOWERING),
    ),
    flags=(log("ir_post_fusion", "loop bodies after fusion"),),
    commands=(("inductoscope show --stage loop-body", "loop bodies before and after fusion"),),
    aliases=("loopbody", "body"),
)

CODEGEN = StageEntry(
    name=stages.CODEGEN,
    summary="Loop bodies become source code: C++ with vectors for CPU, Triton for GPU.",
    does="For each scheduler node the backend chooses tiling, vectorization and masks. It then "
    "writes one line per operation of the loop body and shares common subexpressions.",
    lives=("torch/_inductor/codegen/cpp.py", "torch/_inductor/codegen/triton.py"),
    notions=(
        ("xindex, x0, r0", "loop variables; r for a reduction"),
        ("XBLOCK", "elements per program of a Triton kernel, chosen by heuristics or timing"),
        ("mask", "keeps a block from reading or writing past the end"),
        ("at::vec::Vectorized", "several elements at once in C++"),
        ("persistent reduction", "a reduction whose row fits in one block"),
    ),
    look_here_when=(
        "the loop body is right but the kernel is wrong or slow",
        "wrong results only with vectorization, or only at the tail of a loop",
    ),
    symptoms=(
        "wrong indexing or mask",
        "wrong for sizes that are not a multiple of the vector length",
        "uncoalesced memory access",
        "a kernel is slow for the bytes it moves",
    ),
    elsewhere=(
        ("the source is right but the compiler rejects or miscompiles it", "native"),
        ("too many kernels", "fusion"),
    ),
    flags=(
        log("output_code", "wrapper and kernels"),
        log("kernel_code", "only the kernels"),
        log("loop_tiling", "how loops are tiled; silent on CPU"),
        setting("cpp.simdlen", "1 turns vectorization in C++ off"),
        setting("triton.max_tiles", "the maximum number of tiled dimensions"),
        setting("split_reductions", "False keeps a large reduction in one kernel"),
    ),
    commands=(
        ("inductoscope show --stage kernel", "every kernel with its operations"),
        ("inductoscope show --op NAME", "the lines generated for one operation"),
    ),
    aliases=("code-generation", "triton", "cpp"),
)

KERNEL = StageEntry(
    name="kernel",
    summary="Generated kernels and library calls, with the operations inside them.",
    does="A view of what code generation wrote: source, operations, scheduler nodes, buffers, and "
    "how each was compiled.",
    lives=("torch/_inductor/codegen/cpp.py", "torch/_inductor/codegen/triton.py"),
    notions=(("extern kernel", "a call to ATen or a library such as oneDNN or cuBLAS"),),
    look_here_when=("a profile names a kernel and you want to know what it is",),
    symptoms=("which kernel is this operation", "slow kernel"),
    elsewhere=(("the kernel is right but launched wrongly", stages.WRAPPER),),
    flags=(
        log("kernel_code", "only the kernels"),
        setting("triton.unique_kernel_names", "gives each kernel a unique name"),
        setting("trace.provenance_tracking_level", "which source line became which kernel"),
    ),
    commands=(
        ("inductoscope show --kernel NAME", "one kernel in full; --form for TTIR to PTX"),
        ("inductoscope kernel FILE", "compile a single kernel, for any target"),
    ),
    aliases=("kernels",),
)

MEMORY = StageEntry(
    name="memory",
    summary="Which node each buffer came from, and which buffers reuse the memory of others.",
    does="After the last use of a buffer, a later one of the same size may reuse its memory, or a "
    "kernel may write its result over its input.",
    lives=("torch/_inductor/codegen/wrapper.py", "torch/_inductor/memory.py"),
    notions=(
        ("in place", "a kernel writes its output into its input's memory"),
        ("reuse", "a later buffer takes over an allocation"),
    ),
    look_here_when=("a value changes after it was computed", "peak memory is too high"),
    symptoms=("a buffer is overwritten too early", "out of memory when compiled but not in eager"),
    elsewhere=(("the order of kernels is wrong", stages.SCHEDULER),),
    flags=(
        setting("inplace_buffers", "False never writes in place"),
        setting("allow_buffer_reuse", "False allocates memory for every buffer"),
        setting("memory_planning", "plans one pool in advance"),
    ),
    commands=(("inductoscope show --stage memory", "origins and reuse of all buffers"),),
)


# --------------------------------------------------------------------------------------------------
# From source code to a running program: wrapper, native compile, autotuning, caches, run time.

WRAPPER = StageEntry(
    name=stages.WRAPPER,
    summary="The generated program that allocates buffers and calls the kernels in order.",
    does="A Python module (C++ with cpp_wrapper) with one call function: it checks the inputs, "
    "allocates buffers, launches kernels, frees buffers and returns the outputs.",
    lives=(
        "torch/_inductor/codegen/wrapper.py",
        "torch/_inductor/codegen/cpp_wrapper_cpu.py",
    ),
    notions=(("call", "the function that runs instead of the graph"),),
    look_here_when=("each kernel is right but the result is not", "overhead between kernels"),
    symptoms=(
        "a kernel gets a wrong argument or grid",
        "assert_size_stride fails",
        "a buffer is freed or reused too early",
        "time between kernels",
    ),
    elsewhere=(
        ("which buffer reuses which", "memory"),
        ("one kernel is wrong", stages.CODEGEN),
    ),
    flags=(
        log("output_code", "the wrapper"),
        setting("cpp_wrapper", "generates the wrapper in C++"),
        setting("size_asserts", "False omits the size checks"),
        setting("nan_asserts", "checks inputs and outputs for NaN"),
        setting("profiler_mark_wrapper_call", "marks the call in a profile"),
    ),
    commands=(("inductoscope show --stage wrapper", "the wrapper's source"),),
)

NATIVE = StageEntry(
    name="native",
    summary="Every run of a native compiler: g++ for C++ kernels, Triton and ptxas for GPU ones.",
    does="A view of commands, seconds, exit codes, messages, registers and spills. On CPU "
    "this is usually most of the compile time.",
    lives=("torch/_inductor/cpp_builder.py", "torch/_inductor/async_compile.py"),
    look_here_when=("the first call takes long", "a native compiler fails"),
    symptoms=("compile time", "slow first call", "compiler error in generated code"),
    elsewhere=(("the generated source is wrong", stages.CODEGEN),),
    flags=(
        log("async_compile", "the pool of compile workers"),
        variable("TORCHINDUCTOR_COMPILE_THREADS", "how many at once; 1 uses no workers"),
    ),
    commands=(
        ("inductoscope show --stage native", "every compiler run"),
        ("inductoscope export --to DIR --form perfetto", "the compiler runs on a timeline"),
    ),
    aliases=("compile",),
)

CPP_COMPILE = StageEntry(
    name=stages.CPP_COMPILE,
    summary="g++ or clang++ turns a generated C++ kernel into a library.",
    does="Compiles a file with the kernel and a binding for the chosen instruction set, and loads "
    "it. With an empty cache, a precompiled header and ten probes of the instruction set "
    "come first.",
    lives=("torch/_inductor/cpp_builder.py", "torch/_inductor/codecache.py"),
    notions=(("vec ISA", "the vector instructions that passed the probes"),),
    look_here_when=("CppCompileError", "a C++ kernel is wrong but its source is right"),
    symptoms=(
        "CppCompileError",
        "g++ hangs or takes minutes",
        "wrong only with -O3 or fast-math",
        "illegal instruction",
    ),
    elsewhere=(("the source does not compile because it is wrong", stages.CODEGEN),),
    flags=(
        setting("cpp.cxx", "which compiler"),
        setting("cpp.march", "the instruction set"),
        setting("cpp.enable_unsafe_math_opt_flag", "fast-math flags"),
        setting("cpp.enable_floating_point_contract_flag", "fused multiply-add"),
        variable("TORCHINDUCTOR_VEC_ISA_OK", "1 skips the probes"),
    ),
    commands=(
        ("inductoscope show --stage native", "commands and messages"),
        ("inductoscope show --kernel NAME --form asm", "the assembly, linked to the source"),
    ),
    aliases=("g++", "c++"),
)

TRITON_COMPILE = StageEntry(
    name=stages.TRITON_COMPILE,
    summary="Triton turns a kernel into TTIR, TTGIR, LLVM IR, PTX and a cubin (AMD: AMDGCN, "
    "hsaco).",
    does="Per configuration: Triton's own passes, LLVM, then ptxas. Runs in threads of the "
    "program until the pool of worker processes is ready, then in the pool.",
    lives=("torch/_inductor/runtime/triton_heuristics.py", "torch/_inductor/async_compile.py"),
    notions=(
        ("TTIR, TTGIR", "Triton's IR, before and after layouts are assigned to threads"),
        ("spills", "values that did not fit in registers and go through memory"),
        ("num_warps, num_stages", "chosen by a configuration, besides block sizes"),
    ),
    look_here_when=("ptxas or LLVM fails or does not finish", "a kernel spills or is slow"),
    symptoms=(
        "hang in ptxas",
        "out of shared memory or registers",
        "Triton compilation error",
        "a GPU kernel is wrong but its source is right",
    ),
    elsewhere=(
        ("one of many choices is stuck", stages.AUTOTUNE),
        ("the source is wrong", stages.CODEGEN),
    ),
    flags=(
        setting("worker_suppress_logging", "False lets workers print"),
        setting("compile_worker_wait_timeout", "seconds to wait for a worker"),
        setting("triton.spill_threshold", "configurations that spill more are dropped"),
    ),
    commands=(
        ("inductoscope show --kernel NAME --form ptx", "one form of the kernel"),
        ("inductoscope kernel FILE --timeout 60", "compile only this kernel, with a time limit"),
    ),
    aliases=("ptxas", "ptx"),
)

AUTOTUNE = StageEntry(
    name=stages.AUTOTUNE,
    summary="Compiles and times several implementations of an operation, and keeps the fastest.",
    does="With max_autotune, the choices for a matrix product are ATen, Triton templates in many "
    "configurations, and C++ or CUTLASS templates. They are precompiled, then timed on "
    "random data of the right shape. Pointwise kernels time a few block sizes when they "
    "first run.",
    lives=(
        "torch/_inductor/select_algorithm.py",
        "torch/_inductor/autotune_process.py",
        "torch/_inductor/template_heuristics/triton.py",
        "torch/_inductor/runtime/coordinate_descent_tuner.py",
        "torch/_inductor/kernel/mm.py",
        "torch/_inductor/kernel/bmm.py",
    ),
    notions=(
        ("choice", "one implementation with one configuration"),
        ("template", "a kernel with holes, for products and convolutions"),
        ("epilogue", "operations fused onto the output of a template"),
    ),
    look_here_when=("compiling hangs or takes minutes with max-autotune", "the winner looks wrong"),
    symptoms=(
        "hang while autotuning, DDP waits",
        "precompilation of choices is stuck",
        "No valid triton configs",
        "the chosen kernel differs from run to run",
        "wrong result only with max-autotune",
    ),
    elsewhere=(("one configuration never compiles", stages.TRITON_COMPILE),),
    flags=(
        log("autotuning", "choices and their times; silent on CPU"),
        setting("max_autotune", "turns autotuning on"),
        setting("max_autotune_gemm_backends", "which kinds of choices"),
        setting("autotune_in_subproc", "times choices in another process"),
        variable("TORCHINDUCTOR_PRECOMPILATION_TIMEOUT_SECONDS", "seconds until a choice fails"),
        variable("TORCHINDUCTOR_AUTOTUNE_CHOICE_NAME_REGEX", "only choices whose names match"),
    ),
    commands=(
        ("inductoscope show --stage autotune", "choices, times, the winner"),
        ("inductoscope logs FILE", "the stuck choice, from torch's own log"),
    ),
    aliases=("autotuning", "max-autotune"),
)

CACHE = StageEntry(
    name="cache",
    summary="Lookups in torch's caches: a hit skips every later stage.",
    does="AOTAutograd's cache holds compiled forwards and backwards, the FX graph cache compiled "
    "graphs, the code cache libraries and cubins. After a hit there is no IR or fusion to show.",
    lives=("torch/_inductor/codecache.py", "torch/_functorch/_aot_autograd/autograd_cache.py"),
    notions=(("bypass", "the graph cannot be cached; the reason is shown"),),
    look_here_when=("changing a setting has no effect", "every start recompiles everything"),
    symptoms=("nothing to see after the first run", "stale code", "cache miss at every start"),
    elsewhere=(("the same run compiles twice", "recompiles"),),
    flags=(
        log("cache", "lookups, keys and reasons"),
        setting("fx_graph_cache", "False compiles every graph"),
        setting("force_disable_caches", "True turns all caches off"),
        variable("TORCHINDUCTOR_CACHE_DIR", "another folder, such as an empty one"),
    ),
    commands=(
        ("inductoscope show --stage cache", "hits, misses, bypasses"),
        ("inductoscope run --fresh SCRIPT", "recompiles everything, in a private cache"),
    ),
    aliases=("caches",),
)

ERRORS = StageEntry(
    name="errors",
    summary="Exceptions that left the compiler, with the stage that raised them.",
    does="A view of each exception with its stage, the current operation and the user's line. It "
    "includes exceptions that torch suppressed by running the frame in eager.",
    lives=("torch/_inductor/exc.py", "torch/_dynamo/exc.py"),
    look_here_when=("compiling fails",),
    symptoms=("InductorError", "BackendCompilerFailed", "exception while compiling"),
    elsewhere=(("the process dies without an exception", stages.RUNTIME),),
    flags=(
        setting("torch._dynamo.config.suppress_errors", "runs code that does not compile in eager"),
        variable("TORCHDYNAMO_VERBOSE", "1 shows internal stack traces"),
    ),
    commands=(
        ("inductoscope show --stage errors", "all exceptions in full"),
        ("inductoscope doctor SCRIPT", "a minimal script that raises it"),
    ),
    aliases=("error",),
)

RUNTIME = StageEntry(
    name=stages.RUNTIME,
    summary="Compiled code runs: kernels on real data, guards, CUDA graphs.",
    does="The wrapper's call function runs. If the source is right, a failure here comes from "
    "inputs, alignment, memory, devices or CUDA graphs.",
    lives=("torch/_inductor/cudagraph_trees.py", "torch/_inductor/runtime/triton_heuristics.py"),
    look_here_when=("it compiles, but crashes or hangs when called",),
    symptoms=(
        "segmentation fault or illegal memory access",
        "NaN at run time",
        "a kernel does not return",
        "wrong only with CUDA graphs",
        "slow although compiled",
    ),
    elsewhere=(("crashes while compiling", stages.INDUCTOR), ("NaN in eager too", stages.USER)),
    flags=(
        setting("nan_asserts", "checks inputs and outputs for NaN"),
        setting("triton.cudagraphs", "turns CUDA graphs on"),
        setting("triton.debug_sync_kernel", "waits after every kernel, so an error names it"),
        setting("assert_indirect_indexing", "checks data-dependent indices"),
        setting("profile_bandwidth", "bandwidth of every kernel"),
        log("cudagraphs", "what is captured, and what is not and why"),
    ),
    commands=(
        ("inductoscope doctor SCRIPT", "the first kernel whose output is wrong"),
        ("inductoscope attach PID", "where a hanging process is"),
    ),
)

NONE = StageEntry(
    name=stages.NO_STAGE,
    summary="No stage: nothing is wrong, or nothing shows where.",
    does="Used in a verdict when no stage is to blame, or the evidence does not name one.",
    commands=(("inductoscope show", "what was recorded"),),
)

STAGES: tuple[StageEntry, ...] = (
    *(USER, DYNAMO, BREAKS, GUARDS, RECOMPILES),
    *(AOT, DECOMPOSITION, PRE_GRAD, JOINT, POST_GRAD, PASSES),
    *(INDUCTOR, LOWERING, SCHEDULER, FUSION, LOOP_BODY, CODEGEN, KERNEL, MEMORY),
    *(WRAPPER, NATIVE, CPP_COMPILE, TRITON_COMPILE, AUTOTUNE, CACHE, ERRORS, RUNTIME, NONE),
)


# --- The views of the HTML page that are not named after a stage: name, summary, what to do -------

VIEWS = (
    (
        "overview",
        "Findings first, then the program, its compiles and the time they took.",
        "Start with the first finding; each names its stage.",
    ),
    (
        "timeline",
        "When each process, worker and compiler was in which stage; spans are nested.",
        "Look for the longest span without inner spans. Spans that never ended are marked.",
    ),
    (
        "panes",
        "Python, FX, IR, scheduler, loop body, kernel and machine code side by side.",
        "Select a line in one pane: all other panes highlight its operations.",
    ),
    (
        "schedule",
        "The scheduler graph: edges are buffers, boxes are fused groups.",
        "A thick edge between two boxes is a fusion that may be missing: see the ledger.",
    ),
    (
        "pairs",
        "The fusion ledger: every pair that could share a kernel, fused or not, and why.",
        "Sort by bytes: the first refused pair costs the most. 'At most' marks an upper bound.",
    ),
)
