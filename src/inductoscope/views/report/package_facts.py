"""What a package accepts of its inputs and the constants that it holds, as facts of a section."""

from __future__ import annotations

from inductoscope.packages.wrapper_text import PackagedConstant, WrapperText
from inductoscope.views.report.package import guard_text
from inductoscope.vocabulary.counting import bytes_text


def facts_of_inputs(package: WrapperText | None) -> dict[str, str]:
    """One fact for each input."""
    guards = package.guards.inputs if package else ()
    return {f"input {each.index}": f"{each.name}: {guard_text(each)}" for each in guards}


def facts_of_package(package: WrapperText | None) -> dict[str, str | list[str]]:
    """Inputs, then constants with their sizes, the largest first."""
    held = sorted(package.constants if package else (), key=lambda each: -each.bytes)
    if not held:
        return {**facts_of_inputs(package)}
    total = bytes_text(sum(each.bytes for each in held))
    return {
        **facts_of_inputs(package),
        "constants": [f"{len(held)} ({total} in all)", *map(constant_text, held)],
    }


def constant_text(constant: PackagedConstant) -> str:
    """A constant in one line."""
    written = f", changed by {', '.join(constant.written_by)}" if constant.written_by else ""
    size = bytes_text(constant.bytes)
    return f"{constant.name} ({constant.dtype} {list(constant.shape)}, {size}{written})"
