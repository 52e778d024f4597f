"""Numbers of things in sentences."""

from __future__ import annotations


def count_of(number: int, noun: str) -> str:
    """A number with its noun in singular or plural: '1 call', '3 calls'."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
