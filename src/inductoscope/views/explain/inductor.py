"""Inductor's own stages: IR, scheduler, fusion, loop bodies, code, memory."""

from __future__ import annotations

from inductoscope.views.explain.entities import StageEntry, log, setting, variable
from inductoscope.vocabulary import stages

INDUCTOR = StageEntry(
    name=stages.INDUCTOR,
    summary="The compiler backend: an ATen graph goes in, kernels and a program that calls them "
    "come out.",
    does="Lowering, scheduling, fusion, code generation and native compile, once per graph. Time "
    "shown for it is what none of its inner stages took.",
    lives=("torch/_inductor/compile_fx.py", "torch/_inductor/graph.py"),
    look_here_when=("it is known to be Inductor and not yet which stage of it",),
    symptoms=("fails with backend='inductor' and not with backend='aot_eager'",),
    elsewhere=(("fails with backend='eager' as well", stages.DYNAMO),),
    flags=(
        log("inductor", "everything that Inductor says"),
        variable("TORCH_COMPILE_DEBUG", "1 writes graphs, IR and code to ./torch_compile_debug"),
        setting("trace.enabled", "the same, from Python"),
    ),
    commands=(("inductoscope show", "the summary of all stages"),),
)

LOWERING = StageEntry(
    name=stages.LOWERING,
    summary="Each ATen operation becomes Inductor IR: a loop over an index, or a call of a "
    "library.",
    does="GraphLowering walks the post-grad graph. Most operations become a Pointwise or Reduction "
    "whose inner_fn computes one element; matrix products and unknown operations become extern "
    "kernels. Nothing is stored until a value is realized as a buffer.",
    lives=("torch/_inductor/lowering.py", "torch/_inductor/ir.py", "torch/_inductor/graph.py"),
    notions=(
        ("Pointwise, Reduction", "a loop whose inner_fn(index) gives one element"),
        ("inner_fn", "the computation of one element, in ops.* calls"),
        ("ranges", "how far each loop variable runs"),
        ("ComputedBuffer", "IR that has memory: it is realized and has a name such as buf0"),
        ("fallback", "an operation without a lowering: eager's kernel is called"),
        ("layout", "size and stride of a buffer, fixed or still to be chosen"),
    ),
    look_here_when=(
        "an operation is missing or unsupported",
        "the IR of a node says something else than the node",
    ),
    symptoms=(
        "LoweringException, or MissingOperatorWithoutDecomp",
        "wrong shape or dtype in the IR",
        "an operation falls back to eager",
        "wrong stride or layout",
    ),
    elsewhere=(
        ("the graph before lowering is wrong already", stages.POST_GRAD_PASS),
        ("the IR is right, and two loops should be one", "fusion"),
    ),
    flags=(
        log("ir_pre_fusion", "the IR before fusion"),
        setting("implicit_fallbacks", "False makes a missing lowering an error"),
        setting("debug_ir_traceback", "keeps the stack that made each IR node"),
    ),
    commands=(
        ("inductoscope show --stage ir", "what every node became"),
        ("inductoscope show --op NAME", "one operation at every level"),
    ),
    aliases=("ir", "inductor-ir"),
)

SCHEDULER = StageEntry(
    name=stages.SCHEDULER,
    summary="IR gets wrappers that track dependencies; they are ordered and fused.",
    does="Every IR operation is wrapped in a SchedulerNode, every buffer in a SchedulerBuffer "
    "with its users. Reads and writes give dependencies, dead nodes are removed, nodes "
    "are sorted, fused and ordered for memory. IR says what is computed, the wrappers "
    "when and with whom.",
    lives=("torch/_inductor/scheduler.py", "torch/_inductor/dependencies.py"),
    notions=(
        ("SchedulerNode", "one IR operation with its reads, writes and iteration space"),
        ("FusedSchedulerNode", "several that share a kernel"),
        ("ExternKernelSchedulerNode", "a call of a library: matmul, convolution"),
        ("group", "device and iteration space; nodes of the same group fuse most easily"),
        ("unmet dependencies", "what has to be computed before"),
    ),
    look_here_when=("the order of kernels is wrong", "compile time is in the scheduler"),
    symptoms=(
        "a buffer is read before it is written",
        "a mutation happens too early or too late",
        "scheduling takes minutes on a large graph",
        "peak memory too high",
    ),
    elsewhere=(("two nodes that should share a kernel do not", "fusion"),),
    flags=(
        log("schedule", "nodes and order; says nothing on CPU"),
        log("compute_dependencies", "reads, writes and users"),
        setting("reorder_for_peak_memory", "False keeps the order of the graph"),
    ),
    commands=(("inductoscope show --stage scheduler", "nodes, buffers, dependencies, order"),),
)

FUSION = StageEntry(
    name="fusion",
    summary="Scheduler nodes that can share a loop are put into one kernel.",
    does="In up to ten rounds, pairs that share data are tried: can they share a loop, how "
    "many bytes does it save, which first. Vertical fusion joins a producer with its "
    "consumer, horizontal fusion two nodes that read the same; a template may take a "
    "prologue or an epilogue.",
    lives=("torch/_inductor/scheduler.py", "torch/_inductor/choices.py"),
    notions=(
        ("vertical", "producer and consumer: the value between them need not be stored"),
        ("horizontal", "two nodes with a common input, which is then read once"),
        ("reduction fusion", "a reduction with what computes its input or uses its result"),
        ("score", "what decides the order: kind of nodes, bytes saved, how near they are"),
        ("no shared data", "torch's words for a pair whose fusion would save nothing"),
    ),
    look_here_when=(
        "there are more kernels than expected",
        "a kernel is bound by memory that a neighbour has just written",
    ),
    symptoms=(
        "missed fusion, too many kernels",
        "an intermediate buffer is written and read again",
        "fused kernel is slower than its parts, or runs out of registers",
        "fusion rounds take minutes",
    ),
    elsewhere=(
        ("the operations are in different graphs", "breaks"),
        ("the value has to be stored because it is an output", stages.AOT),
        ("the sizes differ already in the IR", stages.LOWERING),
    ),
    flags=(
        log("fusion", "each pair: fused, or why not"),
        log("loop_ordering", "loops that are turned round to make a fusion possible"),
        setting("max_fusion_size", "most nodes in one kernel"),
        setting("score_fusion_memory_threshold", "least bytes that a fusion has to save"),
        setting("loop_ordering_after_fusion", "turn loops round where that allows a fusion"),
        setting("epilogue_fusion", "fuse into matrix products"),
        setting("aggressive_fusion", "fuse also where no read is shared"),
        setting("benchmark_fusion", "time both and keep the faster"),
    ),
    commands=(
        ("inductoscope show --stage fusion", "rounds, fusions and refusals with reasons"),
        ("inductoscope fusion --why A B", "one pair: every time it was considered"),
    ),
    aliases=("ledger",),
)

LOOP_BODY = StageEntry(
    name=stages.LOOP_BODY,
    summary="What one iteration does, in ops.load, ops.store and arithmetic: the last level "
    "before code.",
    does="The inner_fn of a node is traced once more into an FX graph of ops.* calls, with index "
    "expressions kept apart and simplified. Backends turn each call into a line of code.",
    lives=("torch/_inductor/loop_body.py", "torch/_inductor/ops_handler.py"),
    notions=(
        ("index", "where to read or write; an expression of the loop variables"),
        ("value", "what is computed; has a dtype of its own"),
        ("ops.index_expr", "turns an index into a value, in the dtype that it names"),
        ("ops.load, ops.store", "memory; the index is an address, the value is data"),
        ("var_ranges", "the loop variables and how far they run"),
    ),
    look_here_when=(
        "the wrong dtype is used for an intermediate value",
        "an index is used as a value, or the other way round",
    ),
    symptoms=(
        "integer overflow with arange or large indices",
        "wrong dtype in the middle of a kernel",
        "masked loads give wrong values",
    ),
    elsewhere=(
        ("the loop body is right and the code is not", stages.CODEGEN),
        ("the computation itself is another one", stages.LOWERING),
    ),
    flags=(log("ir_post_fusion", "loop bodies after fusion"),),
    commands=(("inductoscope show --stage loop-body", "loop bodies before and after fusion"),),
    aliases=("loopbody", "body"),
)

CODEGEN = StageEntry(
    name=stages.CODEGEN,
    summary="Loop bodies become source code: C++ with vectors for CPU, Triton for GPU.",
    does="For each scheduler node the backend chooses tiling, vectorisation and masks, and an "
    "interpreter of the loop body writes one line per operation, with common "
    "subexpressions shared.",
    lives=("torch/_inductor/codegen/cpp.py", "torch/_inductor/codegen/triton.py"),
    notions=(
        ("xindex, x0, r0", "loop variables; r for a reduction"),
        ("XBLOCK", "elements per program of a Triton kernel, chosen by heuristics or timing"),
        ("mask", "keeps a block from reading or writing past the end"),
        ("at::vec::Vectorized", "several elements at once in C++"),
        ("persistent reduction", "a reduction whose row fits into one block"),
    ),
    look_here_when=(
        "the loop body is right and the kernel is wrong or slow",
        "wrong results only with vectorisation, or only at the tail of a loop",
    ),
    symptoms=(
        "wrong indexing or mask",
        "wrong for sizes that are no multiple of the vector length",
        "memory access that is not coalesced",
        "a kernel is slow for its bytes",
    ),
    elsewhere=(
        ("the source is right and the compiler rejects or miscompiles it", "native"),
        ("too many kernels", "fusion"),
    ),
    flags=(
        log("output_code", "wrapper and kernels"),
        log("kernel_code", "kernels alone"),
        log("loop_tiling", "how loops are tiled; says nothing on CPU"),
        setting("cpp.simdlen", "1 switches vectorisation in C++ off"),
        setting("triton.max_tiles", "how many dimensions are tiled"),
        setting("split_reductions", "False keeps a large reduction in one kernel"),
    ),
    commands=(
        ("inductoscope show --stage kernel", "every kernel with what is inside"),
        ("inductoscope show --op NAME", "the lines that one operation became"),
    ),
    aliases=("code-generation", "triton", "cpp"),
)

KERNEL = StageEntry(
    name="kernel",
    summary="Generated kernels and calls of libraries, with the operations inside them.",
    does="A view of what code generation wrote: source, operations, scheduler nodes, buffers, and "
    "how each was compiled.",
    lives=("torch/_inductor/codegen/cpp.py", "torch/_inductor/codegen/triton.py"),
    notions=(("extern kernel", "a call of ATen or of a library such as oneDNN or cuBLAS"),),
    look_here_when=("a profile names a kernel and you want to know what it is",),
    symptoms=("which kernel is this operation", "slow kernel"),
    elsewhere=(("the kernel is right and launched wrongly", stages.WRAPPER),),
    flags=(
        log("kernel_code", "kernels alone"),
        setting("triton.unique_kernel_names", "a name of its own for each kernel"),
        setting("trace.provenance_tracking_level", "which source line became which kernel"),
    ),
    commands=(
        ("inductoscope show --kernel NAME", "one kernel in full; --form for TTIR to PTX"),
        ("inductoscope kernel FILE", "compile one kernel alone, for any target"),
    ),
    aliases=("kernels",),
)

MEMORY = StageEntry(
    name="memory",
    summary="Which node each buffer came from, and which buffers take over the memory of others.",
    does="When a buffer is used for the last time, a later one of the same size may take its "
    "memory, or a kernel writes its result in place of its input.",
    lives=("torch/_inductor/codegen/wrapper.py", "torch/_inductor/memory.py"),
    notions=(
        ("in place", "a kernel's output is its input's memory"),
        ("reuse", "an allocation is taken over by a later buffer"),
    ),
    look_here_when=("a value changes after it was computed", "peak memory is too high"),
    symptoms=("a buffer is overwritten too early", "out of memory when compiled, not in eager"),
    elsewhere=(("the order of kernels is wrong", stages.SCHEDULER),),
    flags=(
        setting("inplace_buffers", "False never writes in place"),
        setting("allow_buffer_reuse", "False gives every buffer memory of its own"),
        setting("memory_planning", "one pool planned ahead"),
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
