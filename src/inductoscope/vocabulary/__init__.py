"""Words that every room shares: stages of the compiler, names and log lines of torch."""
