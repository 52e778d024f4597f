"""Compiled against eager and float64: what differs, and where it first does."""
