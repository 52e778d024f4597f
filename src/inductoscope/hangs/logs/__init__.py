"""Analysis of torch's own logs: TORCH_LOGS and TORCH_TRACE.

Nothing here imports torch: a log file from another machine can be read anywhere. The package
itself imports nothing, because the user's process needs the table of patterns too.
"""
