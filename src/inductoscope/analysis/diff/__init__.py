"""Comparison of two recordings: what is equal, what differs, and where the difference began.

Names that only number things (nodes, buffers, kernels, symbols) are made canonical first, so a
renamed variable is not a difference. What one of the two lacks is not compared, and the difference
says why.
"""
