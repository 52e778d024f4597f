"""The ways in which a graph reaches Inductor."""

from __future__ import annotations

# Through torch.compile, with Dynamo in front. What is recorded then is no name at all.
JUST_IN_TIME = ""
# Exported, compiled into a package, loaded and called.
AOT_INDUCTOR = "AOTInductor"
# Through torch.compile, with a wrapper in C++ around the kernels.
CPP_WRAPPER = "the C++ wrapper"
# What is plainer than each: a failure that shows there too is not peculiar to it.
PLAIN = {AOT_INDUCTOR: "torch.compile", CPP_WRAPPER: "torch.compile with a Python wrapper"}
