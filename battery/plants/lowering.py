"""Lowerings replaced by others, built of what Inductor has."""

from __future__ import annotations

from battery.fault import Recipe


def _replace(
    operation: str,
    kind: str,
    overload: str,
    signature: str,
    body: str,
    templates: tuple[str, ...] = (),
) -> Recipe:
    """`overload` is lowered by a function of this signature; `original` is the right one."""
    name = overload.partition(".")[0]
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return Recipe(
        operation=operation,
        stage="lowering",
        kind=kind,
        module="torch._inductor.lowering",
        body=f"L = m.lowerings\noriginal = L[aten.{overload}]\n\n"
        f"def {name}({signature}):\n{lines}\n\nL[aten.{overload}] = {name}",
        culprits=(f"aten.{overload}", f"aten.{name}", name),
        templates=templates,
    )


RECIPES = (
    _replace(
        "tanh",
        "wrong-result",
        "tanh.default",
        "x",
        "return original(L[aten.mul.Tensor](x, 0.5))",
    ),
    _replace(
        "cumsum",
        "wrong-result",
        "cumsum.default",
        "x, axis=None, dtype=None",
        "return L[aten.sub.Tensor](original(x, axis, dtype), x)",
    ),
    _replace(
        "gather",
        "wrong-result",
        "gather.default",
        "x, dim, index, sparse_grad=False",
        "return original(x, dim, L[aten.clamp_max.default](index, 4), sparse_grad)",
    ),
    _replace(
        "cat",
        "wrong-result",
        "cat.default",
        "tensors, dim=0",
        "return original(list(reversed(tensors)), dim)",
        ("function", "module", "breaks"),
    ),
    _replace(
        "pad",
        "wrong-result",
        "constant_pad_nd.default",
        "x, padding, fill_value=0",
        "return original(x, padding, 0)",
        ("function", "module", "breaks", "dynamic"),
    ),
    _replace(
        "argmax",
        "wrong-result",
        "argmax.default",
        "x, dim=None, keepdim=False",
        "return L[aten.argmin.default](x, dim, keepdim)",
    ),
    _replace(
        "floor_divide",
        "wrong-result",
        "div.Tensor_mode",
        "a, b, rounding_mode=None",
        'return original(a, b, rounding_mode="trunc")',
        ("function", "module", "breaks", "dynamic"),
    ),
    _replace(
        "embedding",
        "wrong-result",
        "embedding.default",
        "weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False",
        "return original(weight, L[aten.clamp_max.default](indices, 2))",
    ),
    _replace(
        "bmm",
        "wrong-result",
        "bmm.default",
        "a, b, *rest, **more",
        "return original(a, L[aten.permute.default](b, [0, 2, 1]), *rest, **more)",
        ("function", "module", "breaks"),
    ),
    _replace(
        "var",
        "wrong-result",
        "var.correction",
        "x, axis=None, *, correction=None, keepdim=False",
        "return original(x, axis, correction=8, keepdim=keepdim)",
    ),
    _replace(
        "scatter_add",
        "wrong-result",
        "scatter_add.default",
        "x, dim, index, src",
        "return original(x, dim, index, L[aten.mul.Tensor](src, 0.5))",
    ),
    _replace(
        "sort",
        "wrong-result",
        "sort.default",
        "x, dim=-1, descending=False",
        "return original(x, dim=dim, descending=not descending)",
        ("function", "module", "breaks"),
    ),
    _replace(
        "steep_sigmoid",
        "nan",
        "sigmoid.default",
        "x",
        "grown = L[aten.exp.default](x)\n"
        "return L[aten.div.Tensor](grown, L[aten.add.Tensor](grown, 1.0))",
    ),
    _replace(
        "pow",
        "nan",
        "pow.Tensor_Scalar",
        "x, n",
        "return L[aten.exp.default](L[aten.mul.Tensor](L[aten.log.default](x), n))",
        ("function", "module", "breaks", "dynamic"),
    ),
    _replace(
        "index_put",
        "crash",
        "index_put.default",
        "x, indices, values, accumulate=False",
        'assert values.get_size() == x.get_size(), "index_put: shapes differ"\n'
        "return original(x, indices, values, accumulate)",
    ),
    _replace(
        "cumsum",
        "crash",
        "cumsum.default",
        "x, axis=None, dtype=None",
        "return original(x, x.get_size()[axis + 7], dtype)",
    ),
    _replace(
        "sort",
        "hang",
        "sort.default",
        "x, dim=-1, descending=False",
        "while x is not None:\n    x.realize()",
    ),
)
