"""Grouping of operations that compiled to the same code but for names, as in repeated layers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

View = dict[str, Any]

# An identifier after a full stop, or before a parenthesis, is an operation or attribute.
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*\b(?!\()")
# Names with a number: buffers, nodes, copies of an operation, variables and pointers of a kernel.
_NUMBERED = re.compile(
    r"(?:buf|op|tmp|tmp_acc|arg|primals_|tangents_|in_ptr|out_ptr|in_out_ptr)\d+(?:_\w+)?"
    r"|[A-Za-z_]\w*_\d+"
)
_CONSTANTS = frozenset(("True", "False", "None", "inf", "nan"))


def alike(operations: list[View]) -> list[list[int]]:
    """Group operations that differ only in names; return their positions."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for number, operation in enumerate(operations):
        groups.setdefault(tuple(_without_names(operation)), []).append(number)
    return list(groups.values())


def _without_names(operation: View) -> Iterator[str]:
    """Yield each level as text, with every name replaced by its order of occurrence."""
    known = set(_names(operation))
    yield operation["graph"]
    yield str(operation["python"])
    yield str(operation["made_from"])
    ir = operation["ir"] or {}
    lines = [[line["text"].strip() for line in one["lines"]] for one in operation["kernel"]]
    nodes = [_in_no_order(node) for node in operation["scheduler"]]
    levels = [operation[name] for name in ("dynamo", "aten", "fused_group")]
    for level in (*levels, nodes, ir.get("nodes"), operation["loop_body"], lines):
        yield _renamed(json.dumps(level, default=str), known)


def _in_no_order(node: View) -> View:
    """Normalize a scheduler node: its reads and users are ordered by name, so only count them."""
    users = [user for names in node["users"].values() for user in names]
    return {**node, "reads": len(node["reads"]), "users": (len(users), "OUTPUT" in users)}


def _names(operation: View) -> Iterator[str]:
    """Yield the unnumbered names: results, arguments, origins, loop body lines."""
    yield operation["aten"]["name"]
    for item in (*operation["scheduler"], *operation["fused_group"]):
        yield from item["origins"]
    texts = [operation["aten"]["text"], *operation["dynamo"]]
    lines = [line for body in operation["loop_body"] for line in body["lines"]]
    for text in (*texts, *lines):
        result, _, call = text.partition(" = ")
        yield from _WORD.findall(result)
        yield from set(_WORD.findall(call.partition("(")[2])) - _CONSTANTS


def _renamed(text: str, known: set[str]) -> str:
    turns: dict[str, int] = {}

    def rename(match: re.Match[str]) -> str:
        word = match[0]
        if word not in known and not _NUMBERED.fullmatch(word):
            return word
        return f"#{turns.setdefault(word, len(turns))}"

    return _WORD.sub(rename, text)
