"""`inductoscope kernel`."""

from __future__ import annotations

import signal
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inductoscope.cli.parameters import (
    WordChoice,
    in_a_folder,
    json_option,
    pager_option,
    print_view,
    quiet_option,
)

if TYPE_CHECKING:
    from inductoscope.kernels.alone import KernelRequest
    from inductoscope.torch_facts.triton_kernels import KernelFile

_FORMS = ("source", "ttir", "ttgir", "llir", "ptx", "sass", "amdgcn")


@click.command("kernel")
@click.option("--name", metavar="NAME", help="Choose a kernel if the file holds several.")
@click.option(
    "--target",
    metavar="GPU",
    help="Compile for this GPU, such as cuda:90 or hip:gfx942.  [default: the file's own]",
)
@click.option("--config", "settings", metavar="K=V,...", help="Set block sizes and options.")
@click.option("--all-configs", is_flag=True, help="Compile every configuration Inductor would try.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Stop one compile after this long.",
)
@click.option(
    "--memory",
    type=click.FloatRange(min=0.1),
    default=16.0,
    show_default=True,
    metavar="GIB",
    help="Limit the address space of one compile.",
)
@click.option(
    "--times",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Compile N times.",
)
@click.option(
    "--output", type=click.Path(path_type=Path), help="Keep TTIR, TTGIR, LLIR, PTX, ... here."
)
@click.option("--show", "form", type=WordChoice(_FORMS), help="Print this form too.")
@click.option(
    "--script",
    type=click.Path(path_type=Path),
    callback=in_a_folder,
    help="Write a standalone script for bug reports.",
)
@pager_option
@json_option("the result")
@quiet_option
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
    """Compile one generated Triton kernel on its own.

    FILE is a kernel from Inductor's cache, or generated code that holds several kernels. It is
    read, not executed; only the kernel's function is compiled, in a child process with a time
    limit, for any GPU; you do not need one.

    Reports whether the kernel compiles alone (then the hang is elsewhere), which stage hangs, or
    why it fails, with seconds per stage, registers, spills and shared memory. --show source only
    reads the file.

    \b
    inductoscope kernel /tmp/torchinductor_me/xr/cxr2.py --timeout 60
    inductoscope kernel output_code.py --name triton_mm --target hip:gfx942
    inductoscope kernel cxr2.py --config num_warps=8 --show ptx

    Exit code: 0 it compiles, 1 it hangs or fails, 2 unreadable file, 3 no Triton.
    """
    from inductoscope.kernels.alone import KernelRequest, make_plans, write_script
    from inductoscope.kernels.plan import parse_config
    from inductoscope.processes.children import ChildLimits
    from inductoscope.torch_facts.triton_kernels import read_kernel_file
    from inductoscope.views.report.kernel import file_view, print_kernel, print_source

    # SIGTERM acts like Ctrl-C: nothing is left running.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    kernel = read_kernel_file(file, name)
    request = KernelRequest(
        target=target,
        settings=parse_config(settings or ""),
        all_configs=all_configs,
        limits=ChildLimits(seconds=timeout, memory_gib=memory),
        times=times,
        output=output,
    )
    if form == "source":
        if script is not None:
            write_script(make_plans(kernel, request)[0], script)
        print_view(file_view(kernel), json_path, partial(print_source, kernel))
        return
    with tempfile.TemporaryDirectory(prefix="inductoscope-kernel-") as folder:
        view = _compiled(kernel, request, script, Path(folder), form, quiet)
    print_view(view, json_path, print_kernel)
    sys.exit(0 if view["verdict"] == "compiles alone" else 1)


def _compiled(
    kernel: KernelFile,
    request: KernelRequest,
    script: Path | None,
    folder: Path,
    form: str | None,
    quiet: bool,
) -> dict[str, Any]:
    """Compile the kernel, and read all results before the run's folder is removed."""
    from dataclasses import replace

    from inductoscope.kernels.alone import make_plans, try_plans, write_script
    from inductoscope.views.report.kernel import kernel_view, shown_text
    from inductoscope.views.report.progress import ProgressLine

    kept = request if request.output or not form else replace(request, output=folder)
    with ProgressLine(quiet=quiet) as progress:
        plans = make_plans(kernel, kept, progress.say)
        if script is not None:
            write_script(plans[0], script)
        view = kernel_view(kernel, try_plans(plans, kept, progress.say))
    if form is not None:
        view["shown"] = {"form": form, "text": shown_text(view, form)}
    if kept is not request:
        for trial in view["trials"]:
            trial["files"] = {}
    return view
