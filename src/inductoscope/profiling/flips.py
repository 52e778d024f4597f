"""Decisions of the compiler that are worth changing, and the predicted saving of each change.

A flip is one change to the program. A function per kind of decision proposes flips, listed in
`PROPOSERS`, each for a reason: a rule that found something in the recording, or what the profile
measured. The saving of a flip is predicted from the profile, before it is tried; if that is not
possible, the reason is given instead.
"""

from __future__ import annotations

import ast
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from inductoscope.analysis.fusion.ledger import graph_ledger
from inductoscope.analysis.rules.cpp_kernels import FEWEST
from inductoscope.analysis.rules.dynamo import SKIPPED_GUARDS
from inductoscope.analysis.rules.finding import Finding
from inductoscope.analysis.rules.inductor import LIMITS
from inductoscope.model.entities import Compile, Recording
from inductoscope.model.fx import bare_operation
from inductoscope.model.join import KernelPlace, kernel_places
from inductoscope.profiling.evidence import RecordedEvidence
from inductoscope.profiling.kernel_profile import NO_PROFILE, KernelProfile, Profile
from inductoscope.profiling.kernel_work import floor_of
from inductoscope.profiling.machine import TF32, memory_seconds
from inductoscope.profiling.orders import overruling, overruling_sizes
from inductoscope.profiling.timings import CLOCK, FUNCTION
from inductoscope.profiling.turns import Variant
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.cpp_loops import loop_nests
from inductoscope.torch_facts.guard_reasons import read_guard
from inductoscope.wording import count_of

# The most trials that a user would wait for.
MOST = 6
_PREFIX = "torch._inductor.config."


@dataclass(frozen=True)
class Flip:
    # The change as a user writes it.
    change: str
    # Why it is worth trying: the finding of a rule, or a fact about the graphs.
    why: str
    # The rule that suggests the change, and the user's line; empty if there is none.
    rule: str = ""
    source: str = ""
    # Settings of torch._inductor.config; `overrules` if the program itself sets them.
    settings: Mapping[str, Any] = field(default_factory=dict)
    overrules: bool = False
    # Statements to execute once torch is imported.
    code: str = ""
    # The predicted saving in seconds per run of the program, and how it was computed.
    predicted: float | None = None
    prediction: str = ""
    # The predicted share of the compiled calls' time that is left with the change, if only that is
    # known; the seconds follow once the program has been timed.
    left: float | None = None
    # Whether it avoids or shortens compiles, which only runs with an empty cache can show.
    avoids_compiles: bool = False
    shortens_compiles: bool = False
    # Whether it makes eager faster, too.
    changes_eager: bool = False
    # Whether it leaves an operation to eager, and should therefore be as fast as eager.
    leaves_to_eager: bool = False
    # The code for the user, if it differs from what the trial executes.
    pasted: str = ""
    # torch's warning if the change is unsafe; such a change is shown, and never tried.
    warning: str = ""

    @property
    def acts_by_code(self) -> bool:
        """Whether it acts by the generated code, unlike the precision of libraries, CUDA graphs."""
        return not (self.changes_eager or "triton.cudagraphs" in self.settings)

    @property
    def is_tried_cold(self) -> bool:
        """Whether only runs with empty caches can show the saving."""
        return self.avoids_compiles or self.shortens_compiles

    @property
    def to_paste(self) -> str:
        """The code that a user adds to the program, or with which settings in it are replaced."""
        return self.pasted or self.code.strip() or self.change

    @property
    def statements(self) -> str:
        if self.variant.code.strip() or not self.settings:
            return self.variant.code
        values = [f"{_PREFIX}{name} = {value!r}" for name, value in self.settings.items()]
        return "\n".join(("import torch._inductor.config", *values))

    @property
    def variant(self) -> Variant:
        if self.overrules:
            return Variant(self.change, code=f"{overruling(self.settings)}\n{self.code}")
        return Variant(self.change, self.settings, self.code)


Proposer = Callable[[RecordedEvidence], Iterator[Flip]]


def flips_for(recording: Recording, profile: Profile | None = None) -> tuple[Flip, ...]:
    """Return the changes worth a trial, without duplicates; with a profile, predict savings."""
    evidence = RecordedEvidence(recording, profile or NO_PROFILE)
    found: dict[str, Flip] = {}
    for propose in PROPOSERS:
        for flip in propose(evidence):
            found.setdefault(flip.change, predicted(flip, evidence))
    return tuple(found.values())[:MOST]


def _for_finding(finding: Finding, change: str, **more: Any) -> Flip:
    return Flip(change, finding.title, finding.rule, finding.source, **more)


# --- Dynamo ---------------------------------------------------------------------------------------

_SIZE = re.compile(r"size mismatch|\.size\(\)|shape\[")
# Settings that torch's messages about graph breaks suggest.
_CAPTURES = ("capture_scalar_outputs", "capture_dynamic_output_shape_ops")


def _fewer_recompiles(evidence: RecordedEvidence) -> Iterator[Flip]:
    compiles = evidence.recording.compiles
    for finding in evidence.about("recompiles"):
        function = next((c.function for c in compiles if c.id == finding.compile), "")
        again = [c for c in compiles if c.recompile is not None and c.function == function]
        for change, code, still in _remedies(again):
            avoided = again[still:]
            done = sum(each.is_recompile for each in avoided)
            seconds = sum(each.seconds for each in avoided)
            yield _for_finding(
                finding,
                change,
                code=code,
                predicted=seconds,
                prediction=f"{count_of(done, 'recompile')} took {seconds:.1f} s",
                avoids_compiles=True,
            )


def _remedies(again: Sequence[Compile]) -> Iterator[tuple[str, str, int]]:
    """Yield changes that avoid recompiles, as statements, and how many recompiles remain."""
    reasons = [text for each in again if each.recompile for text in each.recompile.reasons]
    if any(read_guard(reason).is_of_module for reason in reasons):
        name = "torch._dynamo.config.allow_unspec_int_on_nn_module = True"
        # One recompile remains, in which torch sees that the value changes.
        yield name, f"import torch._dynamo\n{name}", 1
    if any(_SIZE.search(read_guard(reason).condition) for reason in reasons):
        name = "torch._dynamo.config.assume_static_by_default = False"
        # torch ignores the setting in a program that requests static sizes.
        is_static = any(
            each.settings is not None and each.settings.arguments.get("dynamic") == "False"
            for each in again
        )
        code = overruling_sizes(dynamic=True) if is_static else f"import torch._dynamo\n{name}"
        yield "torch.compile(dynamic=True)", code, 0


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


def static_sizes(evidence: RecordedEvidence) -> Iterator[Flip]:
    """Propose static sizes for a dynamic graph that is always called with the same sizes."""
    called = [graph for graph in evidence.profile.graphs if graph.times.sizes and graph.calls]
    rows = Counter(graph.graph for graph in called)
    for graph in called:
        if rows[graph.graph] > 1 or graph.times.other_sizes:
            continue
        sizes = ", ".join(f"{name} = {size}" for name, size in graph.times.sizes.items())
        yield Flip(
            "torch.compile(dynamic=False)",
            f"{graph.function} is compiled for any size; all {count_of(graph.calls, 'timed call')} "
            f"had {sizes}",
            source=graph.place,
            code=overruling_sizes(dynamic=False),
            pasted="torch.compile(dynamic=False)",
        )


def _fewer_guards(evidence: RecordedEvidence) -> Iterator[Flip]:
    """Propose to skip the evaluation of guards, for a user who knows that nothing changes."""
    change = "torch.compiler.set_stance(skip_guard_eval_unsafe=True)"
    for finding in evidence.about("slow_guards"):
        pasted = f"# torch warns: {SKIPPED_GUARDS}\n{change}"
        yield _for_finding(finding, change, pasted=pasted, warning=SKIPPED_GUARDS)


# --- Inductor's settings --------------------------------------------------------------------------


# A rule, a text that its finding must contain, the setting that it suggests, and its value.
_BY_RULES: tuple[tuple[str, str, str, Any], ...] = (
    ("scalar_loop", "config.cpp.simdlen", "cpp.simdlen", None),
    ("scalar_loop", "enable_tiling_heuristics", "cpp.enable_tiling_heuristics", False),
    ("recomputed", "", "realize_opcount_threshold", 4),
    ("layout_copies", "freezing", "freezing", True),
    ("layout_copies", "", "layout_optimization", False),
    ("register_spills", "", "coordinate_descent_tuning", True),
    ("tiny_kernels", "", "triton.cudagraphs", True),
    ("split_reductions", "", "split_reductions", False),
    ("unsplit_reductions", "", "split_reductions", True),
)
# The program itself may have set these.
_OVERRULED = (("cpp.simdlen", None), ("split_reductions", True))


def _settings_of_rules(evidence: RecordedEvidence) -> Iterator[Flip]:
    for rule, mentions, name, value in _BY_RULES:
        for finding in evidence.about(rule):
            if mentions in finding.advice:
                yield _setting(name, value, finding, overrules=(name, value) in _OVERRULED)


def _setting(name: str, value: object, finding: Finding, *, overrules: bool = False) -> Flip:
    change = f"{_PREFIX}{name} = {value!r}"
    return _for_finding(finding, change, settings={name: value}, overrules=overrules)


def _limit_lifted(evidence: RecordedEvidence) -> Iterator[Flip]:
    finding = next(evidence.about("kept_apart"), None)
    for compile_ in evidence.recording.compiles if finding else ():
        for graph in compile_.inductor:
            for row in graph_ledger(evidence.recording, compile_, graph):
                if row.torch in LIMITS and row.tries and finding:
                    name, value = next(iter(row.tries[0].items()))
                    yield _setting(name, value, finding, overrules=True)


# Settings that do not affect generated code, or with which a program has requested more work or
# different results.
_NOT_ABOUT_CODE = (
    "aot_inductor", "assert", stages.AUTOTUNE, stages.BENCHMARK, "cache", "compile_threads",
    "coordinate_descent", "cpp_wrapper", "cxx", "debug", "deterministic", "emulate",
    "fallback_random", "freezing", "math", "numerics", "profile", "trace.", "worker",
)  # fmt: skip
# The most settings that are tried: each trial takes as long as the program.
_MOST_RESETS = 2


def _reset_settings(evidence: RecordedEvidence) -> Iterator[Flip]:
    """Propose to reset settings that the program has changed to torch's defaults.

    They may have been changed to look for a bug, or for another version of torch. The cost of the
    changed setting is unknown until the reset is tried.
    """
    found: dict[str, Flip] = {}
    for compile_ in evidence.recording.compiles:
        if (settings := compile_.settings) is None:
            continue
        for name, default in settings.defaults.items():
            short, given = name.removeprefix(_PREFIX), settings.config.get(name, "")
            is_about_code = short != name and not any(word in short for word in _NOT_ABOUT_CODE)
            if not is_about_code or not (_is_plain(given) and _is_plain(default)):
                continue
            value = ast.literal_eval(default)
            flip = Flip(
                f"{name} = {value!r}",
                f"the program sets {short} = {given}; torch's own value is {default}",
                source=compile_.place,
                settings={short: value},
                overrules=True,
            )
            found.setdefault(name, flip)
    yield from tuple(found.values())[:_MOST_RESETS]


def _is_plain(text: str) -> bool:
    """Check whether a value is a number, True, False or None: strings and lists are paths etc."""
    try:
        return isinstance(ast.literal_eval(text), (bool, int, float, type(None)))
    except (ValueError, SyntaxError):
        return False


# A graph is worth a C++ wrapper if gaps between kernels take this share of its calls.
_MUCH_IDLE = 0.3


def wrapper_in_cpp(evidence: RecordedEvidence) -> Iterator[Flip]:
    for graph in evidence.profile.graphs:
        times = graph.times
        if times.device != "cpu" or times.how != CLOCK or graph.times.idle < _MUCH_IDLE:
            continue
        yield Flip(
            f"{_PREFIX}cpp_wrapper = True",
            f"no kernel runs for {times.idle:.0%} of a call of {graph.function or graph.graph}: "
            "its kernels are too small for the Python code that calls them",
            source=graph.place,
            settings={"cpp_wrapper": True},
        )


def more_compile_threads(evidence: RecordedEvidence) -> Iterator[Flip]:
    threads = min(os.cpu_count() or 1, 32)
    for finding in evidence.about("compile_threads") if threads > 1 else ():
        seconds = [n.seconds or 0.0 for n in evidence.recording.natives if n.payload]
        rounds = math.ceil(len(seconds) / threads) / max(1, len(seconds))
        yield replace(
            _setting("compile_threads", threads, finding, overrules=True),
            predicted=sum(seconds) * (1 - rounds),
            prediction=f"{len(seconds)} kernels, {threads} at a time",
            shortens_compiles=True,
        )


# --- matrix products ------------------------------------------------------------------------------

# Products that lose less than this share of the kernels' time are fast enough.
_LEAST_SHARE = 0.1
# Without a rate higher by this factor, the GPU has no tensor cores for the type.
_CLEARLY = 1.2
_TF32 = 'torch.set_float32_matmul_precision("high")'


def _tuned_products(evidence: RecordedEvidence) -> Iterator[Flip]:
    least = _LEAST_SHARE * sum(row.total for row in evidence.profile.kernels)
    rows = [
        row for row in evidence.profile.kernels if _is_library_product(row) and row.lost > least
    ]
    if not rows:
        return
    lost = sum(row.lost for row in rows)
    why = (
        f"{count_of(len(rows), 'matrix product')} of the library lose {lost * 1e3:.3g} ms of "
        f"{sum(row.total for row in rows) * 1e3:.3g} ms against the machine's limit, and nothing "
        "else was tried"
    )
    frozen = {"freezing": True} if all(row.of.phase == "inference" for row in rows) else {}
    tuned: dict[str, Any] = {"max_autotune": True}
    if all(row.device == "cpu" for row in rows):
        tuned |= {"max_autotune_gemm_backends": "CPP,ATEN", **frozen}
    for settings in (frozen, tuned):
        if settings and not _is_set(evidence, next(iter(settings))):
            yield Flip(
                "; ".join(f"{_PREFIX}{name} = {value!r}" for name, value in settings.items()),
                why,
                source=rows[0].places[0] if rows[0].places else "",
                settings=settings,
                left=evidence.left_without(lost),
                prediction="what these products lose against the machine's limit",
            )


def _is_library_product(row: KernelProfile) -> bool:
    is_known = bool(row.work.matrix) and row.floor is not None and row.calls > 0
    return row.language == "extern" and is_known


def _is_set(evidence: RecordedEvidence, name: str) -> bool:
    given = [c.settings for c in evidence.recording.compiles if c.settings is not None]
    return any(
        each.config.get(f"{_PREFIX}{name}") == "True"
        or "max-autotune" in each.arguments.get("mode", "")
        for each in given
    )


def _tensor_cores(evidence: RecordedEvidence) -> Iterator[Flip]:
    for finding in evidence.about("tensor_cores_unused"):
        yield _for_finding(finding, _TF32, code=_TF32, changes_eager=True)


def products_in_tf32(evidence: RecordedEvidence) -> Iterator[Flip]:
    """Propose TF32 for products of float32 that would be faster on tensor cores."""
    found = [
        (row, saved) for row in evidence.profile.kernels if (saved := _saved_in_tf32(row, evidence))
    ]
    seconds = sum(saved for _, saved in found)
    if not found or seconds < _LEAST_SHARE * sum(row.total for row in evidence.profile.kernels):
        return
    took = sum(row.total for row, _ in found)
    code = _TF32
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
    """Return the seconds that TF32 would save in the timed calls; 0 if none or unknown."""
    machine = next((m for m in evidence.profile.machines if m.device == row.device), None)
    single = row.work.matrix.get("float32")
    if machine is None or not single or not row.calls:
        return 0.0
    if machine.matrix.get(TF32, 0.0) < _CLEARLY * machine.matrix.get("float32", 0.0):
        return 0.0
    matrix = Counter(row.work.matrix) + Counter({TF32: single}) - Counter({"float32": single})
    floor = floor_of(replace(row.work, matrix=dict(matrix)), machine)
    return max(0.0, row.total - floor.seconds * row.calls) if floor is not None else 0.0


# --- operations left to eager ---------------------------------------------------------------------

_OPERATION = ("element_by_element", "atomic_adds", "threads_restarted")
_MOST_OPERATIONS = 3
LEAVE = """
import torch._inductor.decomposition, torch._inductor.lowering
for overload in torch.ops.aten.{name}.overloads():
    operation = getattr(torch.ops.aten.{name}, overload)
    torch._inductor.decomposition.decompositions.pop(operation, None)
    torch._inductor.lowering.make_fallback(operation, warn=False, override_decomp=True)
"""


def _left_to_eager(evidence: RecordedEvidence) -> Iterator[Flip]:
    """Propose eager for operations that a rule names, then for others that are decomposed."""
    named = {finding.compile: finding for finding in evidence.about(*_OPERATION)}
    places = list(kernel_places(evidence.recording, "C++"))
    found: dict[str, Finding | None] = {}
    for place in places:
        finding = named.get(place.compile.id)
        for node in place.operations if finding else ():
            if _is_collected(finding, node.operation, bare_operation(node.aten)):
                found.setdefault(bare_operation(node.aten), finding)
    for place in places:
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
    """Yield operations with an eager kernel that this kernel computes in several steps."""
    nests = loop_nests(recording.payload(place.kernel.payload))
    if max((nest.elements for nest in nests), default=0) < FEWEST:
        return
    steps = Counter(bare_operation(node.aten) for node in place.operations if node.aten)
    for name, count in steps.items():
        if count > 1 and all(node.operation != name for node in place.operations):
            yield name


def _is_collected(finding: Finding | None, operation: str, aten: str) -> bool:
    if finding is None or finding.rule == "threads_restarted":
        return operation in ("var_mean", "sum", "mean", "amax", "prod", "welford")
    return finding.title.startswith(operation) or finding.title.partition(" ")[0] in aten


# Ordered by how likely they are to help.
PROPOSERS: tuple[Proposer, ...] = (
    _fewer_recompiles,
    _no_break_at_item,
    _settings_of_rules,
    _limit_lifted,
    products_in_tf32,
    _tensor_cores,
    _reset_settings,
    static_sizes,
    wrapper_in_cpp,
    _left_to_eager,
    _tuned_products,
    _fewer_guards,
    more_compile_threads,
)


# --- predicted savings ----------------------------------------------------------------------------

_BYTES = re.compile(r"([\d,]+) bytes are moved again")

# The share of the compiled calls' time that is left with a change, and how it was computed.
Prediction = tuple[float | None, str] | None


def predicted(flip: Flip, evidence: RecordedEvidence) -> Flip:
    is_known = flip.predicted is not None or flip.left is not None
    # A change that leaves operations to eager is predicted once eager has been timed.
    if is_known or flip.leaves_to_eager or evidence.profile.is_empty:
        return flip
    if flip.rule == "slow_guards" and (seconds := _in_guards(flip, evidence)) is not None:
        how = "all guards of a call, as often as it is called"
        return replace(flip, predicted=seconds, prediction=how)
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
    # A kernel that does more than the copy remains without the copy.
    rows = [row for row in _concerned(flip, evidence) if len(row.operations) <= 1]
    if not rows:
        return None
    left = evidence.left_without(sum(row.total for row in rows))
    return left, "all the time of the kernels that copy"


def _concerned(flip: Flip, evidence: RecordedEvidence) -> Sequence[KernelProfile]:
    return [row for row in evidence.profile.kernels if flip.source and flip.source in row.places]


def _moved_again(flip: Flip, evidence: RecordedEvidence) -> Prediction:
    size = _BYTES.search(flip.why)
    calls = max((graph.calls for graph in evidence.profile.graphs), default=0)
    if size is None or not evidence.profile.machines or not calls:
        return None
    moved = int(size[1].replace(",", ""))
    seconds = memory_seconds(evidence.profile.machines[0], moved // 2, moved - moved // 2)
    left = None if seconds is None else evidence.left_without(seconds * calls)
    return left, f"{moved:,} bytes at the speed of this machine's memory"


def _between_kernels(flip: Flip, evidence: RecordedEvidence) -> Prediction:
    gaps = sum(graph.times.between.median * graph.calls for graph in evidence.profile.graphs)
    return evidence.left_without(gaps), "all gaps between kernels"


def _at_breaks(flip: Flip, evidence: RecordedEvidence) -> Prediction:
    """Predict for graph breaks: the overhead of a call is shared evenly by its graphs."""
    called = [function for function in evidence.profile.functions if function.kind == FUNCTION]
    graphs = [graph for graph in evidence.profile.graphs if graph.calls]
    if len(called) != 1 or len(graphs) < 2 or not called[0].count:
        return None  # The graphs could not be attributed to functions.
    whole = called[0].seconds.median
    outside = max(0.0, whole - sum(graph.times.seconds.median for graph in graphs))
    if not outside:
        return None
    left = 1 - outside * (1 - 1 / len(graphs)) / whole
    return left, f"what a call takes outside of its graphs, for one graph instead of {len(graphs)}"


def _in_guards(flip: Flip, evidence: RecordedEvidence) -> float | None:
    found = [
        (compile_.guard_microseconds or 0.0) * 1e-6 * evidence.calls_of(compile_.place)
        for compile_ in evidence.recording.compiles
        if compile_.place == flip.source
    ]
    return max(found, default=None)


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
