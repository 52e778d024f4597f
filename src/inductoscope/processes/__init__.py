"""Processes seen from outside: trees, stacks, locks, limited children, ending a group."""

from __future__ import annotations
