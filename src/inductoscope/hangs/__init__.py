"""Detection of hanging programs and compiles: live, from logs, and by autotuning choices."""
