"""Arguments and options that several commands share, with their shell completion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from inductoscope.errors import InductoscopeError, UsageError
from inductoscope.recording.location import all_recordings, recordings_folder
from inductoscope.torch_facts.gpu_targets import ARCHITECTURES
from inductoscope.wording import did_you_mean

if TYPE_CHECKING:
    from inductoscope.model.entities import Recording
    from inductoscope.views.report.terminal import Printer

_Command = TypeVar("_Command", bound=Callable[..., Any])
_View = dict[str, Any]
_Path = TypeVar("_Path", str, Path, None)

GPUS = ", ".join(ARCHITECTURES)


class RecordingPath(click.ParamType):  # type: ignore[type-arg]  # Not generic before click 8.2.
    """A parameter type: the path of a recording, or its name in the folder of recordings."""

    name = "recording"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        named = recordings_folder() / path
        # A name has no slash: anything else is a path relative to the working directory.
        return named if path.name == str(value) and not path.exists() and named.is_dir() else path

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        names = []
        with suppress(InductoscopeError):  # The folder of recordings cannot be read.
            newest_first = reversed(all_recordings())
            names = matching((path.name for path in newest_first), incomplete)
        # Without a match the shell completes folders instead.
        return names or [CompletionItem(incomplete, type="dir")]


class WordChoice(click.Choice):  # type: ignore[type-arg]  # Not generic before click 8.2.
    """A parameter type: one of some words. A misspelled one is answered with a suggestion."""

    def __init__(self, words: Iterable[str], *, also: Mapping[str, str] | None = None) -> None:
        """Accept `words`; `also` maps aliases to them."""
        super().__init__(list(words))
        self._also = also or {}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(self._also.get(value, value), param, ctx)
        except click.BadParameter as error:
            meant = did_you_mean(str(value), [*self.choices, *self._also])
            raise click.BadParameter(error.message + meant, ctx=ctx, param=param) from None


def matching(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def complete_from(words: Callable[[], Iterable[str]]) -> Callable[..., list[CompletionItem]]:
    """Return a completer for `words`, which are computed only when the user presses Tab."""

    def complete(
        context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return matching(words(), incomplete)

    return complete


def complete_files(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Delegate the completion of file names to the shell."""
    return [CompletionItem(incomplete, type="file")]


def recording_argument(name: str = "recording") -> Callable[[_Command], _Command]:
    """Add the argument RECORDING, which defaults to the last recording."""
    return click.argument(name, required=False, type=RecordingPath())


def in_a_folder(context: click.Context, parameter: click.Parameter, path: _Path) -> _Path:
    """Refuse an output file without a parent folder before the work starts."""
    if path is not None and str(path) != "-" and not Path(path).absolute().parent.is_dir():
        raise UsageError(f"{path} cannot be written: there is no folder {Path(path).parent}.")
    return path


def json_option(what: str, remark: str = "") -> Callable[[_Command], _Command]:
    """Add `--json PATH`, common to every command that computes something: see docs/json.md."""
    return click.option(
        "--json",
        "json_path",
        metavar="PATH",
        callback=in_a_folder,
        shell_complete=complete_files,
        help=f"Write {what} as JSON; - means standard output{remark}.",
    )


# For commands that compare ranks.
ranks_page_option = click.option(
    "--page",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=in_a_folder,
    metavar="PATH",
    help="Write one HTML page about all ranks.",
)


def executor_options(purpose: str) -> Callable[[_Command], _Command]:
    """Add `--executor ADDRESS` and `--any-worker`, for commands that can use a cluster."""

    def add(command: _Command) -> _Command:
        for option in (
            click.option(
                "--any-worker",
                is_flag=True,
                help="With --executor: also ask workers that have other versions, or processors "
                "of another architecture.",
            ),
            click.option(
                "--executor",
                metavar="dask://HOST:PORT",
                help=f"{purpose}.  [default: this machine]",
            ),
        ):
            command = option(command)
        return command

    return add


def refuse_without_executor(executor: str | None, *, any_worker: bool) -> None:
    """Refuse cluster options without `--executor`."""
    if executor is None and any_worker:
        raise UsageError("--any-worker only works with --executor. Add --executor.")


def check_cluster(executor: str | None, *, any_worker: bool) -> None:
    """Check that the cluster is usable before the work starts."""
    refuse_without_executor(executor, any_worker=any_worker)
    if executor is None:
        return
    from inductoscope.processes.cluster import connect

    connect(executor, any_versions=any_worker).close()


def target_option(purpose: str) -> Callable[[_Command], _Command]:
    """Add `--target GPU`, for the GPUs with known parameters."""
    return click.option(
        "--target",
        metavar="GPU",
        shell_complete=complete_from(lambda: ARCHITECTURES),
        help=f"{purpose}: {GPUS}.",
    )


_NO_PAGER = "inductoscope.no_pager"


def _remember_no_pager(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    # A command and its subcommand share the option through the context.
    context.meta[_NO_PAGER] = value or context.meta.get(_NO_PAGER, False)


# For commands that print with `long_output`.
pager_option = click.option(
    "--no-pager",
    is_flag=True,
    expose_value=False,
    callback=_remember_no_pager,
    help="Print long output at once instead of in a pager.",
)


def long_output() -> AbstractContextManager[Printer]:
    """Return a printer for long output: a pager, unless the user opted out."""
    from inductoscope.views.report.terminal import paged

    return paged(wanted=not click.get_current_context().meta.get(_NO_PAGER, True))


def print_view(
    view: _View, json_path: str | None, render: Callable[[Printer, _View], None]
) -> None:
    """Write the JSON if requested; print the text unless the JSON goes to standard output."""
    from inductoscope.views.report.terminal import write_json

    if json_path:
        write_json(view, json_path)
    if json_path != "-":
        with long_output() as printer:
            render(printer, view)


def read_recording(path: Path | None, target: str | None = None) -> Recording:
    """Load the given recording, else the last one; with `target`, its recompilation for a GPU."""
    from inductoscope.model.fold import load
    from inductoscope.recording.location import last_recording

    path = path or last_recording()
    if target is None:
        return load(path)
    from inductoscope.targets.recompile import recording_for_target
    from inductoscope.torch_facts.gpu_targets import read_target
    from inductoscope.views.report.progress import ProgressLine

    with ProgressLine(quiet=False) as progress:
        return load(recording_for_target(path, read_target(target), say=progress.say))


quiet_option = click.option("--quiet", is_flag=True, help="Show no progress.")


def _program_words(
    context: click.Context, parameter: click.Parameter, words: tuple[str, ...]
) -> tuple[str, ...]:
    """Refuse an option in place of the program: the tool's options come before it."""
    first = words[0].partition("=")[0] if words else ""
    if first.startswith("-") and first not in ("-m", "-c"):
        known = [name for option in context.command.params for name in option.opts]
        raise UsageError(
            f"No such option: {first}.{did_you_mean(first, known)} Options come before the script; "
            "what follows the script is passed to it. --help lists the options."
        )
    return words


# The program to run, with its own arguments, which are passed on as they are.
program_argument = click.argument(
    "words",
    nargs=-1,
    type=click.UNPROCESSED,
    callback=_program_words,
    metavar="SCRIPT|-m MODULE|COMMAND [ARGS]...",
    shell_complete=complete_files,
)
