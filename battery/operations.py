"""The operations that are embedded into programs, one at a time.

Each is a few lines on `x`, of rows by cols float32, that leave an `x` of the same shape. They may
also read `w` (cols by cols) and `index` (rows by cols, int64 below cols).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Operation:
    lines: tuple[str, ...]
    # Names that a fault can be planted in: fillers that use one of them keep away.
    uses: tuple[str, ...]


def _one(line: str, *uses: str) -> Operation:
    return Operation((line,), uses)


OPERATIONS: dict[str, Operation] = {
    "softmax": _one("x = torch.softmax(x * 3.0, dim=-1)", "softmax", "exp", "amax"),
    "sharp_softmax": _one("x = torch.softmax(x * 300.0, dim=-1)", "softmax", "exp", "amax"),
    "log_softmax": _one("x = torch.log_softmax(x * 300.0, dim=-1)", "softmax", "exp", "log"),
    "layer_norm": _one("x = F.layer_norm(x, (x.shape[-1],))", "layer_norm", "mean", "rsqrt"),
    "offset_layer_norm": _one(
        "x = F.layer_norm(x * 0.01 + 3000.0, (x.shape[-1],))", "layer_norm", "mean", "rsqrt"
    ),
    "flat_layer_norm": Operation(
        (
            "level = x[:, :1].expand(-1, x.shape[-1]) * 0.0 + 2.0",
            "x = x + F.layer_norm(level, (x.shape[-1],))",
        ),
        ("layer_norm", "mean", "rsqrt", "slice"),
    ),
    "gelu": _one("x = F.gelu(x)", "gelu", "erf"),
    "relu": _one("x = F.relu(x - 0.1)", "relu", "maximum"),
    "leaky_relu": _one("x = F.leaky_relu(x, 0.1)", "leaky_relu", "where"),
    "elu": _one("x = F.elu(x)", "elu", "where", "exp"),
    "tanh": _one("x = torch.tanh(x)", "tanh"),
    "sigmoid": _one("x = torch.sigmoid(x)", "sigmoid", "exp"),
    "steep_sigmoid": _one("x = torch.sigmoid(x * 300.0)", "sigmoid", "exp"),
    "clamp": _one("x = x.clamp(-0.5, 0.5)", "clamp", "minimum", "maximum"),
    "where": _one("x = torch.where(x > 0, x, x * 0.25 - 1.0)", "where"),
    "cumsum": _one("x = torch.cumsum(x, dim=-1) * 0.2", "cumsum"),
    "gather": _one("x = x.gather(1, index)", "gather"),
    "index_put": Operation(
        (
            "held = x * 1.5",
            "rows = torch.arange(3)",
            "patched = held.index_put((rows, rows + 1), torch.full((3,), 9.0))",
            "x = patched - 0.5 * held",
        ),
        ("index_put",),
    ),
    "cat": _one("x = torch.cat([x * 2.0, x - 1.0], dim=-1)[:, 3 : 3 + x.shape[-1]]", "cat"),
    "pad": _one("x = F.pad(x, (2, 3), value=0.5)[:, : x.shape[-1]]", "pad"),
    "var": _one("x = x / (x.var(dim=-1, keepdim=True) + 0.5)", "var"),
    "mean": _one("x = x + 2.0 * x.mean(dim=0, keepdim=True)", "mean"),
    "amax": _one("x = x - x.amax(dim=-1, keepdim=True)", "amax"),
    "argmax": _one("x = x + x.argmax(dim=-1, keepdim=True).to(x.dtype)", "argmax"),
    "max_with_indices": Operation(
        ("best = x.max(dim=-1, keepdim=True)", "x = x * best.values + best.indices"),
        ("argmax", "amax"),
    ),
    "matmul": _one("x = x @ w", "matmul"),
    "bmm": _one("x = torch.bmm(x.expand(2, -1, -1), torch.stack([w, w.t()]))[1]", "bmm", "matmul"),
    "conv2d": _one("x = F.conv2d(x[None, None], w[None, None, :3, :3], padding=1)[0, 0]", "conv"),
    "floor_divide": _one("x = x + torch.floor_divide(x * 5.0, 2.0)", "floor_divide", "floor"),
    "remainder": _one("x = torch.remainder(x * 5.0, 3.0)", "remainder"),
    "pow": _one("x = torch.pow(x, 3.0)", "pow"),
    "fraction_pow": _one("x = torch.pow(x.abs() + 0.1, 1.7)", "pow", "abs"),
    "exp": _one("x = torch.exp(x * 0.5)", "exp"),
    "log": _one("x = torch.log(x * x + 1.0)", "log"),
    "sqrt": _one("x = torch.sqrt(x * x + 0.25)", "sqrt"),
    "sqrt_abs": _one("x = torch.sqrt(x.abs())", "sqrt", "abs"),
    "rsqrt": _one("x = x * torch.rsqrt(x * x + 0.5)", "rsqrt"),
    "abs": _one("x = x.abs() - 0.5", "abs"),
    "floor": _one("x = x + torch.floor(x * 3.0)", "floor"),
    "round": _one("x = x + torch.round(x * 3.0)", "round"),
    "sin": _one("x = torch.sin(x * 2.0)", "sin"),
    "cos": _one("x = torch.cos(x * 2.0)", "cos"),
    "erf": _one("x = torch.erf(x)", "erf"),
    "flip": _one("x = torch.flip(x, dims=[1])", "flip"),
    "vector_norm": _one("x = x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)", "norm"),
    "embedding": _one("x = x + F.embedding(index[:, 0], w)", "embedding"),
    "scatter_add": _one("x = x.scatter_add(1, index, x * 2.0)", "scatter_add"),
    "sort": _one("x = torch.sort(x, dim=-1).values", "sort"),
    "topk": Operation(
        ("top = torch.topk(x, 4, dim=-1)", "x = x + top.values.sum(dim=-1, keepdim=True)"),
        ("topk", "sum"),
    ),
    "full": _one("x = x * 2.0 + torch.full((x.shape[-1],), 0.75)", "full"),
    "slice": _one("x = torch.cat([x[:, 2:], x[:, :2]], dim=-1)", "slice", "cat"),
    "bfloat16": _one("x = (x.to(torch.bfloat16) * 2).float()", "bfloat16"),
    "sum": _one("x = x + x.sum(dim=0)", "sum"),
    "row_sum": _one("x = x * 2.0 + x.sum(dim=-1, keepdim=True)", "sum"),
}
