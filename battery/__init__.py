"""Labelled programs that the doctor is tried on: make battery, make cases.

A fault is data: a program, a start-up hook that breaks one place of torch, and the truth about it.
`generate.generate(seed)` makes the battery; `stored.read_stored(folders)` reads the scripts of
tests/cases; `python -m battery.run` lets the doctor loose on either.
Nothing in `inductoscope` knows of this package.
"""
