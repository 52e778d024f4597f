"""`inductoscope kernel`."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from inductoscope.kernels.file import KernelFile
    from inductoscope.kernels.plans import Wish

_FORMS = ("source", "ttir", "ttgir", "llir", "ptx", "sass", "amdgcn")


@click.command("kernel")
@click.option("--name", metavar="NAME", help="Which kernel, where the file holds several.")
@click.option(
    "--target",
    metavar="T",
    help="cuda:80, cuda:90, cuda:100, hip:gfx90a, hip:gfx942.  [default: the file's device]",
)
@click.option(
    "--config", "settings", metavar="K=V,...", help="Block sizes and options to compile with."
)
@click.option("--all-configs", is_flag=True, help="Every configuration that would be tried.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    help="Seconds for one compile.",
)
@click.option(
    "--memory",
    type=click.FloatRange(min=0.1),
    default=16.0,
    show_default=True,
    help="GiB of address space for one compile.",
)
@click.option(
    "--times",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How often to compile.",
)
@click.option(
    "--output", type=click.Path(path_type=Path), help="A folder for TTIR, TTGIR, LLIR, PTX, ..."
)
@click.option("--show", "form", type=click.Choice(_FORMS), help="Also print this form.")
@click.option(
    "--script", type=click.Path(path_type=Path), help="Write the standalone script there."
)
@click.option("--json", "json_path", metavar="PATH", help="Write the result there; - is stdout.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
def command(
    file: Path,
    name: str | None,
    target: str | None,
    settings: str | None,
    all_configs: bool,
    timeout: float,
    memory: float,
    times: int,
    output: Path | None,
    form: str | None,
    script: Path | None,
    json_path: str | None,
    quiet: bool,
) -> None:
    """Compile one generated Triton kernel alone, with a time limit.

    FILE is a kernel file from Inductor's cache, or generated code that holds several. It is read,
    not run; the kernel's function is compiled in a child process, for any target, without a GPU.
    Says whether it compiles alone (a hang then lies elsewhere), in which stage it does not end,
    or why it fails; seconds per stage, registers, spills and shared memory.

    With --show source nothing is compiled: what the file says is shown.

    \b
    inductoscope kernel /tmp/torchinductor_me/xr/cxr2.py --timeout 60
    inductoscope kernel output_code.py --name triton_mm --target hip:gfx942
    inductoscope kernel cxr2.py --config num_warps=8 --show ptx

    Exit code: 0 it compiles, 1 it does not end or fails, 2 unreadable, 3 Triton is missing.
    """
    from inductoscope.kernels.configs import parse_config
    from inductoscope.kernels.file import read_kernel_file
    from inductoscope.kernels.plans import Wish
    from inductoscope.processes.limited import Limits

    # Ended from outside, it ends as with Ctrl-C: nothing is left running.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    kernel = read_kernel_file(file, name)
    wish = Wish(
        target=target,
        settings=parse_config(settings or ""),
        all_configs=all_configs,
        limits=Limits(seconds=timeout, memory_gib=memory),
        times=times,
        output=output,
    )
    if form == "source":
        _show_source(kernel, wish, script, json_path)
        return
    with tempfile.TemporaryDirectory(prefix="inductoscope-kernel-") as folder:
        view = _compiled(kernel, wish, script, Path(folder), form, quiet)
    _hand_over(view, json_path, form)
    sys.exit(0 if view["verdict"] == "compiles alone" else 1)


def _compiled(
    kernel: KernelFile,
    wish: Wish,
    script: Path | None,
    folder: Path,
    form: str | None,
    quiet: bool,
) -> dict[str, Any]:
    """Compile, and gather everything that the folder of the run would take with it."""
    from dataclasses import replace

    from inductoscope.kernels.plans import make_plans, try_plans, write_script
    from inductoscope.views.report.kernel import kernel_view, shown_text
    from inductoscope.views.report.progress import Progress

    kept = wish if wish.output or not form else replace(wish, output=folder)
    with Progress(quiet=quiet) as progress:
        plans = make_plans(kernel, kept, progress.say)
        if script is not None:
            write_script(plans[0], script)
        view = kernel_view(kernel, try_plans(plans, kept, progress.say))
    if form is not None:
        view["shown"] = {"form": form, "text": shown_text(view, form)}
    if kept is not wish:
        for trial in view["trials"]:
            trial["files"] = {}
    return view


def _hand_over(view: dict[str, Any], json_path: str | None, form: str | None) -> None:
    from inductoscope.views.report.kernel import print_kernel, print_shown
    from inductoscope.views.report.terminal import Printer, write_json

    if json_path is not None:
        write_json(view, json_path)
    if json_path == "-":
        return
    printer = Printer(sys.stdout)
    print_kernel(printer, view)
    if form is not None:
        text = view["shown"]["text"] or f"There is no {form} of this kernel for {view['target']}."
        print_shown(printer, form, text)


def _show_source(
    kernel: KernelFile, wish: Wish, script: Path | None, json_path: str | None
) -> None:
    from inductoscope.kernels.plans import make_plans, write_script
    from inductoscope.views.report.kernel import file_view, print_file, print_shown
    from inductoscope.views.report.terminal import Printer, write_json

    if script is not None:
        write_script(make_plans(kernel, wish)[0], script)
    view = file_view(kernel)
    if json_path is not None:
        write_json(view, json_path)
    if json_path == "-":
        return
    printer = Printer(sys.stdout)
    print_file(printer, view)
    printer.line("Not compiled: --show source reads the file only.")
    print_shown(printer, "source", "\n\n".join(d.source for d in kernel.definitions))
