"""Compiles the graphs of a recording again: with other settings, or for another device.

What a recording holds is data from a stranger. The graphs are rebuilt from it, never executed as
code: operations are looked up in tables of what torch computes with, and arguments are parsed.
All of it happens in a child process under limits, with a cache of its own.
"""

from inductoscope.targets.recompile.running import RecompileLimits, recompile

__all__ = ["RecompileLimits", "recompile"]
