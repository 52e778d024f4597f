"""Workarounds for a compile that never ends: leave out the choices a condition holds for.

Three forms of the same filter: an environment variable, a snippet for the
program, and a patch for the torch that is installed.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import re
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from inductoscope.errors import unwritable
from inductoscope.hangs.choices.contrast import ChoiceCondition, Configuration

VARIABLE = "TORCHINDUCTOR_AUTOTUNE_CHOICE_DESC_REGEX"
PATCHED = "torch/_inductor/template_heuristics/triton.py"

_SNIPPET = """\
# Choices with {text} never finished compiling
# ({counts}).
import ast

import torch._inductor.select_algorithm


def leave_out_stuck_choices(choices):
    kept = [choice for choice in choices if not is_stuck(choice)]
    return kept or choices


def is_stuck(choice):
    parts = str(getattr(choice, "description", "")).split(", ")
    texts = dict(part.split("=", 1) for part in parts if "=" in part)
    try:
        config = {{name: ast.literal_eval(texts[name]) for name in {names}}}
    except (KeyError, ValueError, SyntaxError):
        return False
    return {expression}


torch._inductor.select_algorithm.add_preprocessing_fn(leave_out_stuck_choices)
"""


def snippet_for(condition: ChoiceCondition) -> str:
    """Return code to add to the program before its first compile."""
    return _SNIPPET.format(
        text=condition.text,
        counts=condition.counts,
        names=f"({', '.join(map(repr, condition.names))},)",
        expression=condition.python("config"),
    )


def pattern_for(condition: ChoiceCondition, stuck: Sequence[Configuration]) -> str:
    """Return a pattern for VARIABLE that matches the descriptions of all other choices.

    A pattern cannot express a bound, so it lists the values that were seen.
    """
    seen: dict[str, None] = {}
    for configuration in stuck:
        if condition.holds(configuration):
            seen["".join(_ahead(name, configuration[name]) for name in condition.names)] = None
    return f"^(?!{'|'.join(seen)})" if len(seen) == 1 else f"^(?!(?:{'|'.join(seen)}))"


def assignment_for(condition: ChoiceCondition, stuck: Sequence[Configuration]) -> str:
    """Return the variable assignment, quoted for a shell."""
    return f"{VARIABLE}={shlex.quote(pattern_for(condition, stuck))}"


def _ahead(name: str, value: object) -> str:
    return rf"(?=.*\b{name}={re.escape(repr(value))}(?:,|$))"


# --- the patch ------------------------------------------------------------------------------------

# The names that torch's loop over configurations has for the values that a choice prints.
_IN_TORCH = {
    "BLOCK_M": "conf.block_m",
    "BLOCK_N": "conf.block_n",
    "BLOCK_K": "conf.block_k",
    "GROUP_M": 'getattr(conf, "group_m", None)',
    "num_warps": "num_warps",
    "num_stages": "conf.num_stages",
}
_OF_AMD = ("matrix_instr_nonkdim", "waves_per_eu", "kpack")


def patch_for(condition: ChoiceCondition, source: str, *, device: str = "cuda") -> str:
    """Return a patch against PATCHED, whose text is `source`; "" if no place in it fits."""
    loop = _loop_of(source, "ROCmConfigHeuristic" if device == "hip" else "BaseConfigHeuristic")
    if loop is None:
        return ""
    known = _names_in(loop)
    before = next((item for item in loop.body if _assigned(item) == "key"), None)
    if before is None or not set(condition.names) <= known.keys():
        return ""
    lines = source.splitlines(keepends=True)
    added = textwrap.indent(_filter(condition, known), " " * before.col_offset)
    place = _above_comment(lines, before.lineno - 1)
    new = "".join([*lines[:place], added + "\n", *lines[place:]])
    try:
        ast.parse(new)
    except SyntaxError:
        return ""
    names = (f"a/{PATCHED}", f"b/{PATCHED}")
    return "".join(difflib.unified_diff(lines, new.splitlines(keepends=True), *names))


def _names_in(loop: ast.For) -> dict[str, str]:
    """Return the name that each configuration value has inside the loop."""
    local = {_assigned(item) for item in loop.body}
    known = dict(_IN_TORCH)
    if "num_warps" not in local:
        known["num_warps"] = "conf.num_warps"
    return {**known, **{name: name for name in _OF_AMD if name in local}}


def _filter(condition: ChoiceCondition, known: Mapping[str, str]) -> str:
    expression = condition.python("config")
    for name in condition.names:
        expression = expression.replace(f'config["{name}"]', known[name])
    return (
        f"# Choices with {condition.text} never finished compiling\n"
        f"# ({condition.counts}).\n"
        f"if {expression}:\n    continue\n"
    )


def _above_comment(lines: Sequence[str], number: int) -> int:
    while number and lines[number - 1].lstrip().startswith("#"):
        number -= 1
    return number


def _loop_of(source: str, owner: str) -> ast.For | None:
    """Return the loop in which torch turns configurations into choices."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None
    for class_ in tree.body:
        if isinstance(class_, ast.ClassDef) and class_.name == owner:
            loops = (node for node in ast.walk(class_) if isinstance(node, ast.For))
            return next(filter(_is_over_configurations, loops), None)
    return None


def _is_over_configurations(loop: ast.For) -> bool:
    is_conf = isinstance(loop.target, ast.Name) and loop.target.id == "conf"
    return is_conf and any(_assigned(item) == "key" for item in loop.body)


def _assigned(node: ast.stmt) -> str:
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return targets[0].id if targets and isinstance(targets[0], ast.Name) else ""


# --- All forms of one filter, and the files they are written to -----------------------------------

SNIPPET_FILE, PATCH_FILE = "filter.py", "filter.patch"


@dataclass(frozen=True)
class ChoiceFilter:
    condition: str
    variable: str
    snippet: str
    # Empty if torch is not installed, or its source has no place for the patch.
    patch: str = ""


def filter_for(
    condition: ChoiceCondition, stuck: Sequence[Configuration], *, device: str = "cuda"
) -> ChoiceFilter:
    """Return the filter for a condition; the patch fits the locally installed torch."""
    return ChoiceFilter(
        condition.text,
        assignment_for(condition, stuck),
        snippet_for(condition),
        patch_for(condition, _installed_source(), device=device or "cuda"),
    )


def _installed_source() -> str:
    """Return the text of torch's file without importing it; empty if there is none."""
    try:
        spec = importlib.util.find_spec("torch")
        assert spec is not None
        assert spec.origin is not None
        return (Path(spec.origin).parent.parent / PATCHED).read_text("utf-8")
    except (AssertionError, ImportError, OSError, UnicodeDecodeError, ValueError):
        return ""


def write_filter(choice_filter: ChoiceFilter, folder: Path) -> list[Path]:
    texts = {SNIPPET_FILE: choice_filter.snippet, PATCH_FILE: choice_filter.patch}
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            if text:
                (folder / name).write_text(text, "utf-8")
                written.append(folder / name)
    except OSError as error:
        raise unwritable(folder, error) from error
    return written
