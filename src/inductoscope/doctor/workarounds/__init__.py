"""Workarounds, tried before they are offered."""
