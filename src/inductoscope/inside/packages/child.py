"""Runs in a child process: loads inputs, checks them, loads the package and runs it.

Every step is announced before it is taken, so that the parent knows where a child died.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inductoscope.inside.child import Channel

Say = Callable[..., None]


def run_package(channel: Channel, order: Mapping[str, Any]) -> None:
    from inductoscope.inside.packages.trials import InputsRefused

    channel.say("stage", stage="torch")
    import torch

    # Prints the stack if a signal ends this process.
    torch._C._set_print_stack_traces_on_fatal_signal(True)
    channel.ready()
    try:
        _follow(order, channel.say)
    except InputsRefused as error:
        channel.say("refused", message=str(error))
    except BaseException as error:
        channel.say("error", message=f"{type(error).__name__}: {error}"[:20_000])
    channel.say("done")
    # A normal exit may crash in libraries unloaded in the wrong order, which is irrelevant here.
    sys.stdout.flush()
    os._exit(0)


def _follow(order: Mapping[str, Any], say: Say) -> None:
    from inductoscope.inside.packages import trials
    from inductoscope.packages import cpp_library

    say("stage", stage="operators")
    trials.load_operators(order["operators"])
    say("stage", stage="inputs")
    args, kwargs = trials.load_arguments(order["inputs"])
    inputs = trials.flat_inputs(args, kwargs, order["in_spec"])
    facts = [trials.facts_of(tensor) for tensor in inputs]
    say("inputs", inputs=[asdict(item) for item in facts])
    if not _admitted(order, facts, say):
        return
    say("stage", stage="load")
    if order["cpp_library_first"]:
        cpp_library.take_from_torch()
    model = trials.load_model(order)
    say("stage", stage="run")
    outputs = model(inputs)
    say("outputs", outputs=[trials.output_facts(tensor) for tensor in outputs])
    if order["parts"]:
        say("stage", stage="parts")
        trials.call_parts(order, inputs, say)
    elif order["serve"]:
        trials.repeat(order, inputs, say)


def _admitted(order: Mapping[str, Any], facts: list[Any], say: Say) -> bool:
    """Check whether the inputs pass the package's guards; if so, enable its own checks."""
    from inductoscope.packages.package import read_package
    from inductoscope.torch_facts.package_wrappers import broken

    found = []
    wrapper = read_package(Path(order["package"]), verify=False).model(order["model"]).wrapper
    if wrapper is not None:
        found = list(broken(wrapper.guards, facts))
        say("guards", broken=[asdict(item) for item in found])
    if any(not item.is_harmless for item in found):
        return False
    if not found:
        # The package's own checks would also refuse harmless violations.
        os.environ["AOTI_RUNTIME_CHECK_INPUTS"] = "1"
    return True
