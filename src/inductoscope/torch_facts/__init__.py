"""Knowledge of torch: private names, stages, log lines, and readers of text that it generates."""
