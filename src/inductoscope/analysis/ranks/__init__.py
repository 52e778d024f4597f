"""Comparison of the ranks of a job: which one decided differently, is stuck, or is slow."""
