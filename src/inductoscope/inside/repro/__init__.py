"""Writes scripts that show a failure without inductoscope, and runs them."""
