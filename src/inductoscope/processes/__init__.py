"""Processes seen from outside: trees, stacks, locks, limited children, ending a group."""
