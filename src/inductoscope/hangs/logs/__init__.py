"""Analysis of torch's own logs: TORCH_LOGS and TORCH_TRACE, also of those from another machine."""
