"""Words that all rooms share: stages, user frames, verdicts, torch's names and log lines."""
