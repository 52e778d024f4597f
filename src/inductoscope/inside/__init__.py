"""Starts the user's program unchanged and puts the hooks into it.

Two halves. `launch` runs outside, in the tool's process. `scope`, `install` and `hooks` run inside
the user's processes: they import nothing but the standard library until torch itself is imported.
"""
