"""Generated Triton kernels: parsed from their files, turned into scripts, compiled alone."""
