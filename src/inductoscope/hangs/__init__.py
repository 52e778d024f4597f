"""Programs and compiles that do not finish: live, from logs, and by their autotuning choices."""
