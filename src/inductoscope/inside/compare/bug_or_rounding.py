"""Bug or rounding: judges a compiled result against eager, float64 and perturbed rounding.

Every difference that is reported states the rule: a value is wrong if it is more than four times
as far from the float64 result as eager, or any run with perturbed rounding, is. Integers, types and
shapes have to be the same. Values that `torch.testing.assert_close` would accept are right without
further question. Strides and shared memory may differ: that is noted, and does not make a result
wrong.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from inductoscope.doctor.failure import LOST_CHECK, WrongValue
from inductoscope.inside.compare.reference import FEW_SAMPLES_FIRST, Case
from inductoscope.inside.compare.values import Outcome
from inductoscope.torch_facts.messages import executed_node, plain_message
from inductoscope.wording import count_of

# How much farther from float64 than eager a compiled result may be.
FACTOR = 4.0
# What any element may differ: so many units in the last place, and as often the largest noise.
FLOOR_STEPS, FLOOR_NOISE = 8, 2

UNINITIALISED = "the result depends on uninitialised memory"
UNREPEATABLE = "eager itself gives another result every time"
WITHIN_ROUNDING = "the differences are within rounding"

# Kinds of difference, the most telling first. The last two are differences in memory layout: they
# change no value, and most programs never notice.
_KINDS = (LOST_CHECK, "structure", "dtype", "shape", "nan", "value", "sharing", "stride")
_IN_MEMORY = ("sharing", "stride")

# Relative and absolute tolerance of torch.testing.assert_close.
CLOSE = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex64: (1.3e-6, 1e-5),
    torch.complex128: (1e-7, 1e-7),
}


@dataclass(frozen=True)
class LostCheck:
    """An error that eager raises and compiled code does not."""

    eager: str
    # The error that compiled code raises instead; empty if it returns.
    compiled: str
    # The node of the graph that raises in eager, if a graph was run.
    node: str


@dataclass(frozen=True)
class OutputDifference:
    kind: str  # One of _KINDS.
    where: str
    text: str
    largest: float = 0.0
    allowed: float = 0.0
    value: WrongValue | None = None
    lost: LostCheck | None = None


@dataclass(frozen=True)
class EagerComparison:
    """The result of a comparison; true if compiled code does what eager does.

    Differences that are `wrong` are the compiler's fault, `explained` ones are not: `reason` says
    why. Differences in strides and shared memory, with which every value still agrees, are `noted`.
    """

    wrong: tuple[OutputDifference, ...] = ()
    explained: tuple[OutputDifference, ...] = ()
    reason: str = ""
    values: int = 0
    # Whether every value equals eager's to the last bit.
    is_exact: bool = field(default=False, compare=False)
    noted: tuple[OutputDifference, ...] = ()

    # The names of `wrong` and `noted` in the results of `inductoscope.check`, which users rely on.
    @property
    def differences(self) -> tuple[OutputDifference, ...]:
        """The differences that are the compiler's fault."""
        return self.wrong

    @property
    def notes(self) -> tuple[OutputDifference, ...]:
        """Differences in strides and shared memory, with which every value still agrees."""
        return self.noted

    @property
    def is_right(self) -> bool:
        """Whether every difference is explained."""
        return not self.wrong

    def __bool__(self) -> bool:
        return not self.wrong

    def __str__(self) -> str:
        if self.wrong:
            return "\n".join(difference.text for difference in self.wrong)
        text = f"compiled and eager agree ({count_of(self.values, 'value')})"
        text = f"{text}; {self.reason}" if self.reason else text
        return "\n".join([text, *(f"note: {note.text}" for note in self.noted)])

    @property
    def is_within_rounding(self) -> bool:
        """Whether there are differences, all explained by rounding."""
        return bool(self.explained) and self.reason not in (UNINITIALISED, UNREPEATABLE)

    @property
    def kind(self) -> str:
        """The most telling kind among the wrong differences."""
        return min((item.kind for item in self.wrong), key=_KINDS.index, default="")

    def counting(self, kinds: Collection[str], where: Collection[str] = ()) -> EagerComparison:
        """Return the comparison with noted differences of these kinds and places made wrong."""
        counted = tuple(
            item for item in self.noted if item.kind in kinds and (not where or item.where in where)
        )
        left = tuple(item for item in self.noted if item not in counted)
        return replace(self, wrong=self.wrong + counted, noted=left)


def judge(case: Case, compiled: Outcome | BaseException) -> EagerComparison:
    """Compare a compiled result with eager's; analyse only the values that are not close.

    If eager raises, compiled code has to raise an error that the same `except` clause catches. An
    error that compiled code alone raises is no result, and is raised as it is.
    """
    if case.eager_error is not None:
        return _comparison_of_errors(case.eager_error, compiled)
    if isinstance(compiled, BaseException):
        raise compiled
    found = comparison_of_metadata(case.eager, compiled)
    if any(item.kind == "structure" for item in found.wrong):
        return found
    pairs = list(zip(case.eager.named_values(), compiled.named_values(), strict=True))
    found = replace(found, values=len(pairs))
    unlike = [n for n, ((_, mine), (_, other)) in enumerate(pairs) if not is_close(mine, other)]
    if not unlike:
        return replace(found, is_exact=_identical(case.eager, compiled))
    if not same_values(case.eager, case.again) and not _repeats_up_to_rounding(case):
        differences = tuple(_plain_difference(*pairs[number]) for number in unlike)
        return replace(found, explained=differences, reason=UNREPEATABLE)
    wrong, explained = list(found.wrong), list[OutputDifference]()
    for number in unlike:
        difference, is_wrong = _judge_value(case, number, *pairs[number])
        (wrong if is_wrong else explained).append(difference)
    reason = _reason(case) if explained else ""
    return replace(found, wrong=tuple(wrong), explained=tuple(explained), reason=reason)


def _repeats_up_to_rounding(case: Case) -> bool:
    """Check whether runs in eager differ by rounding alone, such as GPU atomics in any order.

    If so, they agree in float64, up to the tolerance of a lower precision.
    """
    one, two = case.float64, case.float64_again
    return one is not None and two is not None and same_values(one, two)


def _reason(case: Case) -> str:
    for outcome in case.perturbed() if case.reads_unwritten_memory else ():
        pairs = zip(case.eager.named_values(), outcome.named_values(), strict=False)
        for (_, eager), (_, sample) in pairs:
            if not isinstance(eager, torch.Tensor) or eager.dtype not in CLOSE:
                continue
            if bool((_wide(sample).isnan() & ~_wide(eager).isnan()).any()):
                return UNINITIALISED
    return WITHIN_ROUNDING


# --- errors ---------------------------------------------------------------------------------------


def _comparison_of_errors(eager: Exception, compiled: Outcome | BaseException) -> EagerComparison:
    if isinstance(compiled, type(eager)):
        return EagerComparison(is_exact=True)
    said = described(eager)
    raised = described(compiled) if isinstance(compiled, BaseException) else ""
    does = f"raises {raised}" if raised else "returns"
    lost = LostCheck(said, raised, executed_node(str(eager)))
    text = f"eager raises {said}; compiled code {does}"
    return EagerComparison(wrong=(OutputDifference(LOST_CHECK, "the call", text, lost=lost),))


def described(error: BaseException) -> str:
    """Return type and first line of an error."""
    message = plain_message(str(error)).strip().partition("\n")[0]
    return f"{type(error).__name__}: {message}"[:300]


# --- metadata: number and type of values, shapes, strides, shared memory --------------------------


def comparison_of_metadata(eager: Outcome, compiled: Outcome) -> EagerComparison:
    """Compare all but the values."""
    found = list(_metadata_differences(eager, compiled))
    return EagerComparison(
        wrong=tuple(item for item in found if item.kind not in _IN_MEMORY),
        noted=tuple(item for item in found if item.kind in _IN_MEMORY),
    )


def _metadata_differences(eager: Outcome, compiled: Outcome) -> Iterator[OutputDifference]:
    mine, other = list(eager.named_values()), list(compiled.named_values())
    if [name for name, _ in mine] != [name for name, _ in other]:
        names = {name for name, _ in mine} ^ {name for name, _ in other}
        text = f"only one of eager and compiled has {', '.join(sorted(names)[:4])}"
        yield OutputDifference("structure", "outputs", text)
        return
    for (name, one), (_, two) in zip(mine, other, strict=True):
        kind, text = _difference_of_form(name, one, two)
        if kind:
            yield OutputDifference(kind, name, f"{name} {text}")
    for number, (one, two) in enumerate(zip(eager.shared, compiled.shared, strict=True)):
        if one != two:
            name = f"output {number}"
            text = f"{_names(two)} when compiled, with {_names(one)} in eager"
            yield OutputDifference("sharing", name, f"{name} shares memory with {text}")
    for number, (one, two) in enumerate(zip(eager.same, compiled.same, strict=True)):
        if one != two:
            said = "one object when compiled, two" if two != number else "two when compiled, one"
            text = f"outputs {min(one, two)} and {number} are {said} in eager"
            yield OutputDifference("sharing", f"output {number}", text)


def _names(names: tuple[str, ...]) -> str:
    return " and ".join(names) or "nothing"


def _difference_of_form(name: str, one: Any, two: Any) -> tuple[str, str]:
    """Return kind and text of the first difference in metadata; "" if there is none."""
    if not isinstance(one, torch.Tensor) or not isinstance(two, torch.Tensor):
        if type(one) is type(two):
            return "", ""
        return "structure", f"is a {type(two).__name__}, in eager a {type(one).__name__}"
    if one.dtype != two.dtype:
        return "dtype", f"is {two.dtype}, in eager {one.dtype}"
    if one.shape != two.shape:
        return "shape", f"has shape {tuple(two.shape)}, in eager {tuple(one.shape)}"
    # Gradients may have another memory format: Inductor chooses it for convolutions.
    if not name.startswith("gradient") and strides_that_matter(one) != strides_that_matter(two):
        return "stride", f"has strides {two.stride()}, in eager {one.stride()}"
    return "", ""


def strides_that_matter(value: torch.Tensor) -> list[int]:
    """Return the strides of dimensions with more than one element; others have no effect."""
    if value.layout is not torch.strided or not value.numel():
        return []
    return [step for size, step in zip(value.shape, value.stride(), strict=True) if size > 1]


# --- values ---------------------------------------------------------------------------------------


def is_close(one: Any, two: Any) -> bool:
    """Check whether values are equal, or close by the defaults of `torch.testing.assert_close`."""
    if not isinstance(one, torch.Tensor):
        return bool(one == two or (one != one and two != two))
    if one.shape != two.shape or one.dtype != two.dtype:
        return True  # Reported already, as a difference of metadata.
    if one.is_meta and two.is_meta:
        return True  # Neither has values.
    one, two = _dense(one), _dense(two)
    if one.dtype not in CLOSE:
        return torch.equal(one, two)
    relative, absolute = CLOSE[one.dtype]
    return torch.allclose(two, one, rtol=relative, atol=absolute, equal_nan=True)


def same_values(one: Outcome, two: Outcome) -> bool:
    """Check whether all values of two results are close, without analysing differences."""
    pairs = zip(one.named_values(), two.named_values(), strict=True)
    return all(is_close(mine, other) for (_, mine), (_, other) in pairs)


def _identical(one: Outcome, two: Outcome) -> bool:
    """Check whether the floating-point tensors of both results are equal, apart from NaN."""
    pairs = zip(one.named_values(), two.named_values(), strict=True)
    return all(
        torch.equal(_dense(mine).nan_to_num(), _dense(other).nan_to_num())
        for (_, mine), (_, other) in pairs
        if isinstance(mine, torch.Tensor) and mine.dtype in CLOSE and not mine.is_meta
    )


def _plain_difference(mine: tuple[str, Any], other: tuple[str, Any]) -> OutputDifference:
    (name, one), (_, two) = mine, other
    if not isinstance(one, torch.Tensor):
        return OutputDifference("value", name, f"{name} is {two!r}, in eager {one!r}")
    largest = _finite_max((_wide(two) - _wide(one)).abs())
    return OutputDifference("value", name, f"{name} differs by up to {largest:.4g}", largest)


def _judge_value(
    case: Case, number: int, mine: tuple[str, Any], other: tuple[str, Any]
) -> tuple[OutputDifference, bool]:
    (name, eager), (_, compiled) = mine, other
    if not isinstance(eager, torch.Tensor):
        return _plain_difference(mine, other), True
    reference = _value_of(case.float64, number, eager)
    for count in FEW_SAMPLES_FIRST:
        outcomes = (*case.perturbed(count), case.again)
        samples = [_value_of(outcome, number, eager) for outcome in outcomes]
        known = [sample for sample in samples if sample is not None]
        difference, is_wrong = judge_tensor(name, eager, compiled, reference, known)
        if not is_wrong:
            break
    if is_wrong and eager.dtype not in CLOSE:
        known += _samples_of_integers(case, number, eager, compiled)
        return judge_tensor(name, eager, compiled, reference, known)
    return difference, is_wrong


# The number of samples that is enough if this many elements are wrong and none changes.
_ENOUGH_IF_MANY, _MANY = 5, 8


def _samples_of_integers(
    case: Case, number: int, eager: torch.Tensor, compiled: torch.Tensor
) -> Iterator[torch.Tensor]:
    """Yield more samples, until they explain every element, or clearly never will.

    An integer that rounding upstream decides changes in only a third of the samples.
    """
    left = _dense(eager) != _dense(compiled)
    before = int(left.sum())
    for count, outcome in enumerate(case.perturbed_further(), 1):
        sample = _value_of(outcome, number, eager)
        if sample is None or sample.dtype != eager.dtype:
            return
        yield sample
        left &= _dense(sample) == _dense(eager)
        still = int(left.sum())
        if not still or (count == _ENOUGH_IF_MANY and still == before >= _MANY):
            return


def _value_of(outcome: Outcome | None, number: int, like: torch.Tensor) -> torch.Tensor | None:
    if outcome is None:
        return None
    values = [value for _, value in outcome.named_values()]
    value = values[number] if number < len(values) else None
    return value if isinstance(value, torch.Tensor) and value.shape == like.shape else None


def judge_tensor(
    name: str,
    eager: torch.Tensor,
    compiled: torch.Tensor,
    reference: torch.Tensor | None,
    samples: list[torch.Tensor],
    noise_elsewhere: float = 0.0,
) -> tuple[OutputDifference, bool]:
    """Return the difference between an eager and a compiled tensor, and whether it is wrong.

    If they are parts of larger ones, `noise_elsewhere` is the largest noise in the other parts.
    """
    if eager.dtype not in CLOSE:
        return _judge_integers(name, eager, compiled, [reference, *samples])
    e, c, *others = map(_wide, (eager, compiled, *samples))
    r = e if reference is None else _wide(reference)
    pair = _Pair(name, eager, compiled, None if reference is None else r)
    finite = e.isfinite() & r.isfinite()
    agreed = ~e.isfinite() & _alike(e, r)
    noise = (e - r).abs()
    newly = ~c.isfinite() & finite
    for sample in others:
        newly &= sample.isfinite()
        agreed &= _alike(sample, e)
        noise = noise.maximum((sample - r).abs())
    if bool(newly.any()):
        return pair.not_alike("nan", newly), True
    lost = agreed & ~_alike(c, e)
    if bool(lost.any()):
        return pair.not_alike("value", lost), True
    noise = noise.nan_to_num(torch.inf, torch.inf, torch.inf)
    allowed = FACTOR * noise + _floor(eager.dtype, r, max(_finite_max(noise), noise_elsewhere))
    # Where eager is not finite, finite compiled values may well be the better ones.
    distance = (c - r).abs().where(finite & c.isfinite(), torch.zeros_like(noise))
    if bool((distance > allowed).any()):
        return pair.too_far(distance, allowed), True
    if reference is not None and others and eager.dtype in _LOW_PRECISIONS:
        # A few large errors of rounding must not hide small ones in all elements.
        usual = _usual_noise(r, [e, *others], finite & c.isfinite(), eager.dtype)
        if usual is not None and float(distance.median()) > FACTOR * usual:
            return pair.too_far(distance, torch.full_like(distance, FACTOR * usual)), True
    return pair.within(e, c, allowed, noise), False


# Types of which a unit in the last place is large, and from how many elements on a median counts.
_LOW_PRECISIONS = (torch.bfloat16, torch.float16)
_ENOUGH = 256


def _usual_noise(
    reference: torch.Tensor,
    values: Sequence[torch.Tensor],
    usable: torch.Tensor,
    dtype: torch.dtype,
) -> float | None:
    """Return how far rounding usually moves an element; None of few elements."""
    if int(usable.sum()) < max(_ENOUGH, usable.numel() // 2):
        return None
    r = reference[usable]
    medians = [float((value[usable] - r).abs().nan_to_num().median()) for value in values]
    return max(*medians, torch.finfo(dtype).eps / 2 * float(r.abs().mean()))


def _alike(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    return (one == two) | (one.isnan() & two.isnan())


def _floor(dtype: torch.dtype, reference: torch.Tensor, most_noise: float) -> torch.Tensor:
    """Return the distance allowed in addition to the noise of the element itself."""
    eps = FLOOR_STEPS * torch.finfo(dtype).eps
    # Three samples say more about the whole tensor than about one element.
    return eps * reference.abs().nan_to_num(0.0, 0.0, 0.0) + FLOOR_NOISE * most_noise + 1e-30


def _judge_integers(
    name: str, eager: torch.Tensor, compiled: torch.Tensor, others: list[torch.Tensor | None]
) -> tuple[OutputDifference, bool]:
    """Compare integers, which may differ only where rounding upstream changes them in eager."""
    wrong = _dense(eager) != _dense(compiled)
    for other in others:
        if other is not None and other.dtype == eager.dtype:
            wrong &= _dense(other) == _dense(eager)
    if not bool(wrong.any()):
        text = f"{name} differs where rounding upstream changes it in eager too"
        return OutputDifference("value", name, text), False
    distance = (_wide(compiled) - _wide(eager)).abs()
    place = _largest_at(distance.masked_fill(~wrong, -1.0))
    right = "eager and float64 give" if others[0] is not None else "eager gives"
    largest = _finite_max(distance)
    text = (
        f", {right} {_shown(eager[place])}; {_counted(wrong)} "
        f"(off by up to {largest:.4g}, which rounding does not explain)"
    )
    return _Pair(name, eager, compiled).difference("value", wrong, place, text, largest), True


@dataclass(frozen=True)
class _Pair:
    """An eager tensor and its compiled counterpart, with texts about their difference."""

    name: str
    eager: torch.Tensor
    compiled: torch.Tensor
    reference: torch.Tensor | None = None

    def difference(
        self,
        kind: str,
        wrong: torch.Tensor,
        place: tuple[int, ...],
        text: str,
        largest: float = math.inf,
        allowed: float = 0.0,
    ) -> OutputDifference:
        """Build the difference at the given element; `wrong` marks all wrong elements."""
        shown = _shown(self.compiled[place])
        value = WrongValue(
            self.name,
            place,
            actual=shown,
            expected=_shown(self.eager[place]),
            float64="" if self.reference is None else _shown(self.reference[place]),
            wrong=int(wrong.sum()),
            elements=wrong.numel(),
        )
        index = f"index {list(place)}" if place else "its only element"
        said = f"{self.name} is {shown} at {index}{text}"
        return OutputDifference(kind, self.name, said, largest, allowed, value)

    def not_alike(self, kind: str, wrong: torch.Tensor) -> OutputDifference:
        """Describe elements on which eager and float64 agree, and compiled code does not."""
        place = tuple(int(i) for i in wrong.nonzero()[0])
        expected = self.eager[place]
        agreed = f"finite ({expected.item():.6g})" if kind == "nan" else _shown(expected)
        text = f" where eager and float64 are {agreed}; {int(wrong.sum())} of {wrong.numel()}"
        return replace(self, reference=None).difference(kind, wrong, place, f"{text} elements")

    def too_far(self, distance: torch.Tensor, allowed: torch.Tensor) -> OutputDifference:
        excess = (distance - allowed).nan_to_num(torch.inf, torch.inf, -torch.inf)
        place = _largest_at(excess)
        exact = "" if self.reference is None else f", in float64 {_shown(self.reference[place])}"
        largest, bound = _finite_max(distance), float(allowed[place])
        text = (
            f", in eager {_shown(self.eager[place])}{exact}; {_counted(distance > allowed)} "
            f"(off by up to {largest:.4g}, rounding explains {bound:.4g})"
        )
        return self.difference("value", distance > allowed, place, text, largest, bound)

    def within(
        self, e: torch.Tensor, c: torch.Tensor, allowed: torch.Tensor, noise: torch.Tensor
    ) -> OutputDifference:
        exact = "there is no float64 to compare with; "
        if self.reference is not None:
            mine, other = (_finite_max((v - self.reference).abs()) for v in (e, c))
            exact = f"eager is {mine:.4g} away from float64, compiled {other:.4g}, and "
        largest = _finite_max((c - e).abs())
        text = (
            f"{self.name}: compiled and eager differ by up to {largest:.4g}; {exact}"
            f"rounding alone moves the result by up to {_finite_max(noise):.4g}"
        )
        return OutputDifference("value", self.name, text, largest, _finite_max(allowed))


def _counted(wrong: torch.Tensor) -> str:
    number = int(wrong.sum())
    return f"{number} of {wrong.numel()} elements {'is' if number == 1 else 'are'} wrong"


def _shown(value: torch.Tensor) -> str:
    item = value.item()
    return f"{item:.7g}" if isinstance(item, float) else str(item)


def _largest_at(value: torch.Tensor) -> tuple[int, ...]:
    return tuple(int(i) for i in torch.unravel_index(value.argmax(), value.shape))


def _dense(value: torch.Tensor) -> torch.Tensor:
    return value if value.layout is torch.strided else value.to_dense()


def _wide(value: torch.Tensor) -> torch.Tensor:
    value = _dense(value)
    return value.to(torch.complex128) if value.dtype.is_complex else value.double()


def _finite_max(value: torch.Tensor) -> float:
    finite = value[value.isfinite()]
    return float(finite.max()) if finite.numel() else 0.0
