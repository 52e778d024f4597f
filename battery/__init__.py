"""Planted faults and healthy programs that the doctor is tried on: make battery.

A fault is data: a program, a start-up hook that breaks one place of torch, and the truth about it.
`generate.generate(seed)` makes them all; `python -m battery.run` lets the doctor loose on them.
Nothing in `inductoscope` knows of this package.
"""
