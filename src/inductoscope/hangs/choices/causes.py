"""Possible reasons why a configuration overloads a compiler: rules on configuration and kernel.

A rule is a guess with a reason. It is reported only if it fits the observations: it holds for stuck
configurations, and for few that finished. The best fit comes first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from inductoscope.hangs.choices.contrast import ChoiceCondition
from inductoscope.hangs.choices.suspects import Suspect

_MANY_LINES = 400
_LARGE_TILE = 256 * 128
_LEAST_FIT = 0.25


@dataclass(frozen=True)
class Rule:
    """A possible cause. `find_evidence` returns its evidence in a suspect with certain numbers."""

    name: str
    title: str
    reason: str
    advice: str
    # The values of a configuration that are its subject.
    looks_at: tuple[str, ...]
    find_evidence: Callable[..., str]
    # The kind of device it applies to; "" for any.
    device: str = ""
    # Numbers of the configuration that the rule requires.
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cause:
    rule: Rule
    evidence: str
    fit: float
    stuck: int
    of_stuck: int
    finished: int
    of_finished: int


def likely_causes(
    stuck: Sequence[Suspect],
    finished: Sequence[Suspect],
    conditions: Sequence[ChoiceCondition] = (),
) -> list[Cause]:
    found = [cause for rule in RULES if (cause := _judge(rule, stuck, finished, conditions))]
    return sorted(found, key=lambda cause: -cause.fit)


def _judge(
    rule: Rule,
    stuck: Sequence[Suspect],
    finished: Sequence[Suspect],
    conditions: Sequence[ChoiceCondition],
) -> Cause | None:
    found = [_evidence(rule, suspect) for suspect in stuck]
    seen = [text for text in found if text]
    others = sum(bool(_evidence(rule, suspect)) for suspect in finished)
    if not seen:
        return None
    share = len(seen) / len(stuck) - (others / len(finished) if finished else 0.0)
    names = {name for condition in conditions[:1] for name in condition.names}
    fit = share + (0.5 if names & set(rule.looks_at) else 0.0)
    if fit < _LEAST_FIT:
        return None
    return Cause(rule, seen[0], round(fit, 2), len(seen), len(stuck), others, len(finished))


def _evidence(rule: Rule, suspect: Suspect) -> str:
    if rule.device not in ("", suspect.device):
        return ""
    numbers = [suspect.number(name) for name in rule.needs]
    # The rule must not divide by zero.
    return rule.find_evidence(suspect, *numbers) if all(numbers) else ""


# --- what the rules look for: each is given a suspect and the numbers that its rule needs ---------


def _accumulator_registers(suspect: Suspect, m: float, n: float, warps: float) -> str:
    accumulators = m * n / (suspect.lanes * warps)
    limit = suspect.registers
    if limit is None or accumulators < limit / 2:
        return ""
    return f"{accumulators:.0f} accumulators per thread, of {limit} registers"


def _large_block(suspect: Suspect) -> str:
    names = [name for name in suspect.configuration if "BLOCK" in name]
    product = math.prod(max(suspect.number(name) or 1.0, 1.0) for name in names)
    return f"{'·'.join(names)} = {product:.0f}" if product >= _LARGE_TILE * 32 else ""


def _uneven_blocks(suspect: Suspect, m: float, n: float) -> str:
    return f"BLOCK_M={m:.0f} with BLOCK_N={n:.0f}" if max(m, n) / min(m, n) >= 16 else ""


def _odd_block(suspect: Suspect) -> str:
    for name in suspect.configuration:
        size = suspect.number(name) if "BLOCK" in name else None
        if size is not None and size > 0 and int(size) & (int(size) - 1):
            return f"{name}={size:.0f} is not a power of two"
    return ""


def _many_warps(suspect: Suspect, m: float, n: float, warps: float) -> str:
    elements = m * n / (suspect.lanes * warps)
    return f"{warps:.0f} warps share {elements:.0f} elements per thread" if warps >= 8 else ""


def _long_body(suspect: Suspect) -> str:
    lines = suspect.source.count("\n")
    return f"its source has {lines} lines" if lines >= _MANY_LINES else ""


def _shared_memory(suspect: Suspect, m: float, n: float, k: float, stages: float) -> str:
    limit = suspect.shared_limit
    wanted = (m + n) * k * stages * suspect.element_bytes
    if limit is None or wanted <= limit:
        return ""
    return f"about {wanted / 1024:.0f} KiB needed, {limit / 1024:.0f} KiB available"


def _deep_pipeline(suspect: Suspect, stages: float) -> str:
    return f"num_stages={stages:.0f}" if stages >= 5 else ""


def _tma(suspect: Suspect) -> str:
    words = ("tma", "tensor_descriptor", "experimental_descriptor")
    named = next((n for n in suspect.configuration if any(w in n.lower() for w in words)), "")
    in_source = next((word for word in words[1:] if word in suspect.source), "")
    if not named and not in_source:
        return ""
    capability = suspect.compute_capability
    if capability is not None and capability < 90:
        return f"uses TMA ({named or in_source}), which sm_{capability} does not have"
    inner = suspect.number("BLOCK_K")
    if inner is not None and inner * suspect.element_bytes < 32:
        return f"a row of {inner * suspect.element_bytes:.0f} bytes is small for TMA"
    return f"uses TMA ({named or in_source})"


def _warp_specialisation(suspect: Suspect) -> str:
    for name, value in suspect.configuration.items():
        words = ("warp_spec", "consumer_groups", "WARP_SPECIALIZE")
        if any(word.lower() in name.lower() for word in words) and value not in (0, False, "0"):
            return f"{name}={value}"
    return "warp_specialize" if "warp_specialize=True" in suspect.source else ""


def _is_set(name: str) -> Callable[[Suspect], str]:
    return lambda suspect: f"{name} is set" if suspect.configuration.get(name) else ""


def _many_waves(suspect: Suspect, waves: float, warps: float, k: float) -> str:
    if waves < 2 or warps > 2 or k < 64:
        return ""
    return f"waves_per_eu={waves:.0f}, num_warps={warps:.0f}, BLOCK_K={k:.0f}"


def _matrix_instruction(suspect: Suspect, size: float, m: float, n: float) -> str:
    for name, block in (("BLOCK_M", m), ("BLOCK_N", n)):
        if block % size or block < size:
            return f"matrix_instr_nonkdim={size:.0f} does not divide {name}={block:.0f}"
    return ""


def _matrix_registers(suspect: Suspect, waves: float, m: float, n: float, warps: float) -> str:
    limit = suspect.registers if suspect.architecture.startswith("gfx9") else None
    wanted = m * n / (suspect.lanes * warps)
    if limit is None or wanted < limit / waves / 2:
        return ""
    return f"{wanted:.0f} accumulators per lane, {limit / waves:.0f} registers with this many waves"


def _xpu_blocks(suspect: Suspect, m: float, n: float, warps: float) -> str:
    return f"{warps:.0f} warps for {m:.0f} by {n:.0f} elements" if m * n / warps < 64 else ""


RULES: tuple[Rule, ...] = (
    Rule(
        "register-pressure",
        "accumulators in half of a thread's registers or more",
        "The register allocator keeps trying to make the rest fit, and then spills.",
        "Smaller BLOCK_M or BLOCK_N, or more warps.",
        ("BLOCK_M", "BLOCK_N", "num_warps"),
        _accumulator_registers,
        needs=("BLOCK_M", "BLOCK_N", "num_warps"),
    ),
    Rule(
        "large-block",
        "a very large block",
        "Loops over a block are unrolled, so code size and compile time grow with it.",
        "Smaller block sizes.",
        ("BLOCK_M", "BLOCK_N", "BLOCK_K", "XBLOCK", "YBLOCK", "RBLOCK", "R0_BLOCK"),
        _large_block,
    ),
    Rule(
        "uneven-blocks",
        "block sizes of very different size",
        "Converting layouts between such shapes takes long shuffles through shared memory.",
        "BLOCK_M and BLOCK_N closer to each other.",
        ("BLOCK_M", "BLOCK_N"),
        _uneven_blocks,
        needs=("BLOCK_M", "BLOCK_N"),
    ),
    Rule(
        "odd-block",
        "a block size that is not a power of two",
        "Triton's layouts expect powers of two.",
        "The next power of two.",
        ("BLOCK_M", "BLOCK_N", "BLOCK_K"),
        _odd_block,
    ),
    Rule(
        "many-warps",
        "many warps for the tile",
        "Each warp has little work compared with the exchange between warps, and the backend "
        "schedules far more synchronization.",
        "Fewer warps.",
        ("num_warps",),
        _many_warps,
        needs=("BLOCK_M", "BLOCK_N", "num_warps"),
    ),
    Rule(
        "long-body",
        "a very long kernel",
        "The time of several passes grows faster than the number of operations.",
        "Fuse less into it: torch._inductor.config.max_fusion_size.",
        (),
        _long_body,
    ),
    Rule(
        "nvidia-shared-memory",
        "more shared memory than a block can use",
        "Such a kernel cannot be launched; some backends take long to find out.",
        "Fewer stages or smaller blocks.",
        ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_stages"),
        _shared_memory,
        "cuda",
        needs=("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_stages"),
    ),
    Rule(
        "deep-pipeline",
        "a deep pipeline",
        "Each stage adds another copy of the loop body and its loads.",
        "Fewer stages.",
        ("num_stages",),
        _deep_pipeline,
        needs=("num_stages",),
    ),
    Rule(
        "nvidia-tma",
        "TMA",
        "TMA descriptors restrict device, alignment and block size, and take other code paths.",
        "Turn it off: torch._inductor.config.triton.enable_persistent_tma_matmul = False.",
        ("NUM_SMS", "BLOCK_K", "TMA_EXPERIMENTAL_API"),
        _tma,
        "cuda",
    ),
    Rule(
        "nvidia-warp-specialisation",
        "warp specialization",
        "These passes are new, and some have hung on new devices.",
        "Turn it off.",
        ("WARP_SPECIALIZE", "num_consumer_groups", "num_buffers_warp_spec"),
        _warp_specialisation,
        "cuda",
    ),
    Rule(
        "nvidia-cooperative-grid",
        "a cooperative grid",
        "All blocks must fit on the device at once.",
        "Turn it off: torch._inductor.config.triton.cooperative_reductions = False.",
        ("launch_cooperative_grid",),
        _is_set("launch_cooperative_grid"),
        "cuda",
    ),
    Rule(
        "amd-waves",
        "many waves per unit with few warps and a large BLOCK_K",
        "More waves leave fewer registers for each, and a large BLOCK_K needs more.",
        "waves_per_eu=0, or more warps.",
        ("waves_per_eu", "num_warps", "BLOCK_K"),
        _many_waves,
        "hip",
        needs=("waves_per_eu", "num_warps", "BLOCK_K"),
    ),
    Rule(
        "amd-matrix-instruction",
        "a matrix instruction that does not fit the block",
        "The block is not a multiple of the instruction size.",
        "matrix_instr_nonkdim=16, or a larger block.",
        ("matrix_instr_nonkdim", "BLOCK_M", "BLOCK_N"),
        _matrix_instruction,
        "hip",
        needs=("matrix_instr_nonkdim", "BLOCK_M", "BLOCK_N"),
    ),
    Rule(
        "amd-matrix-registers",
        "accumulators in half of a wave's registers or more",
        "MFMA accumulators stay in registers for the whole loop.",
        "Fewer waves or smaller blocks.",
        ("waves_per_eu", "matrix_instr_nonkdim", "BLOCK_M", "BLOCK_N"),
        _matrix_registers,
        "hip",
        needs=("waves_per_eu", "BLOCK_M", "BLOCK_N", "num_warps"),
    ),
    Rule(
        "intel-native-code",
        "native code generation",
        "The whole backend runs at compile time, with its own register allocator.",
        "Turn generate_native_code off.",
        ("generate_native_code",),
        _is_set("generate_native_code"),
        "xpu",
    ),
    Rule(
        "intel-blocks",
        "more threads than the block has work for",
        "Its layouts replicate elements across threads.",
        "Fewer warps.",
        ("num_warps", "BLOCK_M", "BLOCK_N"),
        _xpu_blocks,
        "xpu",
        needs=("BLOCK_M", "BLOCK_N", "num_warps"),
    ),
)
