"""The sentinel on real training: a backward pass that is wrong by a thousandth, and a right one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import inductoscope
from inductoscope.doctor.alarm import read_alarms
from inductoscope.inside.compare.values import same_generators
from inductoscope.inside.doctor.kept_call import in_precision
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.sentinel import sentinel as sentinel_module
from inductoscope.inside.sentinel.bias_test import Likeness, margin_for, signed_errors
from inductoscope.inside.sentinel.shadow import CannotRepeat, Drops, draw_seeds, uniform
from inductoscope.launch.environment import RECORDING_VARIABLE
from support.graphs import captured, numbers
from support.programs import ONE_PROOF, Workplace

TRAIN = """
import torch
torch.manual_seed(0)
layer = torch.nn.Linear(16, 8)
step = torch.compile(lambda x: torch.tanh(layer(x)).square().mean())
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for _ in range(60):
    optimizer.zero_grad()
    loss = step(torch.randn(32, 16))
    loss.backward()
    optimizer.step()
print("result", loss.item(), layer.weight.sum().item(), torch.rand(()).item())
"""

# The gradient of tanh, too large by a thousandth.
WRONG = """
import torch
op = torch.ops.aten.tanh_backward.default
right = m.decompositions[op]
m.decompositions[op] = lambda *args: right(*args) * 1.001
"""

WITHOUT_CACHES = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}


@pytest.mark.spread
def test_a_backward_wrong_by_a_thousandth_raises_an_alarm_and_is_proven(
    workplace: Workplace,
) -> None:
    workplace.write("train.py", TRAIN)
    planted = {**workplace.plant("torch._inductor.decomposition", WRONG), **WITHOUT_CACHES}
    options = ("--sentinel", "--overhead", "100000", "--no-workaround", *ONE_PROOF)
    found = workplace.doctor("train.py", options=options, **planted)
    verdict = found.verdict
    assert "\nresult " in f"\n{found.stdout}"  # The program went on to its end.
    assert found.exit_code == 1
    assert "too large by a factor of about 1.001" in found.stderr
    assert (verdict["verdict"], verdict["confidence"]) == ("wrong-result", "proven")
    assert verdict["stage"] == "decomposition"
    assert verdict["repro"]["verified"]
    said = " ".join(item["what"] for item in verdict["evidence"])
    assert "with a probability of at most 1e-06" in said
    assert "the last of them call 60" not in said  # It stopped at the alarm.


# --- in the program itself ------------------------------------------------------------------------


@contextlib.contextmanager
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    try:
        yield
    finally:
        torch._dynamo.reset()


def test_right_training_with_dropout_in_bfloat16_raises_none_and_is_left_as_it_is(
    tmp_path: Path,
) -> None:
    """Dropout is repeated in eager, so that the very numbers of the compiled call are compared."""

    def train() -> list[float]:
        torch.manual_seed(0)
        layers = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.Dropout(0.25), torch.nn.Linear(16, 4)
        )

        def loss_of(x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return layers(x).float().square().mean()

        step = torch.compile(loss_of)
        for _ in range(30):
            loss = step(torch.randn(16, 8))
            layers.zero_grad()
            loss.backward()
            with torch.no_grad():
                for parameter in layers.parameters():
                    parameter -= 0.01 * parameter.grad
        return [loss.item(), layers[0].weight.sum().item(), torch.rand(()).item()]

    with fresh_compiler():
        plain = train()
    with fresh_compiler(), inductoscope.sentinel(overhead=1e6, output=tmp_path / "watched") as run:
        watched = train()
    assert watched == plain
    assert run.alarms == []
    streams = "".join(path.read_text() for path in (tmp_path / "watched" / "streams").iterdir())
    assert streams.count('"kind":"shadow"') == 2 * 28  # Forward and backward, but the first two.
    assert '"kind":"shadows-ended"' not in streams
    assert '"kind":"hook-error"' not in streams


@pytest.mark.parametrize("is_wrong", [False, True])
def test_a_call_too_large_to_copy_is_repeated_on_the_programs_own_parameters(
    is_wrong: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the gradient of tanh is too large by a thousandth. Nothing is copied here."""
    monkeypatch.setattr(sentinel_module, "has_room_for_copies", lambda values, *_: not values)
    decompositions = torch._inductor.decomposition.decompositions
    operation = torch.ops.aten.tanh_backward.default
    right = decompositions[operation]
    if is_wrong:
        monkeypatch.setitem(decompositions, operation, lambda *args: right(*args) * 1.001)
        monkeypatch.setattr(
            torch._inductor.decomposition, "fast_random_decomps", lambda: decompositions
        )
    torch.manual_seed(0)
    layer = torch.nn.Linear(16, 8)
    sentinel = inductoscope.sentinel(overhead=1e6, output=tmp_path / "watched")
    no_caches = torch._inductor.config.patch(force_disable_caches=True)
    with fresh_compiler(), no_caches, sentinel as run:
        step = torch.compile(lambda x: torch.tanh(layer(x)).square().mean())
        for _ in range(60):
            layer.zero_grad()
            step(torch.randn(32, 16)).backward()
            with torch.no_grad():
                for parameter in layer.parameters():
                    parameter -= 0.1 * parameter.grad
    assert [alarm.value.partition(" of input")[0] for alarm in run.alarms] == (
        ["gradient"] if is_wrong else []
    )
    streams = "".join(path.read_text() for path in (tmp_path / "watched" / "streams").iterdir())
    assert streams.count('"kind":"shadow"') >= (20 if is_wrong else 2 * 58)
    assert '"kind":"shadows-ended"' not in streams
    assert '"kind":"hook-error"' not in streams


@pytest.fixture(params=[False, True], ids=["by itself", "in a recorded program"])
def sentinel(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> contextlib.AbstractContextManager[inductoscope.LiveSentinel]:
    """The sentinel, in a program that runs by itself, or under `inductoscope run`."""
    folder = tmp_path / "watched"
    if not request.param:
        return inductoscope.sentinel(overhead=1e6, output=folder)
    monkeypatch.setenv(RECORDING_VARIABLE, str(folder))

    @contextlib.contextmanager
    def inside() -> Iterator[inductoscope.LiveSentinel]:
        with inductoscope.record(output=folder), inductoscope.sentinel(overhead=1e6) as run:
            yield run

    return inside()


def test_what_a_compiled_optimizer_writes_is_tested_too(
    sentinel: contextlib.AbstractContextManager[inductoscope.LiveSentinel], tmp_path: Path
) -> None:
    weight = torch.randn(64)

    @torch.compile
    def update(gradient: torch.Tensor) -> None:
        weight.sub_(gradient * 1e-3)

    with fresh_compiler(), sentinel as run:
        for _ in range(8):
            update(torch.randn(64))
    assert run.alarms == []
    streams = "".join(path.read_text() for path in (tmp_path / "watched" / "streams").iterdir())
    assert '"values":1' in streams


# --- the parts ------------------------------------------------------------------------------------


def test_inductors_random_numbers_are_computed_as_its_kernels_do() -> None:
    value = torch.ones(40, 50)
    dropped = torch.compile(lambda x: torch.nn.functional.dropout(x, 0.3))
    with fresh_compiler(), same_generators():
        torch.manual_seed(5)
        state = torch.get_rng_state()
        kept = dropped(value) != 0
        torch.set_rng_state(state)
        (seed,) = draw_seeds(1, torch.device("cpu"))
    expected = uniform(seed, value.numel(), torch.device("cpu")).reshape(value.shape) > 0.3
    assert torch.equal(kept, expected)


def test_attention_without_dropout_can_be_repeated_and_random_choices_cannot() -> None:
    """Torch marks attention as an operation that may draw random numbers."""
    q = numbers(1, 1, 3, 4)
    with Drops():
        again = F.scaled_dot_product_attention(q, q, q)
    assert torch.equal(again, F.scaled_dot_product_attention(q, q, q))
    with Drops(), pytest.raises(CannotRepeat, match="bernoulli"):
        torch.bernoulli(q.abs().clamp(max=1.0))


def test_errors_are_shares_of_the_values_own_size() -> None:
    reference = torch.randn(1000, dtype=torch.float64)
    eager = reference.float()
    errors = signed_errors(eager * 1.001, eager, reference, 1e-6)
    assert errors is not None
    assert errors.compiled[0] == pytest.approx(1e-3, rel=1e-3)
    assert abs(errors.eager[0]) < 1e-8
    shifted = signed_errors(eager + 0.01, eager, reference, 1e-6)
    assert shifted is not None
    assert shifted.compiled[1] == pytest.approx(
        0.01 * 1000 / float(reference.abs().sum()), rel=1e-3
    )
    not_finite = signed_errors(eager * torch.inf, eager, reference, 1e-6)
    assert not_finite is not None
    assert not_finite.compiled[0] == float("inf")
    assert signed_errors(eager, eager, torch.zeros(1000), 1e-6) is None


def test_the_margin_goes_by_the_lowest_precision() -> None:
    assert margin_for({torch.float32}) == pytest.approx(64 * 2**-23)
    assert margin_for({torch.float32, torch.bfloat16}) == pytest.approx(2**-7 / 32)
    assert margin_for(set()) < 1e-8


def test_errors_of_the_same_call_are_alike_and_of_another_are_not() -> None:
    reference = torch.randn(4096, dtype=torch.float64)
    same, other = Likeness(), Likeness()
    for _ in range(4):
        same.add(reference.bfloat16(), reference)
        fresh = torch.randn(4096, dtype=torch.float64)
        other.add(fresh.bfloat16(), fresh)
    assert same.value == pytest.approx(1.0)
    assert abs(other.value) < 0.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_kept_call_can_be_examined_in_a_precision_where_rounding_hides_nothing(
    dtype: torch.dtype,
) -> None:
    def low(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ x
        return y.to(torch.bfloat16).exp().bfloat16()

    x = numbers(4, 4)
    candidate = in_precision(Candidate(captured(low, x), (x,)), dtype)
    assert candidate.module(*candidate.inputs)[0].dtype is dtype


def test_a_folder_without_alarms_has_none(tmp_path: Path) -> None:
    assert read_alarms(tmp_path) == []
