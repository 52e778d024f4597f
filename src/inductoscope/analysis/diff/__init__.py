"""Two recordings side by side: what is the same, what is not, and where it began.

Names that only number things (nodes, buffers, kernels, symbols) are made canonical first, so a
renamed variable is not a difference. What one of the two lacks is not compared, and the difference
says why.
"""
