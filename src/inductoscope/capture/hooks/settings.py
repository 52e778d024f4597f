"""What a frame is compiled with: config modules, torch.compile's arguments, marked sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from inductoscope.capture.observe import Arguments, Keywords, current_compile_id, watch
from inductoscope.capture.program_settings import (
    CONFIGS,
    backend_of,
    compile_arguments,
    config_texts,
    default_texts,
    marks_of,
    static_marks_of,
)
from inductoscope.capture.scope import SCOPE
from inductoscope.recording.events.compiling import SettingsUsed
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.torch_names import Hook, TorchName, Wrap


def _settings(args: Arguments, kwargs: Keywords) -> None:
    output = args[0]
    one_graph = getattr(getattr(output, "root_tx", None), "one_graph", False)
    arguments = compile_arguments(backend_of(output), fullgraph=one_graph is True)
    config = config_texts(dynamic_given="dynamic" in arguments)
    SCOPE.emit(
        SettingsUsed(
            compile=current_compile_id(),
            config=config,
            arguments=arguments,
            marked=tuple(_marked(output)),
            defaults=default_texts(config),
        )
    )


def _marked(output: Any) -> Iterator[str]:
    """Marks on the inputs of the graph. They are on the program's own tensors, not on fake ones."""
    for argument in output.graphargs:
        value, name = argument.example, _name(argument)
        yield from map(str, (*marks_of(name, value), *static_marks_of(name, value)))


def _name(argument: Any) -> str:
    """The input as the program knows it: `x` for L['x']."""
    name = argument.source.name
    text = str(name() if callable(name) else name)
    return text.replace("L['", "", 1).replace("']", "", 1) if text.startswith("L['") else text


SETTINGS = Hook(
    stage=stages.DYNAMO,
    records="settings, arguments of torch.compile and marked sizes",
    wraps=(
        Wrap(
            TorchName("torch._dynamo.output_graph", "OutputGraph.call_user_compiler"),
            watch(before=_settings),
        ),
    ),
    reads=tuple(TorchName(module, "_is_default") for module in CONFIGS),
)
