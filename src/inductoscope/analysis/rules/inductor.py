"""Rules about Inductor's lowering, scheduling and autotuning."""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.analysis.fusion.ledger import REFUSED, conditions, graph_ledger
from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import InductorGraph, Recording
from inductoscope.model.fx import read_graph
from inductoscope.model.join import compiled_graphs, final_graph, place_of
from inductoscope.model.schedule import ScheduledNode, read_schedule
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.index_expressions import bytes_of
from inductoscope.torch_facts.loop_bodies import printed_body
from inductoscope.wording import count_of

FEWEST_BYTES = 1 << 20

# --- fusion ---------------------------------------------------------------------------------------

# Torch's reasons that depend on a setting. Other reasons depend on the program.
LIMITS = (
    "exceeds max fusion",
    "fusion_prevent_too_many_reads_and_writes",
    "score_fusion_memory_threshold",
    "prologue fusion turned off",
    "template epilogue not satisfied",
)


def kept_apart(recording: Recording) -> Iterator[Finding]:
    """Loops that a limit of torch's settings keeps apart.

    What it finds: loops that share at least 1 MiB of data and were not fused because of a limit
    that a setting holds, such as `max_fusion_size`; with the bytes that are moved again for it.

    Why it matters: what the first loop writes, the second reads again from memory.

    Example: `torch._inductor.config.max_fusion_size = 1`.

    What to do: the setting is named. 'inductoscope fusion RECORDING --why FIRST,SECOND --try'
    compiles with it, and 'inductoscope profile --advise SCRIPT' measures what it gains.
    """
    for compile_, graph in compiled_graphs(recording):
        if not any(reason in LIMITS for pair in graph.pairs for reason in pair.reasons):
            continue
        ledger = graph_ledger(recording, compile_, graph)
        rows = (row for row in ledger if row.outcome == REFUSED and row.torch in LIMITS)
        for condition in conditions(rows, REFUSED):
            if (condition.bytes or 0) < FEWEST_BYTES:
                continue
            loss = condition.losses[0]
            tries = [item for settings in condition.tries for item in settings.items()]
            lifts = "".join(
                f"torch._inductor.config.{name} = {value!r} lifts it. " for name, value in tries[:1]
            )
            yield Finding(
                title=f"{count_of(condition.places, 'pair')} of loops kept apart by a limit: "
                f"{'up to ' if loss.at_most else ''}{condition.bytes or 0:,} bytes are moved again "
                "on every call",
                evidence=(f"{loss.label}: {condition.torch}", condition.reason),
                advice=lifts + condition.what_to_change,
                stage=stages.SCHEDULER,
            ).at(
                compile_.id,
                *place_of(recording, compile_, graph, loss.row.second_operations),
            )


# --- loop bodies ----------------------------------------------------------------------------------

# Operations by which a program itself copies.
_ASKED = ("clone", "copy", "contiguous", "cat", "stack", "pad", "repeat", "expand", "slice_scatter")
# Memory operations; all others compute.
_MEMORY = ("load", "store", "store_reduction", "index_expr", "constant")
_FEWEST_OPERATIONS = 1_000
_FACTOR = 20


def layout_copies(recording: Recording) -> Iterator[Finding]:
    """Tensors that are copied into another memory order on every call.

    What it finds: a scheduler node that does nothing but copy at least 1 MiB from one memory order
    into another, where the program asks for no copy: Inductor inserted it for a kernel that needs
    its input in a certain order.

    Why it matters: The copy takes as long as any other kernel that reads and writes as much, and it
    is made again on every call, also of weights that never change.

    Example: the weights of a large convolution, converted to channels_last on every call.

    What to do: Keep the tensor in that memory order from the start
    (`.to(memory_format=torch.channels_last)`, `.contiguous()`). For inference,
    `torch._inductor.config.freezing = True` converts weights once.
    """
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for compile_, graph in compiled_graphs(recording):
        for leaf in _copies(recording, graph):
            size = sum(bytes_of(buffer.dtype, buffer.size) or 0 for buffer in leaf.buffers)
            # A function that is compiled again repeats none.
            if size < FEWEST_BYTES or (compile_.function, leaf.origins) in seen:
                continue
            seen.add((compile_.function, leaf.origins))
            final = read_graph(recording, final_graph(compile_, graph))
            inputs = {n.name for n in (final.nodes if final else ()) if n.op == "placeholder"}
            buffer, read = leaf.buffers[0], ", ".join(leaf.reads) or "a tensor"
            advice = f"Keep it with strides ({', '.join(buffer.stride)}) from the start."
            if inputs.intersection(leaf.reads):
                advice += (
                    " For inference, torch._inductor.config.freezing = True converts weights once."
                )
            yield Finding(
                title=f"A tensor of shape ({', '.join(buffer.size)}) is copied into another memory "
                "order on every call",
                evidence=(
                    f"{leaf.name} copies {read} into {buffer.name}, {size:,} bytes, and computes "
                    f"nothing; {leaf.origins[-1]} needs it so",
                ),
                advice=advice,
                stage=stages.LOWERING,
            ).at(compile_.id, *place_of(recording, compile_, graph, leaf.origins))


def _copies(recording: Recording, graph: InductorGraph) -> Iterator[ScheduledNode]:
    for node in read_schedule(recording, graph.scheduled_after):
        for leaf in node.leaves:
            asked = any(known in origin for origin in leaf.origins for known in _ASKED)
            if leaf.loops == "Pointwise" and leaf.body and not asked and leaf.origins:
                body = recording.payload(leaf.body)
                accesses = printed_body(body).accesses
                operations = [access.operation for access in accesses]
                reorders = len({access.index for access in accesses}) == 2
                if operations == ["load", "store"] and body.count("= ops.") == 2 and reorders:
                    yield leaf


def repeated_expressions(recording: Recording) -> Iterator[Finding]:
    """Loop bodies in which the same values are computed over and over.

    What it finds: a loop body of at least 1,000 operations, 20 times as many as the operations of
    the graph that it comes from.

    Why it matters: Inductor puts the computation of a value into everything that reads it. If each
    value is read twice, and so is each that is computed from it, the loop body doubles with every
    step. The C++ compiler and Triton remove what is repeated, but every stage before them goes
    through all of it.

    Example: `last = [last[0] + last[1], last[0] * last[1]]`, repeated 12 times.

    What to do: Have values kept: lower `torch._inductor.config.realize_opcount_threshold` (30), so
    that a value that takes several operations is stored once.
    """
    seen: set[str] = set()
    for compile_ in recording.compiles:
        found = [
            (count, leaf, graph)
            for graph in compile_.inductor
            for node in read_schedule(recording, graph.scheduled_after)
            for leaf in node.leaves
            if (count := _operations(recording, leaf)) >= _FACTOR * len(leaf.origins)
        ]
        count, leaf, graph = max(found, key=lambda each: each[0], default=(0, None, None))
        if leaf is None or graph is None or compile_.function in seen:
            continue
        seen.add(compile_.function)
        yield Finding(
            title=f"A loop body has {count:,} operations for {len(leaf.origins)} of the graph: "
            "values are computed again wherever they are read",
            evidence=(
                f"{leaf.name} of {graph.key}: {count:,} operations besides loads and stores",
            ),
            advice="Have values kept instead: "
            "torch._inductor.config.realize_opcount_threshold = 4.",
            stage=stages.LOWERING,
        ).at(compile_.id, *place_of(recording, compile_, graph, leaf.origins))


def _operations(recording: Recording, leaf: ScheduledNode) -> int:
    """Count the non-memory operations of a large loop body; -1 for a small one."""
    body = recording.payload(leaf.body) if leaf.body and leaf.origins else ""
    count = body.count("= ops.") - sum(body.count(f"= ops.{name}(") for name in _MEMORY)
    return count if count >= _FEWEST_OPERATIONS else -1


# --- how long compiling takes ---------------------------------------------------------------------

COMPILE_THREADS = "torch._inductor.config.compile_threads"
FEWEST_SECONDS = 5.0
# Timings of one kernel vary by this much.
CLEARLY = 1.05


def tuning_gained_little(recording: Recording) -> Iterator[Finding]:
    """Autotuning that found nothing clearly faster than the library.

    What it finds: a graph whose autotuning took at least 5 seconds, and in which no winner is more
    than 5 percent faster than the library's kernel for the same operation.

    Why it matters: the search is repeated whenever torch's caches are empty, and what it gains is
    less than what such timings vary by.

    Example: `mode="max-autotune"` for matrix products that cuBLAS or oneDNN computes as fast.

    What to do: Leave `max_autotune` off for this program, or keep the caches
    (`TORCHINDUCTOR_CACHE_DIR`). 'inductoscope profile --autotune SCRIPT' says what each search
    gained in the program, and after how many calls it pays.
    """
    for compile_, graph in compiled_graphs(recording):
        seconds = graph.seconds.get(stages.AUTOTUNE, 0.0)
        known = [tuned.gain for tuned in graph.autotunes if tuned.gain is not None]
        # A search without a library kernel to compare with may have been worth it.
        if seconds < FEWEST_SECONDS or not known or len(known) < len(graph.autotunes):
            continue
        gain = max(known)
        if gain < CLEARLY:
            operations = count_of(len(graph.autotunes), "operation")
            by = f"at most {gain - 1:.0%}" if gain > 1 else "nothing"
            yield Finding(
                title=f"Autotuning of {operations} took {seconds:.0f} s and gained {by} over the "
                "library",
                evidence=tuple(
                    f"{tuned.operation}: {tuned.winner} of {len(tuned.choices)} choices"
                    for tuned in graph.autotunes[:4]
                ),
                advice="Leave max_autotune off here, or keep torch's caches between runs.",
                stage=stages.AUTOTUNE,
            ).at(compile_.id, compile_.place)


def compile_threads(recording: Recording) -> Iterator[Finding]:
    """Kernels that are compiled one after the other.

    What it finds: a program that sets `compile_threads = 1` and waits at least 5 seconds for two or
    more kernels of one graph, which could be compiled at the same time.

    Why it matters: C++ and Triton compilers take most of a first call, and they do not depend on
    each other.

    Example: `TORCHINDUCTOR_COMPILE_THREADS=1`, left over from debugging.

    What to do: Leave the setting as it is: torch then uses as many threads as there are cores, up
    to 32.
    """
    # Kernels of the same graph wait for each other; different graphs would do so anyway.
    several = [
        compile_
        for compile_ in recording.compiles
        if compile_.settings
        and compile_.settings.config.get(COMPILE_THREADS) == "1"
        and any(
            sum(kernel.language in ("C++", "Triton") for kernel in graph.kernels) > 1
            for graph in compile_.inductor
        )
    ]
    wanted = {digest for compile_ in several for digest in compile_.libraries}
    runs = [native for native in recording.natives if native.seconds and native.payload in wanted]
    seconds = sum(native.seconds or 0.0 for native in runs)
    if len(runs) >= 2 and seconds >= FEWEST_SECONDS:
        yield Finding(
            title=f"{len(runs)} kernels are compiled one after the other, in {seconds:.1f} s",
            evidence=(f"{COMPILE_THREADS} = 1 in compile {several[0].id}",),
            advice="Leave compile_threads, or TORCHINDUCTOR_COMPILE_THREADS, as it is.",
            stage=stages.CPP_COMPILE,
        ).at(several[0].id, several[0].place)
