"""From the fault back to the kernel that is to blame, as text."""

from __future__ import annotations

from typing import Any

from inductoscope.views.report.terminal import BAD, FAINT, Printer

View = dict[str, Any]

# Of a long way, so many steps at each end.
_MOST_AT_EACH_END = 6


def print_trail(printer: Printer, trail: View | None) -> None:
    """One step after the other, the one that is to blame last; nothing without steps."""
    if not trail or not trail["steps"]:
        return
    printer.line()
    printer.heading(f"Trail: from the fault back to its cause, in {trail['graph']}")
    printer.line(trail["fault"], indent=2)
    if not trail["reaches_fault"]:
        printer.line("← (how it gets there is not known)", indent=2, style=FAINT)
    steps = trail["steps"]
    left_out = len(steps) - 2 * _MOST_AT_EACH_END
    for number, step in enumerate(steps):
        if left_out > 0 and _MOST_AT_EACH_END <= number < _MOST_AT_EACH_END + left_out:
            if number == _MOST_AT_EACH_END:
                printer.line(f"← {left_out} more", indent=2, style=FAINT)
            continue
        for buffer in step["buffers"]:
            printer.line(f"← {buffer_text(buffer)}", indent=2)
        is_last = number == len(steps) - 1
        call = f", call {step['call']} of {trail['calls']}" if step["call"] else ""
        printer.line(f"← kernel {step['kernel']}{call}", indent=2, style=BAD if is_last else "")
    _print_cause(printer, trail)


def buffer_text(buffer: View) -> str:
    """A buffer, with the operation and the line that it comes from."""
    about = ", ".join(word for word in (buffer["operation"], buffer["source"]) if word)
    return f"{buffer['name']} ({about})" if about else str(buffer["name"])


def _print_cause(printer: Printer, trail: View) -> None:
    last = trail["steps"][-1]
    if last["buffers"]:
        printer.line(f"here it goes wrong: {trail['wrong']}", indent=4)
    reads = [buffer_text(buffer) for buffer in last["reads"]]
    if reads:
        printer.line(f"it reads {', '.join(reads)}", indent=4)
    if trail["how"]:
        printer.line(trail["how"], indent=4, style=FAINT)
