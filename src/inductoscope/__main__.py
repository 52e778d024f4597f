"""`python -m inductoscope` is the same as `inductoscope`."""

from inductoscope.cli import main

main()
