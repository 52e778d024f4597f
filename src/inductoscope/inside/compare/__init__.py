"""Comparison of compiled code with eager and float64: differences, and the first cause."""
