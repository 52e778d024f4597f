"""Which decisions are worth changing: read from a recording, each for a reason.

A function per kind of decision, listed in `PROPOSERS`; the likeliest to help come first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from inductoscope.analysis.fusion.ledger import graph_ledger
from inductoscope.analysis.rules.finding import Finding
from inductoscope.analysis.rules.kept_apart import LIMITS
from inductoscope.analysis.rules.scalar_loop import FEWEST, SIMDLEN
from inductoscope.kernels.cpp_loops import loop_nests
from inductoscope.model.entities import Compile, Recording
from inductoscope.model.fx import bare_operation
from inductoscope.model.kernel_place import KernelPlace, kernel_places
from inductoscope.profiling.advice.evidence import RecordedEvidence
from inductoscope.profiling.advice.flip import Flip
from inductoscope.profiling.advice.measured_flips import (
    fewer_guards,
    more_compile_threads,
    products_in_tf32,
    static_sizes,
    tuned_products,
    wrapper_in_cpp,
)
from inductoscope.profiling.advice.predictions import predicted
from inductoscope.profiling.advice.reset_settings import reset_settings
from inductoscope.profiling.kernels.profile import Profile
from inductoscope.profiling.overruling import overruling_sizes
from inductoscope.vocabulary.counting import count_of
from inductoscope.vocabulary.guard_reasons import read_guard

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
