"""Compiling for a GPU that this machine does not have: Inductor's path, down to machine code.

This happens only in a child process, and is set up before torch is imported there. Tensors on the
device are fake, kernels are really compiled, launches do nothing. Nothing runs on a GPU.
"""
