"""A GPU that is not there: Inductor's path for it, down to machine code, on any machine.

Only ever in a child process, installed before torch is imported there. Tensors on the device are
fake, kernels are compiled for real, launches do nothing. Nothing runs on a GPU.
"""
