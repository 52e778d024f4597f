"""Printed graphs and generated code, normalised for comparison; names of operators and modules.

Device numbers depend on the rank, names of process groups on their members, and paths on the host.
None of these counts as a difference.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# A log is not trusted: a word or a run of spaces is tried at its beginning only, since trying it at
# each of its letters takes minutes on a long line.
_COMMENT = re.compile(
    r"^\s*#.*$|(?<!\s)\s+# (?:File:|PlainAOT|SubclassGetAttr|\w+AOT(?:In|Out)put).*$"
)
_DEVICE = re.compile(r"\b(cuda|xpu|hpu|mtia|privateuseone):\d+")
_INDEX = re.compile(r"((?:index|device)=)\d+")
_STREAM = re.compile(
    r"\bstream\d+\b|((?:_DeviceGuard|set_device|get_raw_stream|_cuda_getCurrentRawStream)\()\d+"
)
_PATH = re.compile(r"(?:/[\w.+\-]+){2,}")
_HASHED = re.compile(r"\bc[a-z0-9]{40,}\b")
_LONG_NUMBER = re.compile(r"\b0x[0-9a-f]+\b|\b\d{7,}\b")
_LATENCY = re.compile(r"^Guard latency.*$")

_COLLECTIVE = re.compile(
    r"torch\.ops\.(?:_c10d_functional|c10d_functional|_c10d_functional_autograd|symm_mem|_dtensor)"
    r"\.(?P<name>\w+)(?:\.\w+)?\((?P<arguments>.*)"
)
# The last three differ between sender and receiver by design.
_NOT_SENT = ("wait_tensor", "isend", "irecv", "batch_p2p_ops")
_REDUCTIONS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premulsum")
_QUOTED = re.compile(r"'([^']*)'")
_IN_SIGNATURE = re.compile(r'(?<!\w)(\w+): "([^"]*)"')
_TYPE = re.compile(r"^(?P<dtype>\w+)\[(?P<sizes>[^\]]*)\]")
# The ranks of one call may send pieces of different sizes.
_UNEVEN = ("all_to_all", "alltoall", "allgather", "gather", "scatter")

_TEMPLATE = re.compile(r"async_compile\.triton\('(triton_tem_\w+)', '''(.*?)'''", re.DOTALL)
_CONSTANT = re.compile(r"\b(BLOCK_\w+|GROUP_\w+|SPLIT_\w+)\s*:\s*tl\.constexpr = (\d+)")
_WARPS = re.compile(r"\b(num_stages|num_warps)\s*=\s*(\d+)")
_LIBRARY = re.compile(r"\bextern_kernels\.(\w+)\(")


_COMPARED: dict[tuple[str, bytes], tuple[str, int]] = {}
_MOST_COMPARED = 4096


def digest(lines: list[str]) -> str:
    """Return a short hash of lines of text."""
    return hashlib.sha1("\n".join(lines).encode("utf-8", "replace")).hexdigest()[:16]


def compared_once(text: str, read: Callable[[str], list[str]]) -> tuple[str, int]:
    """Return the digest and number of the lines to compare in a text, from a cache if possible.

    Ranks share most texts, and parsing a text takes longer than hashing it.
    """
    key = (read.__name__, hashlib.sha1(text.encode("utf-8", "replace")).digest())
    found = _COMPARED.get(key)
    if found is None:
        lines = read(text)
        found = _COMPARED[key] = (digest(lines), len(lines))
        if len(_COMPARED) > _MOST_COMPARED:
            del _COMPARED[next(iter(_COMPARED))]
    return found


# --- graphs ---------------------------------------------------------------------------------------


def graph_lines(text: str) -> list[str]:
    """Normalize a printed graph: drop comments, device numbers and names of groups."""
    groups: dict[str, str] = {}
    lines = (_COMMENT.sub("", line).rstrip() for line in text.splitlines())
    return [_plain_devices(_without_group(line, groups)) for line in lines if line.strip()]


def _plain_devices(line: str) -> str:
    return _INDEX.sub(r"\1N", _DEVICE.sub(r"\1", line))


def _without_group(line: str, groups: dict[str, str]) -> str:
    """Number the process groups in order: the names of groups depend on their members."""
    call = _COLLECTIVE.search(line)
    if call is None:
        return line

    def by_turn(found: re.Match[str]) -> str:
        name = found[1]
        if name in _REDUCTIONS:
            return found[0]
        return f"'{groups.setdefault(name, f'group {len(groups)}')}'"

    start = call.start("arguments")
    return line[:start] + _QUOTED.sub(by_turn, line[start:])


def collectives_in(text: str) -> list[tuple[str, str]]:
    """Return the collectives that a graph issues, in order, each with its group's name."""
    types: dict[str, str] = {}
    found = []
    for commented in text.splitlines():
        line = _COMMENT.sub("", commented)
        types.update(_IN_SIGNATURE.findall(line))
        call = _COLLECTIVE.search(line)
        if call is None or call["name"] in _NOT_SENT:
            continue
        arguments = call["arguments"]
        quoted = _QUOTED.findall(arguments)
        reduction = next((word for word in quoted if word in _REDUCTIONS), "")
        groups = [word for word in quoted if word not in _REDUCTIONS]
        sent = [
            _dtype_and_count(types[name]) for name in _first_argument(arguments) if name in types
        ]
        text = collective_text(call["name"], reduction, sent)
        found.append((text, groups[-1] if groups else ""))
    return found


def collective_lines(found: list[tuple[str, str]]) -> list[str]:
    """Return the collectives as text, for comparison between ranks."""
    return [text for text, _ in found]


def orders_in_groups(found: list[tuple[str, str]]) -> dict[str, str]:
    """Return, for each process group, one short hash per collective, in order."""
    words: dict[str, list[str]] = {}
    for text, group in found:
        if group:
            words.setdefault(group, []).append(digest([text])[:6])
    return {group: " ".join(words[group]) for group in sorted(words)}


def _first_argument(arguments: str) -> list[str]:
    """Return the names in the first argument, which may be a list."""
    head = arguments.partition("]")[0] if arguments.startswith("[") else arguments.partition(",")[0]
    return re.findall(r"[A-Za-z_]\w*", head)


def _dtype_and_count(text: str) -> str:
    """Format 'f32[4, 4][4, 1]cpu' as 'f32 x 16'; symbolic sizes stay as written."""
    found = _TYPE.match(text)
    if found is None:
        return text
    sizes = [size.strip() for size in found["sizes"].split(",") if size.strip()]
    if not all(size.isdecimal() for size in sizes):
        return f"{found['dtype']}[{found['sizes']}]"
    return f"{found['dtype']} x {math.prod(map(int, sizes))}"


def collective_text(name: str, reduction: str, sent: list[str]) -> str:
    """Format a collective so that ranks that make the same call get the same text."""
    name = name.rstrip("_").removesuffix("_out")
    what = [] if name.startswith(_UNEVEN) else sent
    return " ".join(filter(None, (name, reduction, ", ".join(what))))


def saved_tensors(text: str) -> list[str]:
    """Return a forward graph's return values: outputs, then tensors saved for backward."""
    start = text.rfind("return (")
    if start < 0:
        return []
    inside = "\n".join(_COMMENT.sub("", line) for line in text[start + 8 :].splitlines())
    return re.findall(r"[A-Za-z_]\w*", inside.partition(")")[0])


# --- generated code, guards -----------------------------------------------------------------------


def code_lines(text: str) -> list[str]:
    """Normalize generated code: drop comments, paths, hashes and device numbers."""
    lines = (_COMMENT.sub("", line).rstrip() for line in text.splitlines())
    return [_plain_code(line) for line in lines if line.strip()]


def _plain_code(line: str) -> str:
    line = _STREAM.sub(lambda found: f"{found[1] or 'stream'}N", _plain_devices(line))
    return _LONG_NUMBER.sub("N", _HASHED.sub("HASH", _PATH.sub("PATH", line)))


def guard_lines(text: str) -> list[str]:
    """Normalize a guard tree: drop addresses, object ids, places and timings."""
    kept = (line.partition("  # ")[0].rstrip() for line in text.splitlines())
    return [_plain_code(line) for line in kept if line.strip() and not _LATENCY.match(line)]


def tuned_choices(code: str) -> list[str]:
    """Return the templates and library calls that autotuning left in generated code."""
    found = []
    for name, source in _TEMPLATE.findall(code):
        constants = dict(_CONSTANT.findall(source)) | dict(_WARPS.findall(source))
        values = " ".join(f"{key}={value}" for key, value in sorted(constants.items()))
        found.append(f"{name} {values}".strip())
    return found + [f"library {name}" for name in _LIBRARY.findall(code)]


# --- Operators by the name that graphs and documentation give them --------------------------------

# The repr of an operator inside a tuple, a list or an exception.
_SHOWN = re.compile(r"<OpOverload(?:Packet)?\(op='([^'<>]+)'(?:, overload='(\w+)')?\)>")


def with_usual_names(text: str) -> str:
    """Replace `<OpOverload(op='aten.cat', overload='default')>` by `aten.cat.default`."""
    if "<OpOverload" not in text:
        return text
    return _SHOWN.sub(lambda shown: ".".join(part for part in shown.groups() if part), text)


# --- Modules of a model: their paths as torch writes them, read into names ------------------------

# The variable that holds the outermost module: L['self'] is a local, G['model'] a global.
_ROOT = re.compile(r"^(?:getattr\()*[LG]\['([^']*)'\]")
# A name below it: .h, ['h'], [0], or the second argument of a getattr.
_NAME = re.compile(r"\.(\w+)|\['([^']+)'\]|\[(\d+)\]|, '([^']+)'\)")


@dataclass(frozen=True)
class Module:
    """A module: its path of names from the root (`h`, `0`, `attn`), and its class."""

    names: tuple[str, ...]
    kind: str

    @property
    def path(self) -> str:
        """The path as a user writes it: h.0.attn; empty for the root module."""
        return ".".join(self.names)


def modules_in(recorded: Any) -> tuple[Module, ...]:
    """Return the modules around a node from recorded data; skip malformed entries."""
    pairs = recorded if isinstance(recorded, list) else []
    return tuple(
        Module(module_names(str(pair[0])), str(pair[1]))
        for pair in pairs
        if isinstance(pair, list) and len(pair) == 2
    )


def module_names(path: str) -> tuple[str, ...]:
    """Split a path as torch writes it: L['self'].h.0, h.0, L['self']._modules['h']."""
    root = _ROOT.match(path)
    # An exported program has plain names, without a variable before them.
    below = path[root.end() :] if root else f".{path}"
    found = ["".join(names) for names in _NAME.findall(below)]
    return tuple(name for name in found if name != "_modules")
