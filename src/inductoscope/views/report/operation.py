"""The view of one operation at every level, from the source line to the kernel's lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inductoscope.model.entities import NativeCompile
from inductoscope.model.fx import describe_value
from inductoscope.model.operation_trace import KernelLines, OperationTrace
from inductoscope.model.schedule import ScheduledNode
from inductoscope.views.report.terminal import FAINT, Printer

View = dict[str, Any]


def operation_view(found: OperationTrace) -> View:
    node, place = found.node, found.node.place
    return {
        "graph": found.graph.key,
        "compile": found.compile.id,
        "python": None if place is None else {"source": str(place), "code": place.code},
        "dynamo": [str(item) for item in found.captured],
        "aten": {"name": node.name, "text": str(node), "value": describe_value(node.value)},
        "made_from": node.aten if node.aten and node.aten != _overload(node.target) else None,
        "ir": None if found.lowered is None else _ir(found),
        "scheduler": [scheduled_view(item) for item in found.scheduled],
        "fused_group": [_group(item) for item in found.groups],
        "loop_body": [
            {"node": name, "lines": [step.text for step in steps]}
            for name, steps in found.steps.items()
        ],
        "kernel": [_kernel(item) for item in found.kernels],
        "no_code": found.no_code,
    }


def _overload(target: str) -> str:
    return target.removesuffix(".default") if target.count(".") > 2 else target


def _ir(found: OperationTrace) -> View:
    lowered = found.lowered
    assert lowered is not None
    return {
        "target": lowered.target,
        "fell_back_to_eager": lowered.fallback,
        "seconds": lowered.seconds,
        "nodes": lowered.ir if isinstance(lowered.ir, list) else [lowered.ir],
        "made": [dict(item) for item in lowered.made],
    }


def scheduled_view(node: ScheduledNode) -> View:
    return {
        "name": node.name,
        "class": node.kind,
        "ir": node.ir,
        "loops": node.loops,
        "device": node.device,
        "group": node.group,
        "sizes": [list(size) for size in node.sizes],
        "reads": list(node.reads),
        "writes": list(node.writes),
        "users": {buffer.name: list(buffer.users) for buffer in node.buffers},
        "origins": list(node.origins),
    }


def _group(node: ScheduledNode) -> View:
    return {
        "name": node.name,
        "class": node.kind,
        "nodes": [leaf.name for leaf in node.leaves],
        "origins": list(dict.fromkeys(o for leaf in node.leaves for o in leaf.origins)),
    }


def _kernel(item: KernelLines) -> View:
    return {
        "name": item.kernel.name,
        "language": item.kernel.language,
        "lines": [{"number": number, "text": text} for number, text in item.lines],
        "native": [native_view(native) for native in item.natives],
    }


# The texts of a native compile, which are payloads, are left out.
_NATIVE = (
    *("tool", "kernel", "config", "source", "output", "command", "seconds", "exit_code", "error"),
    *("registers", "spills", "shared", "passes"),
)


def native_view(native: NativeCompile) -> View:
    """Return a native compile as data, without the texts it refers to."""
    return {name: getattr(native, name) for name in _NATIVE}


# --- terminal -------------------------------------------------------------------------------------


def print_operation(printer: Printer, view: View, others: Sequence[str] = ()) -> None:
    """Print a trace level by level; `others` are identical but for names."""
    printer.heading(f"{view['aten']['name']} in graph {view['graph']}")
    if others:
        printer.line(f"×{len(others) + 1}, the same but for names: {', '.join(others)}", indent=2)
    _print_graph_levels(printer, view)
    _print_ir(printer, view["ir"])
    _print_scheduler(printer, view)
    _print_loop_body(printer, view["loop_body"], view["no_code"])
    _print_kernels(printer, view["kernel"])
    printer.line()


def _print_graph_levels(printer: Printer, view: View) -> None:
    python = view["python"]
    _level(printer, "Python", python["source"] if python else "no line is known for this node")
    if python and python["code"]:
        printer.code(python["code"], indent=4)
    if view["dynamo"]:
        _level(printer, "Dynamo graph")
        printer.code("\n".join(view["dynamo"]), indent=4)
    origin = f"made from {view['made_from']}" if view["made_from"] else ""
    _level(printer, "FX / ATen", origin)
    value = f"   # {view['aten']['value']}" if view["aten"]["value"] else ""
    printer.code(view["aten"]["text"] + value, indent=4)


def _level(printer: Printer, name: str, text: str = "") -> None:
    printer.line(f"  {name}" + (f": {text}" if text else ""), style="cyan")


def _print_ir(printer: Printer, ir: View | None) -> None:
    if ir is None:
        _level(printer, "Inductor IR", "not recorded (a cache hit, or it was never lowered)")
        return
    if ir["fell_back_to_eager"]:
        _level(printer, "Inductor IR", "fell back to the eager kernel")
    else:
        _level(printer, "Inductor IR")
    for node in ir["nodes"]:
        if isinstance(node, dict):
            printer.code(ir_text(node), indent=4)


def ir_text(node: View) -> str:
    """Format an IR node as a programmer would write it."""
    name = str(node.get("class", "?"))
    loops = node.get("loops")
    head = f"{node['buffer']} = {name}" if node.get("buffer") else name
    inside = [] if loops in (None, name) else [str(loops)]
    for field in ("dtype", "ranges", "reduction_ranges", "reduction"):
        if node.get(field):
            value = node[field]
            shown = f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)
            inside.append(f"{field}={shown}")
    text = f"{head}({', '.join(inside)})"
    if node.get("inner"):
        text += "\n  " + "\n  ".join(str(node["inner"]).rstrip().splitlines())
    return text


def _print_scheduler(printer: Printer, view: View) -> None:
    if not view["scheduler"]:
        _level(printer, "Scheduler", "no separate node: it was inlined or not recorded")
    else:
        _level(printer, "Scheduler")
    for node in view["scheduler"]:
        printer.line(scheduler_text(node), indent=4)
    for group in view["fused_group"]:
        alone = len(group["nodes"]) == 1
        text = (
            "not fused with another node"
            if alone
            else f"{group['name']} = {' + '.join(group['nodes'])}"
        )
        _level(printer, "Fused group", text)
        printer.line(f"operations inside: {', '.join(group['origins'])}", indent=4)


def scheduler_text(node: View) -> str:
    users = ", ".join(sorted({user for names in node["users"].values() for user in names}))
    inner = node["ir"] if node["loops"] in ("", "NoneType") else f"{node['ir']}({node['loops']})"
    text = (
        f"{node['name']}: {node['class']}({inner}) reads {', '.join(node['reads']) or 'nothing'}, "
        f"writes {', '.join(node['writes'])}"
    )
    if node["sizes"]:
        text += f", sizes {tuple(tuple(size) for size in node['sizes'])}".replace("'", "")
    return text + (f", used by {users}" if users else "")


def _print_loop_body(printer: Printer, bodies: list[View], no_code: str) -> None:
    for body in bodies:
        _level(printer, f"Loop body of {body['node']}")
        printer.code("\n".join(body["lines"]), indent=4)
    if not bodies:
        _level(printer, "Loop body", no_code or "none: a library call, a template, or inlined")


def _print_kernels(printer: Printer, kernels: list[View]) -> None:
    for kernel in kernels:
        _level(printer, f"Kernel ({kernel['language']})", kernel["name"])
        for line in kernel["lines"]:
            printer.code(f"{line['number']:4}  {line['text'].strip()}", indent=2)
        for native in kernel["native"]:
            seconds = "not finished" if native["seconds"] is None else f"{native['seconds']:.2f} s"
            printer.line(f"compiled by {native['tool']} in {seconds}", indent=4, style=FAINT)
            if native["output"]:
                printer.line(native["output"], indent=4, style=FAINT)
