"""Watches a running program from outside: where each of its processes is, and why it stalls.

Everything is read from /proc, from the recording's streams and from the stacks of a process.
Nothing here imports torch, and nothing here changes the program.
"""
