"""Everything that a recording can say: one frozen class per kind of event.

A class names its fields once. What is written, how tolerantly it is read back, and the table in
docs/recording-format.md all follow from it. `catalogue.KINDS` lists the classes by kind.
"""
