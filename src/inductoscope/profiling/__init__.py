"""Profiles of time and memory, measured with their spread, and trials of what would be faster."""
