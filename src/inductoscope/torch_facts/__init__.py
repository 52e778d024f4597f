"""Torch facts."""
