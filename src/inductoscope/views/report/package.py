"""An AOTInductor package as data and as text: what is in it, whether it fits this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from inductoscope.model.wrapper_calls import KernelCall
from inductoscope.packages.fitting import Fit
from inductoscope.packages.guards import InputGuard
from inductoscope.packages.package import Package, PackagedModel
from inductoscope.packages.wrapper_text import PackagedConstant
from inductoscope.views.report.recordings import megabytes
from inductoscope.views.report.terminal import BAD, FAINT, GOOD, WARN, Printer
from inductoscope.vocabulary.counting import bytes_text, count_of

View = dict[str, Any]

_MOST_SHOWN = 20
_ANSWERS = {True: "yes", False: "NO", None: "unknown"}
_STYLES = {"fits": GOOD, "does not fit": BAD, "not compiled": WARN}
NOT_EXECUTED = "Nothing in the file was executed."


def package_view(package: Package, fitting: dict[str, tuple[Fit, ...]]) -> View:
    """The file, its models, and what decides whether each can run here."""
    verdict = _verdict(package, fitting)
    return {
        "schema": 1,
        "file": str(package.path),
        "kind": package.kind,
        "bytes": package.bytes,
        "archive_version": package.version,
        "models": [_model(model, fitting.get(model.name, ())) for model in package.models],
        "programs": [asdict(program) for program in package.programs],
        "extra_files": list(package.extra),
        "weights_bytes": package.weights_bytes,
        "verdict": verdict,
        "summary": _summary(package, fitting, verdict),
        "executed": False,
        "run": None,
        "second_run": None,
        "serving": None,
        "findings": [],
    }


def _verdict(package: Package, fitting: dict[str, tuple[Fit, ...]]) -> str:
    if not package.models:
        return "not compiled"
    wrong = any(fit.fits is False for fits in fitting.values() for fit in fits)
    return "does not fit" if wrong else "fits"


def _summary(package: Package, fitting: dict[str, tuple[Fit, ...]], verdict: str) -> str:
    name = package.path.name
    if verdict == "not compiled":
        return (
            f"{name} holds an exported program and no compiled model. Compile it: "
            "torch._inductor.aoti_compile_and_package(torch.export.load(PATH))."
        )
    fits = [fit for found in fitting.values() for fit in found]
    wrong = [fit.what for fit in fits if fit.fits is False]
    if wrong:
        return f"{name} cannot run on this machine: {', '.join(dict.fromkeys(wrong))}."
    unknown = [fit.what for fit in fits if fit.fits is None]
    open_ = f" Only a run can tell: {', '.join(dict.fromkeys(unknown))}." if unknown else ""
    return f"Nothing that {name} states speaks against running it on this machine.{open_}"


def _model(model: PackagedModel, fits: Sequence[Fit]) -> View:
    wrapper, library = model.wrapper, model.library
    return {
        "name": model.name,
        "device": model.device,
        "metadata": dict(model.metadata),
        "inputs": [_input(guard) for guard in wrapper.guards.inputs] if wrapper else [],
        "symbols": [asdict(symbol) for symbol in wrapper.guards.symbols] if wrapper else [],
        "outputs": list(wrapper.outputs) if wrapper else [],
        "constants": [_constant(item, model) for item in wrapper.constants] if wrapper else [],
        "calls": [_call(call, model) for call in wrapper.calls] if wrapper else [],
        "compile_command": wrapper.compile_command if wrapper else "",
        "link_command": wrapper.link_command if wrapper else "",
        "compile_flags": list(wrapper.compile_flags) if wrapper else [],
        "operators": list(model.operators),
        "custom_operators": list(model.custom_operators),
        "kernel_files": list(model.kernel_files),
        "has_wrapper": wrapper is not None,
        "library": {
            "name": model.library_name,
            "bytes": model.library_bytes,
            "machine": library.machine if library else "",
            "needed": list(library.needed) if library else [],
            "versions": list(library.versions) if library else [],
        },
        "fits": [asdict(fit) for fit in fits],
    }


def _input(guard: InputGuard) -> View:
    sizes = [
        {"dimension": at, "least": size.least, "most": size.most}
        for at, size in sorted(guard.sizes.items())
    ]
    return {
        "index": guard.index,
        "name": guard.name,
        "dtype": guard.dtype,
        "device": guard.device,
        "sizes": sizes,
        "strides": {str(at): stride for at, stride in sorted(guard.strides.items())},
        "size_expressions": list(guard.size_expressions),
        "stride_expressions": list(guard.stride_expressions),
        "rank": guard.rank,
        "aligned_to": guard.aligned_to,
        "text": guard_text(guard),
    }


def guard_text(guard: InputGuard) -> str:
    """What an input has to be, in one line."""
    sizes, strides = ", ".join(guard.size_texts), ", ".join(guard.stride_texts)
    words = [guard.dtype, f"[{sizes}]", f"strides [{strides}]"]
    if guard.aligned_to:
        words.append(f"aligned to {guard.aligned_to} bytes")
    return ", ".join(word for word in (*words, guard.device) if word)


def _constant(constant: PackagedConstant, model: PackagedModel) -> View:
    stored = model.weights_files.get(constant.name, "")
    return {**asdict(constant), "file": stored}


def _call(call: KernelCall, model: PackagedModel) -> View:
    name = call.name
    if call.operator is not None:
        known = call.operator < len(model.operators)
        name = model.operators[call.operator] if known else f"operator {call.operator}"
    return {
        "number": call.number,
        "name": name,
        "kind": call.kind,
        "aten": list(call.aten),
        "writes": list(call.writes),
    }


# --- terminal -------------------------------------------------------------------------------------


def print_package(printer: Printer, view: View, *, everything: bool) -> None:
    """What is in the file, then whether it fits."""
    models = f", {count_of(len(view['models']), 'model')}" if view["models"] else ""
    printer.heading(f"{view['file']}: {view['kind']}, {megabytes(view['bytes'])}{models}")
    for program in view["programs"]:
        version = program["torch_version"] or "an unknown torch"
        printer.pair("program", f"{program['name']}, exported with torch {version}")
        printer.pair("operators", ", ".join(program["operators"]) or "none")
    for model in view["models"]:
        printer.line()
        _print_model(printer, model, None if everything else _MOST_SHOWN)
    if not view["run"]:
        printer.line()
        printer.line(view["summary"], style=_STYLES[view["verdict"]])
        printer.line(f"{NOT_EXECUTED}{_next_step(view)}", style=FAINT)


def _next_step(view: View) -> str:
    if view["verdict"] != "fits":
        return ""
    return " To run it, which loads its native code into a child process: --inputs FILE."


def _print_model(printer: Printer, model: View, most: int | None) -> None:
    device = model["device"] or "unknown device"
    printer.heading(f"Model {model['name']} ({device})")
    if not model["has_wrapper"]:
        printer.line(
            "The package does not hold the C++ wrapper, so inputs, constants and kernels are not "
            "known.",
            indent=2,
        )
    for item in model["inputs"]:
        printer.pair(f"input {item['index']}", f"{item['name']}: {item['text']}")
    if model["outputs"]:
        printer.pair("outputs", str(len(model["outputs"])))
    _print_constants(printer, model["constants"], model["device"], most)
    _print_calls(printer, model["calls"], most)
    if model["compile_flags"]:
        plain = [flag for flag in model["compile_flags"] if not flag.startswith("-D")]
        printer.pair("flags", " ".join(plain))
    library = model["library"]
    if library["name"]:
        printer.pair("library", f"{megabytes(library['bytes'])} for {library['machine']}")
        printer.pair("needs", ", ".join(library["needed"]))
    printer.line("Does it fit this machine?", indent=2)
    for fit in model["fits"]:
        printer.pair(fit["what"], f"{_ANSWERS[fit['fits']]}: {fit['text']}", indent=4)


def _print_constants(
    printer: Printer, constants: list[View], device: str, most: int | None
) -> None:
    if not constants:
        return
    total = sum(constant["bytes"] for constant in constants)
    printer.pair("constants", f"{len(constants)}, {bytes_text(total)} in all")
    largest = sorted(constants, key=lambda constant: -constant["bytes"])
    for constant in largest[:most]:
        shape = ", ".join(map(str, constant["shape"]))
        written = (
            f", changed by {', '.join(constant['written_by'])}" if constant["written_by"] else ""
        )
        text = f"{constant['kind']}, {constant['dtype']} [{shape}], {bytes_text(constant['bytes'])}"
        elsewhere = f", on {constant['device']}" if constant["device"] != device else ""
        printer.pair(constant["name"], f"{text}{elsewhere}{written}", indent=4, width=12)
    _print_rest(printer, len(constants), most)


def _print_calls(printer: Printer, calls: list[View], most: int | None) -> None:
    if not calls:
        return
    printer.pair("calls", f"{len(calls)}, in this order")
    for call in calls[:most]:
        computed = f": {', '.join(call['aten'])}" if call["aten"] else ""
        kind = "custom operator " if call["kind"] == "operator" else ""
        printer.pair(str(call["number"]), f"{kind}{call['name']}{computed}", indent=4, width=4)
    _print_rest(printer, len(calls), most)


def _print_rest(printer: Printer, count: int, most: int | None) -> None:
    if most is not None and count > most:
        printer.line(f"... and {count - most} more (--all shows them)", indent=4, style=FAINT)
