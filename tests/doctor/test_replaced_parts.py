"""A decomposition or a lowering that the program has put in torch's place is named as its own."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import torch._inductor.config as config
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch._inductor.decomposition import decompositions
from torch._inductor.fx_passes.post_grad import remove_noop_ops
from torch._inductor.ir import Pointwise
from torch._inductor.lowering import lowerings, make_pointwise, register_lowering
from torch._inductor.utils import fresh_cache
from torch._inductor.virtualized import ops
from torch.fx import Graph, Node

from inductoscope.errors import ToolFailure
from inductoscope.inside.repro.replaced_functions import (
    own_passes_text,
    replaced_parts,
    replaced_parts_text,
)
from inductoscope.inside.repro.source_text import SourceParts

HARDSWISH = torch.ops.aten.hardswish.default


def bad(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.mark.parametrize(
    ("kind", "table"), [("decomposition", decompositions), ("lowering", lowerings)]
)
def test_code_of_the_program_is_named_with_its_line(
    kind: str, table: dict[object, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(table, HARDSWISH, bad)
    place = f"bad ({__file__}:{bad.__code__.co_firstlineno})"
    (part,) = replaced_parts([str(HARDSWISH), "aten.relu.default"])
    assert (part.kind, part.operation, part.function) == (kind, "aten.hardswish.default", place)


def test_torchs_own_code_is_not() -> None:
    assert replaced_parts([str(HARDSWISH), "aten.relu.default", "aten.tanh.default"]) == []


SHIFT = 0.25
of_torch = lowerings[torch.ops.aten.atan.default]


def shifted(x: Any) -> Any:
    """Uses a table, a function and the operations of torch, and a value of the program."""

    def inner(index: Any) -> Any:
        return ops.add(x.make_loader()(index), ops.constant(SHIFT, x.get_dtype()))

    made = Pointwise.create(
        device=x.get_device(), dtype=x.get_dtype(), inner_fn=inner, ranges=x.get_size()
    )
    return lowerings[torch.ops.aten.relu.default](of_torch(made))


def test_a_script_puts_it_into_torchs_table_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would not fail, and the verdict on the program were no more than likely."""
    atan = torch.ops.aten.atan.default
    monkeypatch.setitem(lowerings, atan, shifted)
    text, why_not = replaced_parts_text(replaced_parts([str(atan)]))
    assert why_not == ""
    lowerings[atan] = of_torch
    script: dict[str, Any] = {"torch": torch}
    exec(text, script)
    assert lowerings[atan] is script["shifted"] is not shifted
    assert [script[name] for name in ("SHIFT", "ops", "lowerings", "of_torch")] == [
        *(SHIFT, ops, lowerings, of_torch)
    ]


def doubled_sum(a: Any, b: Any, *, alpha: float = 1) -> Any:
    """Knows neither broadcasting nor promotion."""
    load_a, load_b = a.make_loader(), b.make_loader()

    def inner(index: Any) -> Any:
        return ops.add(load_a(index), ops.add(load_b(index), load_b(index)))

    return Pointwise.create(
        device=a.get_device(), dtype=a.get_dtype(), inner_fn=inner, ranges=list(a.get_size())
    )


def test_what_torch_does_around_a_lowering_that_was_registered_is_done_in_the_script(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It promotes the types of the inputs, and broadcasts them: otherwise the script fails so."""
    add = torch.ops.aten.add.Tensor
    of_torch = lowerings[add]
    monkeypatch.setitem(lowerings, add, of_torch)
    register_lowering(add, broadcast=True)(doubled_sum)
    text, why_not = replaced_parts_text(replaced_parts([str(add)]))
    assert why_not == ""
    lowerings[add] = of_torch
    exec(text, {"torch": torch})
    x, y = torch.arange(6, dtype=torch.int32).reshape(2, 3), torch.rand(3)
    torch._dynamo.reset()
    with fresh_cache():
        made = torch.compile(lambda x, y: x + y)(x, y)
    torch.testing.assert_close(made, x + 2 * y)


def off_by_a_little(x: Any) -> Any:
    """Computes one element."""
    return ops.sub(ops.exp(x), ops.constant(1.5, torch.float32))


POINTWISE = {
    "a function": make_pointwise(off_by_a_little),
    "a lambda": make_pointwise(lambda x: ops.sub(ops.exp(x), ops.constant(1.5, torch.float32))),
}


@pytest.mark.parametrize("is_registered", [False, True])
@pytest.mark.parametrize("kind", POINTWISE)
def test_a_function_of_one_element_that_torch_made_a_lowering_of(
    kind: str, is_registered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    expm1 = torch.ops.aten.expm1.default
    of_torch = lowerings[expm1]
    monkeypatch.setitem(lowerings, expm1, POINTWISE[kind])
    if is_registered:
        register_lowering(expm1, broadcast=True)(POINTWISE[kind])
    (part,) = replaced_parts([str(expm1)])
    assert f"({__file__}:" in part.function
    text, why_not = replaced_parts_text([part])
    assert why_not == ""
    lowerings[expm1] = of_torch
    exec(text, {"torch": torch})
    torch._dynamo.reset()
    x = torch.rand(5)
    with fresh_cache():
        made = torch.compile(torch.expm1)(x)
    torch.testing.assert_close(made, x.exp() - 1.5)


def test_a_lambda_is_told_from_others_on_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"same": lambda x: x, "doubled": lambda x: (
        x + x
    ), "halved": lambda x: x / 2}  # fmt: skip
    monkeypatch.setitem(lowerings, HARDSWISH, table["doubled"])
    text, why_not = replaced_parts_text(replaced_parts([str(HARDSWISH)]))
    assert why_not == ""
    assert "def lambda_0(x):\n    return x + x\n" in text
    assert "lowerings[torch.ops.aten.hardswish.default] = lambda_0" in text


def closure(factor: float) -> Any:
    def scaled(x: Any) -> Any:
        return x * factor

    return scaled


FROM_NO_FILE = eval(compile("lambda x: x + x", __file__, "eval"))


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (closure(2.0), "is a closure"),
        (FROM_NO_FILE, "is a lambda whose source cannot be told apart"),
        (make_pointwise(bad, override_fn_when_input_bool=bad), "override_fn_when_input_bool"),
    ],
)
def test_what_a_script_cannot_hold_is_said(
    function: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script may fail without it: it need not be what is wrong."""
    monkeypatch.setitem(lowerings, HARDSWISH, function)
    text, why_not = replaced_parts_text(replaced_parts([str(HARDSWISH)]))
    assert text == ""
    assert why_not.startswith("a script cannot hold ")
    assert why_not.endswith(why)


def test_where_nothing_is_replaced_a_script_needs_nothing() -> None:
    assert replaced_parts_text([]) == ("", "")


# --- functions that stand on their own ------------------------------------------------------------

STEP = 0.5
TOP = float("inf")


def annotated(x: Any, step: float = STEP, *, most: "Unknown" = TOP) -> "Unknown":  # noqa: F821, UP037
    """Annotations may name what only this file knows; what a default was computed from changes."""

    def inner(value: Unknown, /) -> Unknown:  # type: ignore[name-defined]  # noqa: F821
        return value + step

    return inner(x) if x < most else inner_name(x)


def renamed(x: float, by: Any = bad) -> Any:
    return by(x)


inner_name = renamed


def test_a_copied_function_has_no_annotations_and_its_defaults_by_value() -> None:
    parts = SourceParts()
    assert parts.add_function(annotated) == "annotated"
    script: dict[str, Any] = {}
    exec(compile(f"import torch\n{parts.text}", "script.py", "exec", dont_inherit=True), script)
    assert script["annotated"](1.0) == 1.5
    assert script["annotated"](TOP) == TOP
    assert script["inner_name"] is script["renamed"]
    assert "def annotated(x, step=0.5, *, most=float('inf')):" in parts.text
    assert "    def inner(value, /):" in parts.text


def scaled_by(factors: list[float]) -> list[Any]:
    return [lambda x, k=k, *, twice=2: x * k * twice for k in factors]


def test_a_lambda_keeps_the_values_of_its_defaults_and_lambdas_get_different_names() -> None:
    parts = SourceParts()
    names = [parts.add_function(each) for each in scaled_by([3.0, 5.0])]
    assert names == ["lambda_0", "lambda_1"]
    script: dict[str, Any] = {}
    exec(parts.text, script)
    assert [script[name](1) for name in names] == [6.0, 10.0]


def test_two_functions_of_one_name_are_not_mistaken_for_each_other() -> None:
    """A function that a decorator registers is often called `_`."""

    def of_other_name(factor: float) -> Any:
        def bad(x: float) -> float:
            return x * 3

        return bad

    parts = SourceParts()
    names = [parts.add_function(each) for each in (bad, of_other_name(3), bad)]
    assert names == ["bad", "bad_0", "bad"]
    script: dict[str, Any] = {}
    exec(compile(f"import torch\n{parts.text}", "script.py", "exec", dont_inherit=True), script)
    assert [script[name](1.0) for name in names] == [2.0, 3.0, 2.0]


def test_a_default_that_no_script_can_hold_is_said() -> None:
    for_this_call = object()
    with pytest.raises(ToolFailure, match="a default of type object"):
        SourceParts().add_function(lambda x, marker=for_this_call: (x, marker))


def around_torchs(original: Any) -> Any:
    @functools.wraps(original)
    def doubled(x: Any) -> Any:
        return original(original(x))

    return doubled


def test_what_the_program_wraps_around_torchs_lowering_is_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Torch's function inside of it is not what the program has put there."""
    atan = torch.ops.aten.atan.default
    monkeypatch.setitem(lowerings, atan, around_torchs(of_torch))
    (part,) = replaced_parts([str(atan)])
    assert part.function.startswith("around_torchs.doubled (")
    text, why_not = replaced_parts_text([part])
    assert (text, why_not.endswith("is a closure")) == ("", True)


@functools.wraps(of_torch)
def doubled_atan(x: Any) -> Any:
    return of_torch(of_torch(x))


def test_such_a_wrapper_is_put_in_place_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    atan = torch.ops.aten.atan.default
    monkeypatch.setitem(lowerings, atan, doubled_atan)
    text, why_not = replaced_parts_text(replaced_parts([str(atan)]))
    assert why_not == ""
    last = text.splitlines()[-1]
    assert last == "torch._inductor.lowering.lowerings[torch.ops.aten.atan.default] = doubled_atan"


def test_a_copy_of_make_pointwise_is_code_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def make_pointwise(fn: Any, override_return_dtype: Any = None) -> Any:
        def inner(*inputs: Any) -> Any:
            return fn(*inputs), override_return_dtype

        return inner

    monkeypatch.setitem(lowerings, HARDSWISH, make_pointwise(torch.relu))
    (part,) = replaced_parts([str(HARDSWISH)])
    assert "inner (" in part.function


# --- Passes that a program has registered are part of the script that shows what they do ----------


aten = torch.ops.aten
KEPT = 3


def products(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.target is aten.mm.default]


def narrow(graph: Graph) -> None:
    for node in products(graph):
        with graph.inserting_before(node):
            cut = graph.call_function(aten.slice.Tensor, (node.args[0], 1, 0, KEPT))
        node.args = (cut, node.args[1])


class Narrow(CustomGraphPass):
    def __call__(self, graph: Graph) -> None:
        narrow(graph)

    def uuid(self) -> bytes:
        return get_hash_for_files((__file__,))


def test_a_function_is_copied_with_all_that_it_uses() -> None:
    with config.patch(post_grad_custom_post_pass=narrow):
        text = own_passes_text()
    assert text.endswith("torch._inductor.config.post_grad_custom_post_pass = narrow")
    made: dict[str, object] = {"torch": torch}
    with config.patch(post_grad_custom_post_pass=None):
        exec(text, made)
    assert made["KEPT"] == KEPT
    assert made["aten"] is aten


def test_an_object_is_made_anew_from_its_class() -> None:
    with config.patch(joint_custom_pre_pass=Narrow()):
        text = own_passes_text()
    assert text.endswith("torch._inductor.config.joint_custom_pre_pass = Narrow()")
    made: dict[str, object] = {"torch": torch, "__name__": "script"}
    with config.patch(joint_custom_pre_pass=None):
        exec(text, made)
        assert type(config.joint_custom_pre_pass).__name__ == "Narrow"
    assert made["get_hash_for_files"] is get_hash_for_files


def test_what_cannot_be_copied_is_said() -> None:
    class Counting(Narrow):
        def __init__(self) -> None:
            self.count = 0

    with config.patch(joint_custom_pre_pass=Counting()), pytest.raises(ToolFailure, match="state"):
        own_passes_text()


def test_passes_of_torch_are_left_out() -> None:
    torchs = functools.partial(remove_noop_ops)
    with config.patch(post_grad_custom_post_pass=torchs):
        assert own_passes_text() == ""
