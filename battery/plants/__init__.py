"""Where torch is broken, one file per stage. A new stage is a file and a line in RECIPES."""

from __future__ import annotations

from battery.fault import Recipe
from battery.plants import (
    aot,
    codegen,
    cpp_compile,
    decomposition,
    dynamo,
    joint_pass,
    loop_body,
    lowering,
    natural,
    not_a_bug,
    post_grad_pass,
    pre_grad_pass,
    runtime,
    scheduler,
    wrapper,
)

RECIPES: tuple[Recipe, ...] = (
    *decomposition.RECIPES,
    *pre_grad_pass.RECIPES,
    *joint_pass.RECIPES,
    *post_grad_pass.RECIPES,
    *lowering.RECIPES,
    *scheduler.RECIPES,
    *loop_body.RECIPES,
    *codegen.RECIPES,
    *cpp_compile.RECIPES,
    *wrapper.RECIPES,
    *runtime.RECIPES,
    *aot.RECIPES,
    *dynamo.RECIPES,
    *not_a_bug.RECIPES,
    *natural.RECIPES,
)
