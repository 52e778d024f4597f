"""The whole of `inductoscope kernel`: read, configure, write the script, compile alone."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from inductoscope.errors import UsageError, unwritable
from inductoscope.kernels.alone import KernelTrial, TrialRequest, try_alone
from inductoscope.kernels.asking import ask_torch
from inductoscope.kernels.configs import (
    Config,
    check_settings,
    configs_in_file,
    default_config,
    open_arguments,
    with_settings,
)
from inductoscope.kernels.file import KernelFile, Scalar
from inductoscope.kernels.script import Plan, make_plan, script_text
from inductoscope.kernels.target import Target, parse_target
from inductoscope.processes.limited import ChildLimits


@dataclass(frozen=True)
class KernelRequest:
    """What the user asked for."""

    target: str | None = None
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    all_configs: bool = False
    limits: ChildLimits = field(default_factory=ChildLimits)
    times: int = 1
    output: Path | None = None


def choose_target(kernel: KernelFile, asked: str | None) -> Target:
    """The target that was asked for, or the one that the kernel was generated for."""
    if asked:
        return parse_target(asked)
    if kernel.target is None:
        raise UsageError(
            f"{kernel.path} does not say which device {kernel.name} was generated for. "
            "Give a target, such as --target cuda:90."
        )
    return kernel.target


def make_plans(
    kernel: KernelFile, request: KernelRequest, say: Callable[[str], None] = lambda text: None
) -> list[Plan]:
    """What to compile: one configuration, or all that would be tried."""
    check_settings(kernel, list(request.settings))
    target = choose_target(kernel, request.target)
    configs = _configs(kernel, request, say)
    chosen = configs if request.all_configs else configs[:1]
    plans = [make_plan(kernel, target, with_settings(c, request.settings)) for c in chosen]
    # A setting can make two configurations the same.
    return list({str(plan.config): plan for plan in plans}.values())


def _configs(
    kernel: KernelFile, request: KernelRequest, say: Callable[[str], None]
) -> list[Config]:
    found = configs_in_file(kernel)
    if found:
        return found
    given = {"num_warps", "num_stages"} <= set(request.settings)
    if given and not open_arguments(kernel, request.settings) and not request.all_configs:
        return [Config({}, "--config")]
    say("asking torch for the configuration")
    with tempfile.TemporaryDirectory(prefix="inductoscope-kernel-") as folder:
        asked, problem = ask_torch(kernel, request.limits, Path(folder))
    if asked:
        return asked
    default = default_config(kernel)
    return [replace(default, origin=f"{default.origin}: {problem}")]


def write_script(plan: Plan, path: Path) -> None:
    """Write the standalone script where the user wants it."""
    try:
        path.write_text(script_text(plan), "utf-8")
    except OSError as error:
        raise unwritable(path, error) from error


def try_plans(
    plans: list[Plan], request: KernelRequest, say: Callable[[str], None]
) -> list[KernelTrial]:
    """Compile each plan alone; with several, each keeps its files in its own folder."""
    trials = []
    for number, plan in enumerate(plans):
        output = request.output
        if output is not None and len(plans) > 1:
            output = output / f"{number}"
        trials.append(try_alone(plan, TrialRequest(request.limits, request.times, output), say))
    return trials
