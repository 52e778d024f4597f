"""Guards that failed, as torch reports them: what changed, where it is used, what to change."""

from __future__ import annotations

import re
from dataclasses import dataclass

from inductoscope.torch_facts.frames import Frame, frames_in

# "0/3: k == 0.5     # return x * k  # model.py:24 in scaled": the compile, the condition, its use.
_COMPILE = re.compile(r"^\d+/\d+: ")
_USE = re.compile(r"\s{2,}# .*$")
_SIZE = re.compile(r"tensor '(?P<name>[^']+)' size mismatch at index (?P<dim>\d+)")
_VALUE = re.compile(r"^(?P<name>.+?)\s*==\s*(?P<value>\S.*)$")
_LOCAL = re.compile(r"\bL\['(\w+)'\]")  # How torch before 2.12 spells a name.
_PLAIN_NAME = re.compile(r"[\w.\[\]']+")
_NUMBER = re.compile(r"-?\d[\d.]*(?:e[-+]?\d+)?")


@dataclass(frozen=True)
class FailedGuard:
    """A condition that no longer held, and the code that it comes from."""

    condition: str
    stack: tuple[Frame, ...] = ()
    # Whether it guards a number in a module's attribute, which torch specializes on.
    is_of_module: bool = False

    @property
    def about(self) -> str:
        """The subject of the guard: its condition without the value that changes between calls."""
        value = _VALUE.match(self.condition)
        return value["name"] if value else _NUMBER.sub("…", self.condition)

    @property
    def value(self) -> str:
        """The expected value, as written in the condition; empty if the condition has none."""
        found = _VALUE.match(self.condition)
        return found["value"] if found else ""

    @property
    def is_about_a_value(self) -> bool:
        """Whether a value or size changed, rather than a type or the number of arguments."""
        return _SIZE.search(self.condition) is not None or bool(self.value)

    @property
    def is_number(self) -> bool:
        """Whether a number changed."""
        return _SIZE.search(self.condition) is not None or bool(_NUMBER.fullmatch(self.value))

    @property
    def what_to_change(self) -> str:
        """Advice for this kind of condition."""
        size = _SIZE.search(self.condition)
        if size is not None:
            call = f"torch._dynamo.mark_dynamic({size['name']}, {size['dim']})"
            return (
                f"Before the first call: {call}. "
                "torch.compile(dynamic=True) does it for every size."
            )
        if self.is_of_module:
            name = self.about
            return (
                f"{name} is a number of a module, which torch takes for a constant. Make it a "
                "tensor (register_buffer), or set "
                "torch._dynamo.config.allow_unspec_int_on_nn_module = True."
            )
        value = _VALUE.match(self.condition)
        if value is None or "size" in value["name"] or not _PLAIN_NAME.fullmatch(value["name"]):
            return (
                "What the guard names changes from call to call. If it is a size, call "
                "torch._dynamo.mark_dynamic(tensor, dim) first. If it is a number, pass it as a "
                "tensor. Keep anything else out of the compiled function."
            )
        if _NUMBER.fullmatch(value["value"]):
            return (
                f"{value['name']} changes from call to call: pass it as a tensor. If Python "
                "decides by it, decide outside the compiled function."
            )
        return (
            f"{value['name']} changes from call to call, and torch compiles once for each value: "
            "keep it out of the compiled function."
        )


def read_guard(reason: str) -> FailedGuard:
    """Parse torch's report on a recompile: the failed condition, then the stack of its use."""
    first = next((line.strip() for line in reason.splitlines() if line.strip()), "")
    condition = _USE.sub("", _COMPILE.sub("", first))
    is_of_module = "integer attributes of the nn.Module" in first
    return FailedGuard(_LOCAL.sub(r"\1", condition).strip(), frames_in(reason), is_of_module)
