"""AOTInductor packages as data and as text: contents, compatibility, runs, serving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from inductoscope.packages import cpp_library
from inductoscope.packages.execution import PackageFinding, RunOutcome
from inductoscope.packages.fitting import Fit
from inductoscope.packages.package import Package, PackagedModel
from inductoscope.torch_facts.package_wrappers import (
    InputGuard,
    KernelCall,
    PackagedConstant,
    WrapperText,
)
from inductoscope.views.report.recordings import megabytes
from inductoscope.views.report.terminal import BAD, FAINT, GOOD, WARN, Printer
from inductoscope.wording import bytes_text, count_of

if TYPE_CHECKING:
    from inductoscope.packages.serving import Serving


def facts_of_inputs(package: WrapperText | None) -> dict[str, str]:
    guards = package.guards.inputs if package else ()
    return {f"input {each.index}": f"{each.name}: {guard_text(each)}" for each in guards}


def facts_of_package(package: WrapperText | None) -> dict[str, str | list[str]]:
    """Return facts on the inputs, then on the constants, largest first."""
    held = sorted(package.constants if package else (), key=lambda each: -each.bytes)
    if not held:
        return {**facts_of_inputs(package)}
    total = bytes_text(sum(each.bytes for each in held))
    return {
        **facts_of_inputs(package),
        "constants": [f"{len(held)} ({total} in all)", *map(constant_text, held)],
    }


def constant_text(constant: PackagedConstant) -> str:
    written = f", changed by {', '.join(constant.written_by)}" if constant.written_by else ""
    size = bytes_text(constant.bytes)
    return f"{constant.name} ({constant.dtype} {list(constant.shape)}, {size}{written})"


# --- An AOTInductor package as data and as text: what is in it, whether it fits this machine ------

View = dict[str, Any]

_MOST_SHOWN = 20
_ANSWERS = {True: "yes", False: "NO", None: "unknown"}
_STYLES = {"fits": GOOD, "does not fit": BAD, "not compiled": WARN}
NOT_EXECUTED = "Nothing in the file was executed."


def package_view(package: Package, fitting: dict[str, tuple[Fit, ...]]) -> View:
    """Return the file, its models, and whether each can run on this machine."""
    verdict, summary = _judged(package, fitting)
    return {
        "file": str(package.path),
        "kind": package.kind,
        "bytes": package.bytes,
        "archive_version": package.version,
        "models": [_model(model, fitting.get(model.name, ())) for model in package.models],
        "programs": [asdict(program) for program in package.programs],
        "extra_files": list(package.extra),
        "weights_bytes": package.weights_bytes,
        "verdict": verdict,
        "summary": summary,
        "executed": False,
        "run": None,
        "second_run": None,
        "serving": None,
        "findings": [],
    }


def _judged(package: Package, fitting: dict[str, tuple[Fit, ...]]) -> tuple[str, str]:
    """Return the verdict on whether a package can run here, and a sentence that says so."""
    name = package.path.name
    if not package.models:
        return "not compiled", (
            f"{name} holds an exported program and no compiled model. Compile it: "
            "torch._inductor.aoti_compile_and_package(torch.export.load(PATH))."
        )
    fits = [fit for found in fitting.values() for fit in found]
    wrong = [fit.what for fit in fits if fit.fits is False]
    if wrong:
        conditions = ", ".join(dict.fromkeys(wrong))
        return "does not fit", f"{name} cannot run on this machine: {conditions}."
    unknown = [fit.what for fit in fits if fit.fits is None]
    open_ = f" Only a run can tell: {', '.join(dict.fromkeys(unknown))}." if unknown else ""
    return (
        "fits",
        f"Nothing that {name} states speaks against running it on this machine.{open_}",
    )


def _model(model: PackagedModel, fits: Sequence[Fit]) -> View:
    wrapper, library = model.wrapper, model.library
    return {
        "name": model.name,
        "device": model.device,
        "metadata": dict(model.metadata),
        "inputs": [_input(guard) for guard in wrapper.guards.inputs] if wrapper else [],
        "symbols": [asdict(symbol) for symbol in wrapper.guards.symbols] if wrapper else [],
        "outputs": list(wrapper.outputs) if wrapper else [],
        "constants": [
            {**asdict(each), "file": model.weights_files.get(each.name, "")}
            for each in (wrapper.constants if wrapper else ())
        ],
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
    strides = {str(at): stride for at, stride in sorted(guard.strides.items())}
    data = {**asdict(guard), "sizes": sizes, "strides": strides}
    del data["has_rank"]
    return {**data, "rank": guard.rank, "text": guard_text(guard)}


def guard_text(guard: InputGuard) -> str:
    sizes, strides = ", ".join(guard.size_texts), ", ".join(guard.stride_texts)
    words = [guard.dtype, f"[{sizes}]", f"strides [{strides}]"]
    if guard.aligned_to:
        words.append(f"aligned to {guard.aligned_to} bytes")
    return ", ".join(word for word in (*words, guard.device) if word)


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
    """Print what is in the package, whether it fits this machine, and how it ran."""
    models = f", {count_of(len(view['models']), 'model')}" if view["models"] else ""
    printer.heading(f"{view['file']}: {view['kind']}, {megabytes(view['bytes'])}{models}")
    for program in view["programs"]:
        version = program["torch_version"] or "an unknown torch"
        printer.pair("program", f"{program['name']}, exported with torch {version}")
        printer.pair("operators", ", ".join(program["operators"]) or "none")
    for model in view["models"]:
        printer.line()
        _print_model(printer, model, None if everything else _MOST_SHOWN)
    if view["run"]:
        _print_run(printer, view)
    else:
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
    plain = [flag for flag in model["compile_flags"] if not flag.startswith("-D")]
    printer.pairs({"flags": " ".join(plain)})
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


# --- How a package ran, as data and as text -------------------------------------------------------


EXECUTED = (
    "The package's native code was executed, in a child process with limits on time and memory, "
    "because --inputs was given."
)
NOT_LOADED = "The package was not loaded: nothing in it was executed."
_NOT_MEASURED = "not measured"
_MOST_LINES = 8
_STATES = {
    "none": "none: every call gives the same",
    "container": "in the container: results depend on its earlier calls; a new one starts over",
    "process": "in the process: results depend on earlier calls, also of another container",
}


def with_runs(
    view: View,
    name: str,
    runs: tuple[RunOutcome, RunOutcome | None],
    serving: Serving | None,
    findings: Sequence[PackageFinding],
) -> View:
    """Add to a package's view how a model ran, with torch's C++ library first, too, and served."""
    run, second = runs
    problems = [finding for finding in findings if finding.is_problem]
    verdict = run.outcome if run.outcome != "runs" else ("problems" if problems else "runs")
    return {
        **view,
        "verdict": verdict,
        "summary": _run_summary(view, verdict, runs, problems),
        "executed": bool(run.outputs) or run.stage in ("load", "run"),
        "run": _run(name, run),
        "second_run": _run(name, second) if second else None,
        "serving": asdict(serving) if serving else None,
        "findings": [asdict(finding) for finding in findings],
    }


def _run(name: str, run: RunOutcome) -> View:
    data = {"model": name, **asdict(run), "output": run.output[-20_000:]}
    del data["measured"]
    return data


def _run_summary(
    view: View,
    verdict: str,
    runs: tuple[RunOutcome, RunOutcome | None],
    problems: Sequence[PackageFinding],
) -> str:
    name = view["file"].rpartition("/")[2]
    run, second = runs
    if verdict == "runs":
        return f"{name} runs here: {count_of(len(run.outputs), 'output')}."
    if verdict == "broken guards":
        harmful = [item for item in run.broken_guards if not item.is_harmless]
        count = count_of(len(harmful), "demand")
        return f"{name} is given inputs that break {count} of the package."
    if verdict == "problems":
        return f"{name} runs, but {count_of(len(problems), 'problem')} showed."
    runs_then = second is not None and second.outcome == "runs"
    after = f"; with {cpp_library.NAME} loaded first it runs" if runs_then else ""
    return f"{name} {verdict} {run.where}{after}."


def _print_run(printer: Printer, view: View) -> None:
    run = view["run"]
    printer.line()
    printer.heading(f"Run of {run['model']}")
    for number, item in enumerate(run["inputs"]):
        printer.pair(f"input {number}", _tensor(item) + f", strides {list(item['strides'])}")
    _print_outputs(printer, run)
    second = view["second_run"]
    if second and second["outcome"] == "runs":
        printer.line()
        printer.heading(f"Run of {run['model']} with {cpp_library.NAME} loaded first")
        _print_outputs(printer, second)
    if view["serving"]:
        _print_serving(printer, view["serving"])
    if second:
        printer.line()
    for finding in view["findings"]:
        style = BAD if finding["is_problem"] else WARN
        printer.line(finding["text"], style=style, indent=2)
        printer.line(f"{finding['confidence']}: {finding['established']}", style=FAINT, indent=4)
    if run["outcome"] in ("dies", "does not end"):
        _print_said(printer, run["output"])
    printer.line()
    printer.line(view["summary"], style=GOOD if view["verdict"] == "runs" else BAD)
    printer.line(EXECUTED if view["executed"] else NOT_LOADED, style=FAINT)


def _print_outputs(printer: Printer, run: View) -> None:
    for number, item in enumerate(run["outputs"]):
        printer.pair(f"output {number}", _tensor(item) + _range(item))


def _print_serving(printer: Printer, serving: View) -> None:
    printer.line()
    printer.heading(f"Served: {serving['calls']} calls, {serving['threads']} threads")
    if serving["not_in_cpp"]:
        printer.line(f"Not called from C++: {serving['not_in_cpp']}.", indent=2, style=WARN)
    if serving["is_deterministic"] is False:
        printer.line(
            "Calls one after another give other results with another seed: it draws random "
            "numbers, so calls from several threads cannot be compared.",
            indent=2,
            style=WARN,
        )
    if serving["state"] in _STATES:
        printer.pair("state", _STATES[serving["state"]])
    for way in serving["ways"]:
        lost = f", {way['unmatched']} of {way['calls']} results differ" if way["unmatched"] else ""
        printer.pair(way["name"], f"{way['outcome']}{lost}: {way['text']}")
    different = serving["streams_different"]
    if different is not None:
        outcome = f"interferes, {different} results differ" if different else "agrees"
        printer.pair("streams", f"{outcome}: calls on several streams of the GPU")
    grown = serving["growth"] or serving["growth_in_python"]
    if not serving["growth_measured"]:
        printer.pair("growth", _NOT_MEASURED)
    elif not grown:
        printer.pair("growth", "none: memory, open files and threads stay level")
    _print_loading(printer, serving)


def _print_loading(printer: Printer, serving: View) -> None:
    """Print the memory that leaks if the package is loaded for every request."""
    left = serving["left_by_loading"]
    if not left:
        level = "level: a container that is deleted leaves nothing behind"
        printer.pair("loading", _NOT_MEASURED if left is None else level)
        return
    text = f"every load leaves {left:,} bytes in the process, also when it is deleted"
    if serving["still_mapped"]:
        text += ": torch's loader keeps the library loaded"
    printer.pair("loading", f"{text}. Load it once, not for every request")


def _print_said(printer: Printer, text: str) -> None:
    lines = [line for line in text.splitlines() if line.strip() and "frame #" not in line]
    if lines:
        printer.line("what it printed", indent=2)
        printer.code("\n".join(lines[-_MOST_LINES:]), indent=4)


def _tensor(item: View) -> str:
    return f"{item['dtype']} {list(item['sizes'])}, {item['device']}"


def _range(item: View) -> str:
    text = "" if item["least"] is None else f", {item['least']:.6g} to {item['most']:.6g}"
    for key, noun in (("nan", "NaN"), ("infinite", "infinity")):
        text += f", {item[key]} {noun}" if item[key] else ""
    return text
