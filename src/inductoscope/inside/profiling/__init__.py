"""The profilers inside the user's process: calls, kernels, memory."""
