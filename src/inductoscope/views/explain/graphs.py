"""What happens to a graph before it is lowered: AOTAutograd, decompositions, passes."""

from __future__ import annotations

from inductoscope.views.explain.entities import StageEntry, log, setting, variable
from inductoscope.vocabulary import stages

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

GRAPHS = (AOT, DECOMPOSITION, PRE_GRAD, JOINT, POST_GRAD, PASSES)
