"""A decision of the compiler that can be made otherwise, and how."""

from __future__ import annotations

import ast
import math
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from inductoscope.analysis.fusion.ledger import graph_ledger
from inductoscope.analysis.rules.cpp_kernels import FEWEST, SIMDLEN
from inductoscope.analysis.rules.dynamo import SKIPPED_GUARDS
from inductoscope.analysis.rules.finding import Finding
from inductoscope.analysis.rules.inductor import LIMITS
from inductoscope.launch.environment import private_cache
from inductoscope.model.entities import Compile, Recording
from inductoscope.model.fx import bare_operation
from inductoscope.model.join import KernelPlace, kernel_places
from inductoscope.processes.children import ChildCall, ChildLimits, run_child
from inductoscope.profiling.evidence import RecordedEvidence
from inductoscope.profiling.kernel_profile import KernelProfile, Profile, floor_for
from inductoscope.profiling.kernel_work import KernelWork
from inductoscope.profiling.machine import TF32, memory_seconds
from inductoscope.profiling.orders import overruling, overruling_sizes
from inductoscope.profiling.statistics import quantile
from inductoscope.profiling.timings import CLOCK, FUNCTION
from inductoscope.profiling.turns import Variant
from inductoscope.targets.work_list import captured_graphs
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.cpp_loops import loop_nests
from inductoscope.torch_facts.guard_reasons import read_guard
from inductoscope.wording import count_of


@dataclass(frozen=True)
class Flip:
    """One change, why it may help, and what it should save."""

    # What a user writes to make the change.
    change: str
    # Why it is worth trying: what a rule found, or what the graphs show.
    why: str
    # The rule that speaks for it, and the user's line; empty where there is none.
    rule: str = ""
    source: str = ""
    # Settings of torch._inductor.config; `overrules` if the program itself sets them.
    settings: Mapping[str, Any] = field(default_factory=dict)
    overrules: bool = False
    # Statements to execute once torch is imported, and variables of the environment.
    code: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    # Seconds per run of the program that it should save, and how that was computed.
    predicted: float | None = None
    prediction: str = ""
    # The share of the time of compiled calls that should be left with it, where that is what is
    # known: then the seconds follow once the program has been timed.
    left: float | None = None
    # The same as a multiple of eager's time, for what is left to eager.
    of_eager: float | None = None
    # Whether it avoids compiles, so that only runs that compile can show what it saves.
    avoids_compiles: bool = False
    # Whether it makes compiles shorter, not fewer.
    shortens_compiles: bool = False
    # Whether it makes eager faster, too.
    changes_eager: bool = False
    # Whether it leaves an operation to eager: then it should be as fast as eager.
    leaves_to_eager: bool = False
    # What a user writes, where that is not what the trial executes.
    pasted: str = ""
    # Torch's own words, if it calls the change unsafe. Then it is shown, and never made.
    warning: str = ""

    @property
    def is_tried_cold(self) -> bool:
        """Whether only runs with empty caches can show what it saves."""
        return self.avoids_compiles or self.shortens_compiles

    @property
    def to_paste(self) -> str:
        """What a user adds to the program; for what the program sets itself, in its place."""
        return self.pasted or self.code.strip() or self.change

    @property
    def statements(self) -> str:
        """The change as statements to execute once torch is imported."""
        if self.variant.code.strip() or not self.settings:
            return self.variant.code
        values = [f"torch._inductor.config.{name} = {v!r}" for name, v in self.settings.items()]
        return "\n".join(("import torch._inductor.config", *values))

    @property
    def variant(self) -> Variant:
        """The program with this change."""
        if self.overrules:
            code = overruling(self.settings)
            return Variant(self.change, code=f"{code}\n{self.code}", variables=self.variables)
        return Variant(self.change, self.settings, self.code, self.variables)


# --------------------------------------------------------------------------------------------------
# Decisions that are worth changing because of what the profile measured, not what a rule found.


# Products that lose less of the kernels' time than this are fast enough.
_LEAST_SHARE = 0.1
# A graph whose kernels run for less than the rest of its calls is worth another wrapper.
_MUCH_IDLE = 0.3
# A rate that is not higher by this much is the same: the GPU has no tensor cores for it.
_CLEARLY = 1.2
_CPP_WRAPPER = "torch._inductor.config.cpp_wrapper"
_MAX_AUTOTUNE = "torch._inductor.config.max_autotune"
_FREEZING = "torch._inductor.config.freezing"


def static_sizes(evidence: RecordedEvidence) -> Iterator[Flip]:
    """A graph that is compiled for any size, and that is always called with the same."""
    by_graph: dict[str, list[int]] = {}
    for number, graph in enumerate(evidence.graphs):
        if graph.sizes and graph.calls:
            by_graph.setdefault(graph.graph, []).append(number)
    for numbers in by_graph.values():
        graph = evidence.graphs[numbers[0]]
        if len(numbers) > 1 or graph.other_sizes:
            continue
        sizes = ", ".join(f"{name} = {size}" for name, size in graph.sizes.items())
        yield Flip(
            "torch.compile(dynamic=False)",
            f"{graph.function} is compiled for any size; all {count_of(graph.calls, 'timed call')} "
            f"had {sizes}",
            source=graph.place,
            code=overruling_sizes(dynamic=False),
            pasted="torch.compile(dynamic=False)",
        )


def wrapper_in_cpp(evidence: RecordedEvidence) -> Iterator[Flip]:
    """Small kernels on the CPU, called from Python."""
    for graph in evidence.graphs:
        if graph.device != "cpu" or graph.how != CLOCK or graph.idle < _MUCH_IDLE:
            continue
        yield Flip(
            f"{_CPP_WRAPPER} = True",
            f"no kernel runs for {graph.idle:.0%} of a call of {graph.function or graph.graph}: "
            "its kernels are too small for the Python code that calls them",
            source=graph.place,
            settings={"cpp_wrapper": True},
        )


def tuned_products(evidence: RecordedEvidence) -> Iterator[Flip]:
    """Products that go straight to the library, and lose time there."""
    rows = [row for row in evidence.kernels if _is_slow_product(row, evidence)]
    if not rows:
        return
    lost = sum(row.lost for row in rows)
    why = (
        f"{count_of(len(rows), 'matrix product')} of the library lose {lost * 1e3:.3g} ms of "
        f"{sum(row.total for row in rows) * 1e3:.3g} ms against the machine's limit, and nothing "
        "else was tried"
    )
    is_cpu = all(row.device == "cpu" for row in rows)
    frozen = {"freezing": True} if all(row.phase == "inference" for row in rows) else {}
    tuned = {"max_autotune": True}
    if is_cpu:
        tuned = {**tuned, "max_autotune_gemm_backends": "CPP,ATEN", **frozen}  # type: ignore[dict-item]
    for settings in (frozen, tuned):
        if settings and not _is_set(evidence, settings):
            yield Flip(
                "; ".join(f"torch._inductor.config.{name} = {v!r}" for name, v in settings.items()),
                why,
                source=rows[0].places[0] if rows[0].places else "",
                settings=settings,
                left=evidence.left_without(lost),
                prediction="what these products lose against the machine's limit",
            )


def products_in_tf32(evidence: RecordedEvidence) -> Iterator[Flip]:
    """Products of float32 that take longer than tensor cores would need for them in TF32."""
    found = [(row, saved) for row in evidence.kernels if (saved := _saved_in_tf32(row, evidence))]
    seconds = sum(saved for _, saved in found)
    whole = sum(row.total for row in evidence.kernels)
    if not found or seconds < _LEAST_SHARE * whole:
        return
    took = sum(row.total for row, _ in found)
    code = 'torch.set_float32_matmul_precision("high")'
    if any("convolution" in name for row, _ in found for name in row.operations):
        code += "\ntorch.backends.cudnn.allow_tf32 = True"
    yield Flip(
        code.replace("\n", "; "),
        f"{count_of(len(found), 'matrix product')} in float32 take {took * 1e3:.3g} ms of the "
        "calls that were timed, without tensor cores; in TF32, with about 3 decimal digits, they "
        f"need at least {(took - seconds) * 1e3:.3g} ms",
        "tensor_cores_unused",
        next((row.places[0] for row, _ in found if row.places), ""),
        code=code,
        left=evidence.left_without(seconds),
        prediction="what these products take beyond the machine's limit in TF32",
        changes_eager=True,
    )


def _saved_in_tf32(row: KernelProfile, evidence: RecordedEvidence) -> float:
    """Seconds of the timed calls beyond the floor in TF32; 0 where it is no faster or not known."""
    machines = evidence.profile.machines if evidence.profile is not None else ()
    machine = next((m for m in machines if m.device == row.device), None)
    single = row.work.matrix.get("float32")
    if machine is None or not single or not row.calls:
        return 0.0
    if machine.matrix.get(TF32, 0.0) < _CLEARLY * machine.matrix.get("float32", 0.0):
        return 0.0
    others = {dtype: count for dtype, count in row.work.matrix.items() if dtype != "float32"}
    matrix = {**others, TF32: single + others.get(TF32, 0)}
    work: KernelWork = replace(row.work, matrix=matrix)
    floor = floor_for(work, machine)
    return max(0.0, row.total - floor.seconds * row.calls) if floor is not None else 0.0


def _is_slow_product(row: KernelProfile, evidence: RecordedEvidence) -> bool:
    whole = sum(kernel.total for kernel in evidence.kernels)
    is_library = row.language == "extern" and bool(row.work.matrix) and row.floor is not None
    return is_library and row.calls > 0 and row.lost > _LEAST_SHARE * whole


def _is_set(evidence: RecordedEvidence, settings: dict[str, bool]) -> bool:
    """Whether the program already does so."""
    given = [c.settings for c in evidence.recording.compiles if c.settings is not None]
    name = _MAX_AUTOTUNE if "max_autotune" in settings else _FREEZING
    return any(
        each.config.get(name) == "True" or "max-autotune" in each.arguments.get("mode", "")
        for each in given
    )


def fewer_guards(evidence: RecordedEvidence) -> Iterator[Flip]:
    """Guards that are not evaluated again: for a user who knows that nothing changes."""
    change = "torch.compiler.set_stance(skip_guard_eval_unsafe=True)"
    for finding in evidence.about("slow_guards"):
        yield Flip(
            change,
            finding.title,
            finding.rule,
            finding.source,
            pasted=f"# torch warns: {SKIPPED_GUARDS}\n{change}",
            warning=SKIPPED_GUARDS,
        )


def more_compile_threads(evidence: RecordedEvidence) -> Iterator[Flip]:
    """Kernels of one graph, compiled at the same time."""
    threads = min(os.cpu_count() or 1, 32)
    for finding in evidence.about("compile_threads"):
        if threads < 2:
            return
        seconds = [n.seconds or 0.0 for n in evidence.recording.natives if n.digest]
        rounds = math.ceil(len(seconds) / threads) / max(1, len(seconds))
        yield Flip(
            f"torch._inductor.config.compile_threads = {threads}",
            finding.title,
            finding.rule,
            finding.source,
            settings={"compile_threads": threads},
            overrules=True,
            predicted=sum(seconds) * (1 - rounds),
            prediction=f"{len(seconds)} kernels, {threads} at a time",
            shortens_compiles=True,
        )


# --- Settings of Inductor that the program has changed, back at torch's own values ----------------
#
# Someone may have changed them to look for a bug, or for another version of torch. What the change
# costs is not known to anybody until it is tried.

_PREFIX = "torch._inductor.config."
# Each trial takes as long as the program.
_MOST = 2
# These say where and how to compile or what to write down, not what code comes of it; or a program
# that sets them has asked for more work, or for other results.
_NOT_ABOUT_CODE = (
    "aot_inductor",
    "assert",
    stages.AUTOTUNE,
    stages.BENCHMARK,
    "cache",
    "compile_threads",
    "coordinate_descent",
    "cpp_wrapper",
    "cxx",
    "debug",
    "deterministic",
    "emulate",
    "fallback_random",
    "freezing",
    "math",
    "numerics",
    "profile",
    "trace.",
    "worker",
)


def reset_settings(evidence: RecordedEvidence) -> Iterator[Flip]:
    """The settings that may cost time, each at torch's own value."""
    found: dict[str, Flip] = {}
    for compile_ in evidence.recording.compiles:
        if (settings := compile_.settings) is None:
            continue
        for name, default in settings.defaults.items():
            flip = _reset(name, settings.config.get(name, ""), default, compile_.place)
            if flip is not None:
                found.setdefault(name, flip)
    yield from tuple(found.values())[:_MOST]


def _reset(name: str, given: str, default: str, place: str) -> Flip | None:
    short = name.removeprefix(_PREFIX)
    is_plain = _is_plain(given) and _is_plain(default)
    if short == name or not is_plain or any(word in short for word in _NOT_ABOUT_CODE):
        return None
    value: Any = ast.literal_eval(default)
    return Flip(
        f"{name} = {value!r}",
        f"the program sets {short} = {given}; torch's own value is {default}",
        source=place,
        settings={short: value},
        overrules=True,
    )


def _is_plain(text: str) -> bool:
    """Whether it is a number, True, False or None: texts and lists are names and places."""
    try:
        return isinstance(ast.literal_eval(text), (bool, int, float, type(None)))
    except (ValueError, SyntaxError):
        return False


# --- What a change should save, computed before it is tried from what the profile measured --------
#
# Nothing is predicted where the profile does not say: then the reason is given instead.

_BYTES = re.compile(r"([\d,]+) bytes are moved again")

# The share of the compiled calls that is left with a change, or the seconds per run that it saves;
# and how that was computed. None if it cannot be said.
Prediction = tuple[float | None, str] | None


def predicted(flip: Flip, evidence: RecordedEvidence) -> Flip:
    """The change with what it should save; or with why that cannot be said."""
    if flip.predicted is not None or flip.leaves_to_eager:
        return flip  # What is left to eager is predicted when eager has been timed.
    if evidence.profile is None:
        return flip
    if flip.left is not None:
        return flip
    if (
        flip.rule in _SAVED_SECONDS
        and (known := _SAVED_SECONDS[flip.rule](flip, evidence)) is not None
    ):
        return replace(flip, predicted=known[0], prediction=known[1])
    found = _SHARES_LEFT[flip.rule](flip, evidence) if flip.rule in _SHARES_LEFT else None
    if found is None or found[0] is None:
        return replace(flip, prediction="nothing that was measured says how much")
    return replace(flip, left=found[0], prediction=found[1])


def _lost_in_kernels(flip: Flip, evidence: RecordedEvidence) -> Prediction:
    rows = _concerned(flip, evidence)
    if not rows or any(row.floor is None for row in rows):
        return None
    lost = evidence.left_without(sum(row.lost for row in rows))
    return lost, "what its kernels lose against the machine's limit"


def _whole_kernels(flip: Flip, evidence: RecordedEvidence) -> Prediction:
    # A kernel that computes something as well as the copy is not gone without the copy.
    rows = [row for row in _concerned(flip, evidence) if len(row.operations) <= 1]
    if not rows:
        return None
    left = evidence.left_without(sum(row.total for row in rows))
    return left, "all the time of the kernels that copy"


def _moved_again(flip: Flip, evidence: RecordedEvidence) -> Prediction:
    size = _BYTES.search(flip.why)
    machines = evidence.profile.machines if evidence.profile is not None else ()
    calls = max((graph.calls for graph in evidence.graphs), default=0)
    if size is None or not machines or not calls:
        return None
    moved = int(size[1].replace(",", ""))
    seconds = memory_seconds(machines[0], moved // 2, moved - moved // 2)
    if seconds is None:
        return None
    left = evidence.left_without(seconds * calls)
    return left, f"{moved:,} bytes at the speed of this machine's memory"


def _between_kernels(flip: Flip, evidence: RecordedEvidence) -> Prediction:
    if not evidence.graphs:
        return None
    gaps = sum(graph.between.median * graph.calls for graph in evidence.graphs)
    return evidence.left_without(gaps), "all gaps between kernels"


def _in_guards(flip: Flip, evidence: RecordedEvidence) -> Prediction:
    found = [
        (compile_.guard_microseconds or 0.0) * 1e-6 * evidence.calls_of(compile_.place)
        for compile_ in evidence.recording.compiles
        if compile_.place == flip.source
    ]
    return (max(found), "all guards of a call, as often as it is called") if found else None


def _at_breaks(flip: Flip, evidence: RecordedEvidence) -> Prediction:
    """A call costs about as much outside of its graphs for each of them; one graph is left."""
    functions = evidence.profile.functions if evidence.profile is not None else ()
    called = [function for function in functions if function.kind == FUNCTION]
    graphs = [graph for graph in evidence.graphs if graph.calls]
    if len(called) != 1 or len(graphs) < 2 or not called[0].count:
        return None  # It would not be known which graphs are whose.
    whole = called[0].seconds.median
    outside = max(0.0, whole - sum(graph.seconds.median for graph in graphs))
    if not outside:
        return None
    left = 1 - outside * (1 - 1 / len(graphs)) / whole
    return left, f"what a call takes outside of its graphs, for one graph instead of {len(graphs)}"


def _concerned(flip: Flip, evidence: RecordedEvidence) -> Sequence[KernelProfile]:
    """The kernels that compute the line of the finding."""
    return [row for row in evidence.kernels if flip.source and flip.source in row.places]


_SHARES_LEFT: dict[str, Callable[[Flip, RecordedEvidence], Prediction]] = {
    "scalar_loop": _lost_in_kernels,
    "recomputed": _lost_in_kernels,
    "register_spills": _lost_in_kernels,
    "split_reductions": _lost_in_kernels,
    "unsplit_reductions": _lost_in_kernels,
    "layout_copies": _whole_kernels,
    "kept_apart": _moved_again,
    "tiny_kernels": _between_kernels,
    "graph_breaks": _at_breaks,
}
_SAVED_SECONDS: dict[str, Callable[[Flip, RecordedEvidence], Prediction]] = {
    "slow_guards": _in_guards,
}


# --- Which decisions are worth changing: read from a recording, each for a reason -----------------
#
# A function per kind of decision, listed in `PROPOSERS`; the likeliest to help come first.

# No one waits for more than this many trials.
MOST = 6
_MOST_OPERATIONS = 3


Proposer = Callable[[RecordedEvidence], Iterator[Flip]]


def flips_for(recording: Recording, profile: Profile | None = None) -> tuple[Flip, ...]:
    """The changes that are worth a trial, each once; with a profile, what each should save."""
    evidence = RecordedEvidence(recording, profile)
    found: dict[str, Flip] = {}
    for propose in PROPOSERS:
        for flip in propose(evidence):
            found.setdefault(flip.change, predicted(flip, evidence))
    return tuple(found.values())[:MOST]


# --- Dynamo ---------------------------------------------------------------------------------------

_SIZE = re.compile(r"size mismatch|\.size\(\)|shape\[")


def _fewer_recompiles(evidence: RecordedEvidence) -> Iterator[Flip]:
    for finding in evidence.about("recompiles"):
        again = [
            compile_
            for compile_ in evidence.recording.compiles
            if compile_.recompile is not None and compile_.function == _function(finding, evidence)
        ]
        texts = [reason for each in again if each.recompile for reason in each.recompile.reasons]
        for remedy in _remedies(texts, is_static=any(map(_is_static, again))):
            # The first of them is made once more: that it changes is only seen then.
            avoided = again[remedy.still :]
            seconds = sum(each.seconds for each in avoided)
            yield Flip(
                remedy.change,
                finding.title,
                finding.rule,
                finding.source,
                code=remedy.code,
                predicted=seconds,
                prediction=f"{count_of(len(avoided), 'recompile')} took {seconds:.1f} s",
                avoids_compiles=True,
            )


def _function(finding: Finding, evidence: RecordedEvidence) -> str:
    found = (c.function for c in evidence.recording.compiles if c.id == finding.compile)
    return next(found, "")


@dataclass(frozen=True)
class _Remedy:
    change: str
    code: str
    # Recompiles that are still made with it.
    still: int


def _is_static(compile_: Compile) -> bool:
    return compile_.settings is not None and compile_.settings.arguments.get("dynamic") == "False"


def _remedies(reasons: Sequence[str], *, is_static: bool) -> Iterator[_Remedy]:
    if any(read_guard(reason).is_of_module for reason in reasons):
        name = "torch._dynamo.config.allow_unspec_int_on_nn_module = True"
        yield _Remedy(name, f"import torch._dynamo\n{name}", 1)
    if any(_SIZE.search(read_guard(reason).condition) for reason in reasons):
        name = "torch._dynamo.config.assume_static_by_default = False"
        # A program that asks for sizes that are not dynamic does not look at the setting.
        code = overruling_sizes(dynamic=True) if is_static else f"import torch._dynamo\n{name}"
        yield _Remedy("torch.compile(dynamic=True)", code, 0)


# Settings that torch names where a graph breaks for want of them.
_CAPTURES = ("capture_scalar_outputs", "capture_dynamic_output_shape_ops")


def _no_break_at_item(evidence: RecordedEvidence) -> Iterator[Flip]:
    breaks = [item for compile_ in evidence.recording.compiles for item in compile_.breaks]
    for setting in _CAPTURES:
        for item in (item for item in breaks if setting in item.reason):
            change = f"torch._dynamo.config.{setting} = True"
            yield Flip(
                change,
                f"the graph breaks at {item.code or 'a value that torch does not know'}",
                "graph_breaks",
                item.source,
                code=f"import torch._dynamo\n{change}",
            )


# --- Inductor's settings --------------------------------------------------------------------------


def _vectorized(evidence: RecordedEvidence) -> Iterator[Flip]:
    for finding in evidence.about("scalar_loop"):
        if SIMDLEN.rpartition("config.")[2] in finding.title:
            yield _setting("cpp.simdlen", None, finding, overrules=True)
        elif "enable_tiling_heuristics" in finding.advice:
            yield _setting("cpp.enable_tiling_heuristics", False, finding)


def _values_kept(evidence: RecordedEvidence) -> Iterator[Flip]:
    for finding in evidence.about("recomputed"):
        yield _setting("realize_opcount_threshold", 4, finding)


def _limit_lifted(evidence: RecordedEvidence) -> Iterator[Flip]:
    if not any(evidence.about("kept_apart")):
        return
    for compile_ in evidence.recording.compiles:
        for graph in compile_.inductor:
            for row in graph_ledger(evidence.recording, compile_, graph):
                if row.torch in LIMITS and row.tries:
                    finding = next(evidence.about("kept_apart"))
                    setting, value = next(iter(row.tries[0].items()))
                    yield _setting(setting, value, finding, overrules=True)


def _weights_converted_once(evidence: RecordedEvidence) -> Iterator[Flip]:
    for finding in evidence.about("layout_copies"):
        if "freezing" in finding.advice:
            yield _setting("freezing", True, finding)
        yield _setting("layout_optimization", False, finding)


def _other_launches(evidence: RecordedEvidence) -> Iterator[Flip]:
    for finding in evidence.about("register_spills"):
        yield _setting("coordinate_descent_tuning", True, finding)
    for finding in evidence.about("tiny_kernels"):
        yield _setting("triton.cudagraphs", True, finding)
    for finding in evidence.about("split_reductions"):
        yield _setting("split_reductions", False, finding)
    for finding in evidence.about("unsplit_reductions"):
        yield _setting("split_reductions", True, finding, overrules=True)
    for finding in evidence.about("tensor_cores_unused"):
        code = 'torch.set_float32_matmul_precision("high")'
        yield Flip(code, finding.title, finding.rule, finding.source, code=code, changes_eager=True)


def _setting(name: str, value: object, finding: Finding, *, overrules: bool = False) -> Flip:
    return Flip(
        f"torch._inductor.config.{name} = {value!r}",
        finding.title,
        finding.rule,
        finding.source,
        settings={name: value},
        overrules=overrules,
    )


# --- operations left to eager ---------------------------------------------------------------------

_OPERATION = ("element_by_element", "atomic_adds", "threads_restarted")
LEAVE = """
import torch._inductor.decomposition, torch._inductor.lowering
for overload in torch.ops.aten.{name}.overloads():
    operation = getattr(torch.ops.aten.{name}, overload)
    torch._inductor.decomposition.decompositions.pop(operation, None)
    torch._inductor.lowering.make_fallback(operation, warn=False, override_decomp=True)
"""


def _left_to_eager(evidence: RecordedEvidence) -> Iterator[Flip]:
    """Operations of a kernel that a rule names, then others that Inductor takes apart."""
    named = {finding.compile: finding for finding in evidence.about(*_OPERATION)}
    found: dict[str, Finding | None] = {}
    for place in kernel_places(evidence.recording, "C++"):
        finding = named.get(place.compile.id)
        for node in place.operations if finding else ():
            if _is_collected(finding, node.operation, bare_operation(node.aten)):
                found.setdefault(bare_operation(node.aten), finding)
    for place in kernel_places(evidence.recording, "C++"):
        for name in _taken_apart(evidence.recording, place):
            found.setdefault(name, None)
    for name, reason in tuple(found.items())[:_MOST_OPERATIONS]:
        yield Flip(
            f"leave {name} to eager",
            reason.title if reason else f"Inductor takes {name} apart and generates its own code",
            reason.rule if reason else "",
            reason.source if reason else "",
            code=LEAVE.format(name=name),
            leaves_to_eager=True,
        )


def _taken_apart(recording: Recording, place: KernelPlace) -> Iterator[str]:
    """Operations that eager has a kernel for, and that this kernel computes in several steps."""
    nests = loop_nests(recording.payload(place.kernel.digest))
    if max((nest.elements for nest in nests), default=0) < FEWEST:
        return
    steps = Counter(bare_operation(node.aten) for node in place.operations if node.aten)
    for name, count in steps.items():
        if count > 1 and all(node.operation != name for node in place.operations):
            yield name


def _is_collected(finding: Finding | None, operation: str, aten: str) -> bool:
    """Whether an operation of a kernel is the one that a finding is about."""
    if finding is None or finding.rule == "threads_restarted":
        return operation in ("var_mean", "sum", "mean", "amax", "prod", "welford")
    return finding.title.startswith(operation) or finding.title.partition(" ")[0] in aten


PROPOSERS: tuple[Proposer, ...] = (
    _fewer_recompiles,
    _no_break_at_item,
    _vectorized,
    _values_kept,
    _limit_lifted,
    _weights_converted_once,
    products_in_tf32,
    _other_launches,
    reset_settings,
    static_sizes,
    wrapper_in_cpp,
    _left_to_eager,
    tuned_products,
    fewer_guards,
    more_compile_threads,
)


# --- What a setting should save, before the program is run with it --------------------------------
#
# The recorded graphs are compiled alone in a child, as the program compiled them and with the
# setting, and called in turns with the program's own arguments, or made-up ones where those are not
# known. What is left of their time should be left of the program's compiled calls.

_SECONDS_ALONE = 180.0
_CONFIG_PREFIX = "torch._inductor.config."


def predicted_alone(recording: Recording, flips: Sequence[Flip], inputs: Path) -> tuple[Flip, ...]:
    """The flips; those that change settings with what is left of the time of the graphs alone.

    The program's own arguments lie in the folder `inputs`.
    """
    asked = [flip for flip in flips if _can_be_asked(flip)]
    timed = iter(_timed_alone(recording, asked, inputs) if asked else ())
    return tuple(
        _with_prediction(flip, next(timed, None)) if _can_be_asked(flip) else flip for flip in flips
    )


@dataclass(frozen=True)
class _TimedAlone:
    """Seconds of all graphs with a change, as the program compiles them, and in eager."""

    changed: float
    whole: float
    eager: float


def _with_prediction(flip: Flip, timed: _TimedAlone | None) -> Flip:
    """What was measured is better than what was computed before.

    An operation that is left to eager takes as long as there. How long that is in the program is
    known, and may differ from here: much of it can be the memory that the operation has to get.
    """
    if timed is None:
        return flip
    if flip.leaves_to_eager:
        times = timed.changed / timed.eager
        text = f"alone, the graphs take {times:.2f} times as long with it as in eager"
        return replace(flip, of_eager=times, prediction=text)
    left = timed.changed / timed.whole
    text = f"alone, the graphs take {left:.2f} of their time with it"
    return replace(flip, left=left, prediction=text)


def _can_be_asked(flip: Flip) -> bool:
    is_settings = bool(flip.settings) and not flip.code and not flip.variables
    return flip.leaves_to_eager or (
        is_settings and not flip.avoids_compiles and not flip.changes_eager
    )


def _timed_alone(
    recording: Recording, flips: Sequence[Flip], inputs: Path
) -> list[_TimedAlone | None]:
    """The graphs with each flip, in turns with the graphs as they are and in eager."""
    orders = list(captured_graphs(recording))
    if not orders:
        return [None for _ in flips]
    compiles = {compile_.id: compile_ for compile_ in recording.compiles}
    order: dict[str, Any] = {
        "graphs": [asdict(each) for each in orders],
        "settings": [_settings_of(compiles[each.compile]) for each in orders],
        "changes": [{"settings": dict(flip.settings), "code": flip.code} for flip in flips],
        "inputs": str(inputs),
    }
    with tempfile.TemporaryDirectory(prefix="inductoscope-prediction-") as folder:
        environment = {
            **os.environ,
            **private_cache(Path(folder) / "cache"),
            # Statements change what is compiled without changing the keys of a cache.
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
            "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
        }
        call = ChildCall(
            "inductoscope.inside.profiling.prediction_child:time_variants",
            {"order": order},
            environment,
            Path(folder),
        )
        ended = run_child(call, ChildLimits(_SECONDS_ALONE, memory_gib=1024.0))
    timed = [event["variants"] for event in ended.events if event["event"] == "timed"]
    if len(timed) < len(orders):
        return [None for _ in flips]  # Not all graphs are known: then nothing is predicted.
    seconds = [[quantile(times, 0.5) for times in variants] for variants in timed]
    eager, whole, *changed = map(sum, zip(*seconds, strict=True))
    return [_TimedAlone(each, whole, eager) if whole and eager else None for each in changed]


def _settings_of(compile_: Compile) -> dict[str, Any]:
    """What the program set for Inductor, where it is plain data."""
    given: Mapping[str, str] = compile_.settings.config if compile_.settings else {}
    found = {}
    for name, text in given.items():
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            continue
        if name.startswith(_CONFIG_PREFIX):
            found[name.removeprefix(_CONFIG_PREFIX)] = value
    return found
