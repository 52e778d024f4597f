"""Processes from outside: trees, stacks, locks, limited children, ending a process group."""

from __future__ import annotations
