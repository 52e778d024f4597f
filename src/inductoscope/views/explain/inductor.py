"""Inductor's own stages: IR, scheduler, fusion, loop bodies, code, memory."""

from __future__ import annotations

from inductoscope.views.explain.entities import StageEntry, log, setting, variable
from inductoscope.vocabulary import stages

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

INDUCTOR_STAGES = (
    INDUCTOR,
    LOWERING,
    SCHEDULER,
    FUSION,
    LOOP_BODY,
    CODEGEN,
    KERNEL,
    MEMORY,
)
