"""Generated Triton kernels: read from their files, made into scripts, compiled on their own."""
