"""Slow programs whose cause is known, and what the tool says about them."""
