"""The ways in which a graph reaches Inductor."""

from __future__ import annotations

# Through torch.compile, with Dynamo in front. What is recorded then is no name at all.
JUST_IN_TIME = ""
# Exported, compiled into a package, loaded and called.
AOT_INDUCTOR = "AOTInductor"
