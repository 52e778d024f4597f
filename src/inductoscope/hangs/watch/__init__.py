"""Watches a running program from outside: where each of its processes is, and why it stands still.

Everything is read from /proc, from the recording's streams and from stacks that a process can be
asked for. Nothing here imports torch, and nothing here changes the program.
"""
