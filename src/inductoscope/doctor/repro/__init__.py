"""Writes scripts that show a failure or a graph without inductoscope."""
