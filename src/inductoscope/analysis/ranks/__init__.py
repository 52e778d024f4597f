"""Ranks of one job side by side: which one decided otherwise, which is stuck, which is slow."""
