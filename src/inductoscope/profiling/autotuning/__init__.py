"""What autotuning chose, what that gains in the program, and what the search cost."""
