"""Writes scripts that show a thing without inductoscope."""
