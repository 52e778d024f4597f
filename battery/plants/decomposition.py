"""Entries of the decomposition table replaced."""

from __future__ import annotations

from battery.fault import Recipe


def _replace(operation: str, kind: str, overload: str, signature: str, body: str) -> Recipe:
    """`overload` is decomposed by a function of this signature and body."""
    name = overload.partition(".")[0]
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return Recipe(
        operation=operation,
        stage="decomposition",
        kind=kind,
        module="torch._inductor.decomposition",
        body=f"def {name}({signature}):\n{lines}\n\nm.decompositions[aten.{overload}] = {name}",
        culprits=(name, name.strip("_")),
        templates=("training",) if name.endswith("_backward") else (),
        detail="backward" if name.endswith("_backward") else "",
    )


_LAYER_NORM = "x, shape, weight, bias, eps"

RECIPES = (
    _replace(
        "gelu",
        "wrong-result",
        "gelu.default",
        'x, approximate="none"',
        "return 0.5 * x * (1.0 + torch.tanh(0.5 * (x + 0.3 * x * x * x)))",
    ),
    _replace(
        "gelu",
        "wrong-result",
        "gelu_backward.default",
        'grad, x, approximate="none"',
        "return grad * torch.sigmoid(0.5 * x)",
    ),
    _replace(
        "leaky_relu",
        "wrong-result",
        "leaky_relu.default",
        "x, negative_slope=0.01",
        "return torch.where(x > 0, x, x * 0.01)",
    ),
    _replace(
        "softmax",
        "wrong-result",
        "_softmax.default",
        "x, dim, half_to_float",
        "e = torch.exp(x - torch.amax(x, dim=0, keepdim=True))\n"
        "return e / torch.sum(e, dim=0, keepdim=True)",
    ),
    _replace(
        "flip",
        "wrong-result",
        "flip.default",
        "x, dims",
        "return torch.roll(x, 1, dims)",
    ),
    _replace(
        "vector_norm",
        "wrong-result",
        "linalg_vector_norm.default",
        "x, ord=2, dim=None, keepdim=False, dtype=None",
        "return torch.sum(torch.abs(x), dim, keepdim=keepdim)",
    ),
    _replace(
        "layer_norm",
        "wrong-result",
        "native_layer_norm.default",
        _LAYER_NORM,
        "mean = x.mean(-1, keepdim=True)\n"
        "scale = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)\n"
        "return (x - mean) * scale, mean, scale",
    ),
    _replace(
        "offset_layer_norm",
        "nan",
        "native_layer_norm.default",
        _LAYER_NORM,
        "mean = x.mean(-1, keepdim=True)\n"
        "scale = 1.0 / torch.sqrt((x * x).mean(-1, keepdim=True) - mean * mean * 1.0001)\n"
        "return (x - mean) * scale, mean, scale",
    ),
    _replace(
        "sharp_softmax",
        "nan",
        "_softmax.default",
        "x, dim, half_to_float",
        "e = torch.exp(x)\nreturn e / torch.sum(e, dim=dim, keepdim=True)",
    ),
    _replace(
        "log_softmax",
        "nan",
        "_log_softmax.default",
        "x, dim, half_to_float",
        "e = torch.exp(x)\nreturn torch.log(e / torch.sum(e, dim=dim, keepdim=True))",
    ),
    _replace(
        "elu",
        "crash",
        "elu.default",
        "x, alpha=1.0, scale=1.0, input_scale=1.0",
        "batch, depth, height, width = x.shape\nreturn x",
    ),
    _replace(
        "log_softmax",
        "crash",
        "_log_softmax.default",
        "x, dim, half_to_float",
        "return x - torch.logsumexp(x, dims=[dim])",
    ),
    _replace(
        "leaky_relu",
        "hang",
        "leaky_relu.default",
        "x, negative_slope=0.01",
        "while x.dim() < 4:\n    x = x + 0\nreturn x",
    ),
)
